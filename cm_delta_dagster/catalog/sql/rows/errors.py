"""Errors about tables that several operations raise."""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import TableAlreadyExistsError, TableNotFoundError


def name_taken(identifier: TableIdentifier) -> TableAlreadyExistsError:
    """The error if another table has the name."""
    return TableAlreadyExistsError(f"{identifier} exists already: choose another name, or drop that table first.")


def unknown_table(table_id: str) -> TableNotFoundError:
    """The error for an id that no registered table has."""
    return TableNotFoundError(
        f"No registered table has the id {table_id}: it was dropped, or never registered. "
        "Load the table by its name again."
    )


def no_such_name(identifier: TableIdentifier) -> TableNotFoundError:
    """The error for a name that no table has."""
    return TableNotFoundError(
        f"The catalog has no table {identifier}: check the name, or create the table. Names are case-sensitive."
    )
