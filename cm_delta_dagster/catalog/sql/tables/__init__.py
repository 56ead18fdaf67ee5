"""Names of tables, from their reservation to their purge, and the recovery of tables."""
