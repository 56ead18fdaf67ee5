"""The queries of update, delete and merge."""
