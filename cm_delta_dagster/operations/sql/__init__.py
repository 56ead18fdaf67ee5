"""SQL statements: what the tables of the catalog contribute to a statement that Spark runs."""
