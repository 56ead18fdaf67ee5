"""Rows of Delta tables without a JVM: scan, predicates, Parquet values, on pyarrow."""
