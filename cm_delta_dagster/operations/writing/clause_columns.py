"""To which columns of the table a clause gives values, for both engines."""

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.writing.row_change import RowClause, check_value, is_default
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction
from cm_delta_dagster.protocol.features.generated_columns import check_no_default
from cm_delta_dagster.protocol.features.identity_columns import check_not_given, identity_columns, updated_identity
from cm_delta_dagster.protocol.predicates.assigned_paths import target_path
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import StructField, StructType


def columns_of_source(
    clause: RowClause, schema: StructType, offered: StructType, *, evolves: bool
) -> list[tuple[StructField, StructField]]:
    """The columns of ``UPDATE *`` and ``INSERT *``, each with the column of the source that it takes.

    Args:
        schema: of the table after the change.
        offered: the columns of the source.

    Raises:
        SchemaMismatchError: the source lacks a column.
    """
    columns: list[tuple[StructField, StructField]] = []
    identities = identity_columns(schema) if clause.lenient else {}
    for item in schema.fields:
        if item.name in identities and clause.action is ClauseAction.UPDATE:
            continue  # A key, which does not change.
        taken = offered.field(item.name)
        if taken is not None:
            columns.append((item, taken))
        elif not (clause.lenient or evolves):
            raise SchemaMismatchError(
                f"The source has no column {item.name!r}, which {clause.name} * takes from it. Nothing was written. Name the "
                "columns, or merge the schema."
            )
    return columns


def assigned_paths(clause: RowClause, schema: StructType, *, name: str, alias: str) -> dict[str, ColumnPath]:
    """The path of each column or field to which a clause with assignments gives a value, by the name that the caller wrote.

    Args:
        name: the statement or the clause, for messages.
        alias: of the table.

    Raises:
        InvalidArgumentError: there is no assignment, the table has no such column, a value is no expression, an insert names a
            nested field, or a column has no default.
    """
    if not clause.assignments:
        raise InvalidArgumentError(f"{name} assigns no value. Nothing was written. Give at least one column.")
    paths: dict[str, ColumnPath] = {}
    for column, expression in clause.assignments.items():
        check_value(column, expression)
        path = target_path(column, schema, alias)
        if len(path) > 1 and clause.action is ClauseAction.INSERT:
            raise InvalidArgumentError(
                f"An insert gives a value to the nested field {column!r}. Nothing was written. Give the whole column "
                f"{path[0]!r}, e.g. by named_struct(...)."
            )
        if is_default(expression):
            check_no_default(schema, path[0])
        paths[column] = path
    return paths


def default_columns(clause: RowClause, schema: StructType, *, alias: str) -> frozenset[str]:
    """The columns to which a clause gives their default."""
    paths = [
        target_path(name, schema, alias)
        for name, expression in (clause.assignments or {}).items()
        if is_default(expression)
    ]
    return frozenset(path[0] for path in paths if len(path) == 1)


def check_identity(
    clause: RowClause, schema: StructType, columns: Collection[str], defaults: AbstractSet[str], *, name: str
) -> None:
    """Refuse values of identity columns that a clause may not give.

    Args:
        columns: that get a value.
        defaults: that get their default.
        name: the statement or the clause, for messages.
    """
    if clause.action is ClauseAction.INSERT:
        check_not_given(schema, tuple(columns), action="inserts")
    for column in identity_columns(schema):
        if clause.action is ClauseAction.UPDATE and column in columns:
            raise updated_identity(name, column)
        if column in defaults:
            raise InvalidArgumentError(
                f"{name} inserts DEFAULT into the identity column {column!r}, which has no default. Nothing "
                "was written. Leave the column out; the table then numbers the row."
            )
