"""Mistakes in an application, told in one sentence that names the place in the user's own file."""
