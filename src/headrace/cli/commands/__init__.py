"""The commands of `headrace`, a file for each group of them."""
