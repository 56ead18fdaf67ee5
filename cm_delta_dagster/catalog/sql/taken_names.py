"""The error for a name that a table has."""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import TableAlreadyExistsError


def name_taken(identifier: TableIdentifier) -> TableAlreadyExistsError:
    """The error if another table has the name."""
    return TableAlreadyExistsError(f"{identifier} exists already: choose another name, or drop that table first.")
