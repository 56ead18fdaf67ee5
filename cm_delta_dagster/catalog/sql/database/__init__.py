"""Connections, transactions, the schema of the database and its migrations."""
