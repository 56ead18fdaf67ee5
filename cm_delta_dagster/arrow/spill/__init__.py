"""Temporary local files of rows that do not fit into memory."""
