"""What is bounded: overloaded topics, quotas of clients, groups about to fall off the log."""
