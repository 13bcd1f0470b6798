"""Values of records into Arrow columns. No Spark, no I/O."""
