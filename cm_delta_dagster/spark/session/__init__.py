"""The session: finding Java and Python, temporary settings, interrupted queries, and Spark's errors."""
