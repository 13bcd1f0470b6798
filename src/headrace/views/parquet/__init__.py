"""Views as Parquet files, in folders with a manifest."""
