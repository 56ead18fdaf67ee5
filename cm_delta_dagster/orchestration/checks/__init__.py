"""Asset checks of tables, computed from the catalog and the log without Spark.

``settings`` has the checks and their limits, ``observation`` what all checks of one run share, ``evaluation`` the checks, and
``table_checks`` the definitions for Dagster.
"""
