"""Reads of tables by polars."""
