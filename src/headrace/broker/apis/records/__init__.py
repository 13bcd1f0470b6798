"""Records: produced, fetched, found by offset or time, and deleted."""
