"""Selection of top-level columns by name."""

from collections.abc import Callable, Sequence

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.types import StructField, StructType


def select_fields(
    offered: StructType, columns: Sequence[str] | None, *, missing: Callable[[str], str]
) -> tuple[StructField, ...]:
    """The fields of ``offered`` that ``columns`` name, in that order; all of them for None.

    Args:
        missing: the message for a name that ``offered`` does not have.

    Raises:
        InvalidArgumentError: no list of names, an unknown name, or one name twice.
    """
    if columns is None:
        return offered.fields
    if isinstance(columns, str) or not columns:
        raise InvalidArgumentError(
            f"columns is {columns!r}; give a list of at least one name, or None for all columns."
        )
    fields: dict[str, StructField] = {}
    for name in columns:
        item = offered.field(name)
        if item is None:
            raise InvalidArgumentError(missing(name))
        if item.name in fields:
            raise InvalidArgumentError(f"Column {item.name!r} is requested twice; name every column once.")
        fields[item.name] = item
    return tuple(fields.values())
