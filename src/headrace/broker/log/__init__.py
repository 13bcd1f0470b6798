"""Partitions as the broker serves them: appends, commits, and who waits for what."""
