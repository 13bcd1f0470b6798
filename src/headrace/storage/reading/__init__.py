"""Reading a partition: from an offset or a time to verified batches, around damage."""
