"""Values that an SQL expression computes from a row of a table and a row of a source (protocol heading "Change Data Files").

The columns of such a pair of rows are fields of two structs, ``target`` and ``source``, in which expressions over single rows find
them. A text names them by the aliases of both sides, or without an alias where only one side has the column.
"""

from collections.abc import Sequence
from datetime import tzinfo

from cm_delta_dagster.protocol.predicates.references import Side, columns_named
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.predicates.scalars import Scalar
from cm_delta_dagster.protocol.schema.types import StructField, StructType

TARGET = "target"
SOURCE = "source"


def join_expression(
    text: str, *, target: Side | None = None, source: Side | None = None, zone: tzinfo | None = None
) -> Scalar | None:
    """The expression over columns at ``(TARGET, name)`` and ``(SOURCE, name)``; None if its value is not certain without an engine.

    Args:
        target: None if the expression cannot name columns of the table.
        source: None if the expression cannot name columns of the source.
        zone: in which dates and times of day are taken of timestamps; None if it is not known.
    """
    sides = {name: side for name, side in ((TARGET, target), (SOURCE, source)) if side is not None}

    def find_path(names: Sequence[str]) -> Sequence[str] | None:
        first = names[0].lower()
        for name, side in sides.items():
            if len(names) > 1 and first == side.alias.lower():
                return (name, *names[1:])
        owners = [name for name, side in sides.items() if side.has(first)]
        return (owners[0], *names) if len(owners) == 1 else None

    schema = StructType(tuple(StructField(name, side.schema) for name, side in sides.items()))
    return scalar_expression(text, schema, zone=zone, find_path=find_path)


def wrong_name(text: str, *, target: Side | None = None, source: Side | None = None) -> str | None:
    """What is wrong with a name in an expression, for a message; None if nothing is, or that is not certain.

    Args:
        target, source: as of :func:`join_expression`.
    """
    sides = {name: side for name, side in ((TARGET, target), (SOURCE, source)) if side is not None}
    for names in columns_named(text):
        owners = [name for name, side in sides.items() if side.has(names[0])]
        by_alias = {side.alias.lower(): (name, side) for name, side in sides.items()}
        if len(names) > 1 and names[0].lower() in by_alias:
            which, side = by_alias[names[0].lower()]
            if not owners and not side.has(names[1]):
                where = "table" if which == TARGET else "source"
                return f"the column {'.'.join(names)}, and the {where} has {', '.join(side.schema.names)}"
        elif len(owners) > 1:
            return f"the column {names[0]}, which table and source have"
    return None
