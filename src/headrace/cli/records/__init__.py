"""Records on the command line: read, filtered and sent as lines."""
