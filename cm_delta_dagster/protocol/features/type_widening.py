"""Type widening (protocol heading "Type Widening"): which recorded changes of a column's type can be read.

The metadata of a field records the changes as ``delta.typeChanges``. The scans convert the values of old files. Types are not
changed here.
"""

from collections.abc import Mapping
from typing import Any

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.types import DecimalType, StructType, parse_schema, walk_fields

TYPE_CHANGES = "delta.typeChanges"
"""Key in the metadata of a field whose type was changed."""

# The protocol requires decimals with 10 or 20 digits before the point. Some writers use as few digits as the integer type has.
_INTEGER_DIGITS: Mapping[str, int] = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_ALLOWED_CHANGES: Mapping[str, frozenset[str]] = {
    "byte": frozenset(("short", "integer", "long", "double")),
    "short": frozenset(("integer", "long", "double")),
    "integer": frozenset(("long", "double")),
    "float": frozenset(("double",)),
    "date": frozenset(("timestamp_ntz",)),
}


def check_type_changes(schema: StructType) -> None:
    """Refuse a schema with type changes whose old values cannot be read.

    Raises:
        UnsupportedFeatureError: a recorded change is not a widening that this client knows.
        CorruptLogError: the record is not a list of changes.
    """
    for path, item in walk_fields(schema):
        changes = item.metadata.get(TYPE_CHANGES, ())
        column = ".".join(path)
        if not isinstance(changes, list | tuple):
            raise CorruptLogError(
                f"The {TYPE_CHANGES} of column {column!r} are not a list; the schema in the log is damaged."
            )
        for change in changes:
            _check(change, column)


def _check(change: Any, column: str) -> None:
    before, after = (change.get("fromType"), change.get("toType")) if isinstance(change, dict) else (None, None)
    if not isinstance(before, str) or not isinstance(after, str):
        raise CorruptLogError(
            f"The {TYPE_CHANGES} of column {column!r} contain {change!r}, which does not name two types; the schema in the log is "
            "damaged."
        )
    if not is_widening(before, after):
        raise UnsupportedFeatureError(
            f"The type of column {column!r} was changed from {before} to {after}, which this client cannot read. Read the table "
            "with the client that made the change, or rewrite its files."
        )


def is_widening(before: str, after: str) -> bool:
    """Whether the protocol allows to widen type ``before`` to ``after``; type names as in the log."""
    if before == after or after in _ALLOWED_CHANGES.get(before, ()):
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
