"""One operation a module: reading, writing, tables, maintenance, doctor, recovery."""
