"""The plain data source: a topic as a Spark DataFrame, for streaming and for batch."""
