"""Rows of Delta tables by Spark: scan, write, predicates, merge."""
