"""Segments: the files of a partition, found by offset or time, read and removed."""
