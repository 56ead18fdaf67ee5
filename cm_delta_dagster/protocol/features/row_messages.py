"""What a row breaks, in words: the texts of the errors of both engines (protocol heading "CHECK Constraints").

Each text ends before the values of the row, which the engine adds.
"""

from collections.abc import Sequence

from cm_delta_dagster.protocol.features.constraints import Constraint
from cm_delta_dagster.protocol.predicates.predicates import Predicate, short_sql
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

_MOST_SHOWN_COLUMNS = 6


def shown_columns(named: Sequence[ColumnPath], schema: StructType) -> list[ColumnPath]:
    """The columns and nested fields whose values a message shows; at most six, neither binary nor nested.

    Args:
        named: those that the rule names. If none of them can be shown, columns of the schema are.
    """
    simple = list(dict.fromkeys(path for path in named if _is_simple(path, schema)))
    others = ((item.name,) for item in schema.fields if _is_simple((item.name,), schema))
    return (simple or list(others))[:_MOST_SHOWN_COLUMNS]


def _is_simple(path: ColumnPath, schema: StructType) -> bool:
    data_type: DataType = schema
    for name in path:
        item = data_type.field(name) if isinstance(data_type, StructType) else None
        if item is None:
            return False
        data_type = item.type
    return not isinstance(data_type, StructType | ArrayType | MapType) and data_type not in (VARIANT, BINARY)


def guard_text(guard: Predicate) -> str:
    """For a row that does not satisfy the condition that the write declared."""
    return (
        f"A row lies outside of the condition {short_sql(guard)} that this write declared; nothing was committed. "
        "Write only rows that satisfy it, or widen the condition. The row has "
    )


def generated_text(name: str, expression: str) -> str:
    """For a row whose value of a generated column is not that of its expression."""
    return (
        f"A row has a value of the generated column {name!r} that is not that of its expression {expression}; nothing was "
        "committed. Leave the column out, or correct the value. The row has "
    )


def failed_text(rule: str, cause: str) -> str:
    """For a row for which a rule of the table cannot be computed, e.g. because a number is too large. Shows no values."""
    return f"A row has values of which {rule} cannot be computed: {cause}. Nothing was committed. Correct the row."


def constraint_text(constraint: Constraint) -> str:
    """For a row for which a constraint is not true."""
    return (
        f"A row violates {constraint.description}, which is not true for it; nothing was committed. Correct the row, or drop "
        "the constraint. The row has "
    )


def length_text(item: StructField) -> str:
    """For a string that is longer than the declared type of its column."""
    return (
        f"A row has a string in column {item.name!r} that is longer than its declared type "
        f"{item.metadata[CHAR_METADATA]} allows; nothing was committed. Shorten the string. The row has "
    )


def null_text(path: str, column: StructField) -> str:
    """For a NULL in a column that is NOT NULL, or inside of it.

    Args:
        path: of the field, e.g. ``items.element.price``.
        column: the top-level column.
    """
    around = path != column.name and isinstance(column.type, StructType)
    inside = ", or in the struct around it" if around else ""
    return (
        f"Column {path!r} is NOT NULL in the table and a row holds NULL there{inside}; nothing was committed. Fill the "
        "value or drop the row. The row has "
    )
