"""ALTER TABLE in the Python API."""

from cm_delta_dagster.api.constraint_methods import ConstraintMethods


class TableAlterer(ConstraintMethods):
    """Changes the constraints and the computed columns of one table; each call is one commit."""
