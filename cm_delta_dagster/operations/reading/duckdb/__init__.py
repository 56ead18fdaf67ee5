"""Reads of tables by DuckDB: relations, and statements that name tables of the catalog."""
