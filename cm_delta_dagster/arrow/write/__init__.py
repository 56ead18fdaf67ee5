"""Writing rows that the caller has as Arrow data, without Spark."""
