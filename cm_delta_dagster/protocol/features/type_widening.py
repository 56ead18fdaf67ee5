"""Type widening (protocol heading "Type Widening"): which recorded changes of a column's type can be read.

The changes are recorded in the metadata of fields, as ``delta.typeChanges``. How old values become new ones is a matter of the
scans; changing types is not done here.
"""

from collections.abc import Mapping
from typing import Any

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.types import DecimalType, StructType, parse_schema, walk_fields

TYPE_CHANGES = "delta.typeChanges"

# The protocol asks writers for 10 and 20 digits; some were content with those that the type can have.
_INTEGER_DIGITS: Mapping[str, int] = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_WIDER: Mapping[str, frozenset[str]] = {
    "byte": frozenset(("short", "integer", "long", "double")),
    "short": frozenset(("integer", "long", "double")),
    "integer": frozenset(("long", "double")),
    "float": frozenset(("double",)),
    "date": frozenset(("timestamp_ntz",)),
}


def check_type_changes(schema: StructType) -> None:
    """Every recorded type change is one whose old values can be read (UP-TW-5).

    Raises:
        UnsupportedFeatureError: one is not.
        CorruptLogError: the record is no list of changes.
    """
    for path, item in walk_fields(schema):
        changes = item.metadata.get(TYPE_CHANGES, ())
        column = ".".join(path)
        if not isinstance(changes, list | tuple):
            raise CorruptLogError(
                f"The {TYPE_CHANGES} of column {column!r} are no list; the schema in the log is damaged."
            )
        for change in changes:
            _check(change, column)


def _check(change: Any, column: str) -> None:
    before, after = (change.get("fromType"), change.get("toType")) if isinstance(change, dict) else (None, None)
    if not isinstance(before, str) or not isinstance(after, str):
        raise CorruptLogError(
            f"The {TYPE_CHANGES} of column {column!r} hold {change!r}, which names no two types; the schema in the log is damaged."
        )
    if not is_widening(before, after):
        raise UnsupportedFeatureError(
            f"The type of column {column!r} was changed from {before} to {after}, a change that this client does not know how to "
            "read. Read the table with the client that made the change, or write its files again."
        )


def is_widening(before: str, after: str) -> bool:
    """Whether every value of one type is a value of the other, in a way the protocol knows (UP-TW-2); names as in the log."""
    if before == after or after in _WIDER.get(before, ()):
        return True
    new = _decimal(after)
    if new is None:
        return False
    old = _decimal(before)
    if old is not None:
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    digits = _INTEGER_DIGITS.get(before)
    return digits is not None and new.precision - new.scale >= digits


def _decimal(name: str) -> DecimalType | None:
    if not name.startswith("decimal"):
        return None
    field = f'{{"type":"struct","fields":[{{"name":"c","type":"{name}","nullable":true,"metadata":{{}}}}]}}'
    try:
        found = parse_schema(field).fields[0].type
    except CorruptLogError:
        return None
    return found if isinstance(found, DecimalType) else None
