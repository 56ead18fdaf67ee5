"""Conditions that compare a partition column with the empty text (protocol heading "Partition Value Serialization").

A partition column stores the empty text as NULL, so such a condition is never true. An overwrite or merge of such a slice would
replace no rows and add its rows again on each run, so it is refused. Reads, deletions and updates find no rows.
"""

from collections.abc import Sequence

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    column_path,
)
from cm_delta_dagster.protocol.schema.char_types import char_width
from cm_delta_dagster.protocol.schema.types import BINARY, STRING, StructType

_EMPTY = ("", b"")
_EQUALITIES = (ComparisonOperator.EQ, ComparisonOperator.NULL_SAFE_EQ)


def stored_as_null(schema: StructType, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """The partition columns of type string or binary, in the spelling of the schema.

    A ``char(n)`` column has blanks for the empty text, which are stored.
    """
    fields = (schema.field(name) for name in partition_columns)
    return tuple(
        item.name for item in fields if item is not None and item.type in (STRING, BINARY) and not char_width(item)
    )


def check_no_empty_text(predicate: Predicate, partition_columns: Sequence[str]) -> None:
    """Refuse a condition that selects rows whose partition column is the empty text.

    ``p = '' OR p IS NULL`` is accepted: it is true for the rows that were written with the empty text.

    Raises:
        InvalidArgumentError: names the column and the condition to use instead.
    """
    names = {name.casefold() for name in partition_columns}
    pending: list[tuple[Predicate, frozenset[str]]] = [(predicate, frozenset())]
    while pending:
        node, with_null = pending.pop()
        match node:
            case And(parts):
                pending += [(part, with_null) for part in parts]
            case Or(parts):
                nulls = frozenset(part.column.casefold() for part in parts if isinstance(part, IsNull))
                pending += [(part, with_null | nulls) for part in parts]
            case Not():
                continue  # A negation such as `p <> ''` is true for every row that is not NULL.
            case Comparison(column=column) | In(column=column) if _selects_empty(node):
                path = column_path(column)
                if len(path) == 1 and path[0].casefold() in names and column.casefold() not in with_null:
                    raise InvalidArgumentError(
                        f"The condition asks for the empty text in the partition column {path[0]!r}, which no row has: "
                        f"partition columns store '' as NULL. Use `{path[0]} IS NULL`. Nothing was written."
                    )


def _selects_empty(leaf: Comparison | In) -> bool:
    if isinstance(leaf, In):
        return any(value in _EMPTY for value in leaf.values)
    return leaf.operator in _EQUALITIES and leaf.value in _EMPTY
