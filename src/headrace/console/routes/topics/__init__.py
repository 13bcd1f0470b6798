"""Routes about topics: their administration, reading them, writing to them."""
