"""Values that an SQL expression computes from a row of a table and a row of a source (protocol heading "Change Data Files").

The columns of such a pair of rows are fields of two structs, ``target`` and ``source``, in which expressions over single rows find
them. A text names them by the aliases of both sides, or without an alias where only one side has the column.
"""

from collections.abc import Sequence
from datetime import tzinfo

from cm_delta_dagster.protocol.predicates.references import Side
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
