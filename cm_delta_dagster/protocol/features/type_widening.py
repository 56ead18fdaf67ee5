"""Type widening (protocol heading "Type Widening"): which recorded changes of a column's type can be read.

The metadata of a field records the changes as ``delta.typeChanges``. The scans convert the values of old files. The module also
decides which changes this client makes, and records them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
    walk_fields,
)

TYPE_CHANGES = "delta.typeChanges"
"""Key in the metadata of a field whose type was changed."""
ENABLED = "delta.enableTypeWidening"
"""Property: whether types may be changed."""
ICEBERG_KEYS = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")
"""Properties of tables whose columns only have changes that Iceberg knows."""

Widens = Callable[[DataType, DataType], bool]
"""Whether a type may become another one."""

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


def can_read_as(before: DataType, after: DataType) -> bool:
    """Whether values of type ``before`` can be read as ``after`` without loss: the two are equal, or ``after`` is wider."""
    return before == after or is_widening(_log_name(before), _log_name(after))


def records_change(item: StructField, before: DataType, after: DataType) -> bool:
    """Whether the record of a field says that a type was ``before``, and has become ``after`` by one or several changes."""
    changes = [change for change in item.metadata.get(TYPE_CHANGES, ()) if isinstance(change, dict)]
    names = ((key, _log_name(data_type)) for key, data_type in (("fromType", before), ("toType", after)))
    return all(any(change.get(key) == name for change in changes) for key, name in names)


def _decimal(name: str) -> DecimalType | None:
    if not name.startswith("decimal"):
        return None
    field = f'{{"type":"struct","fields":[{{"name":"c","type":"{name}","nullable":true,"metadata":{{}}}}]}}'
    try:
        data_type = parse_schema(field).fields[0].type
    except CorruptLogError:
        return None
    return data_type if isinstance(data_type, DecimalType) else None


# --- changes that this client makes -----------------------------------------------------------------------------------

_SAME_KIND: Mapping[DataType, tuple[DataType, ...]] = {
    BYTE: (SHORT, INTEGER, LONG),
    SHORT: (INTEGER, LONG),
    INTEGER: (LONG,),
    FLOAT: (DOUBLE,),
    DATE: (TIMESTAMP_NTZ,),
}
_DIGITS_BEFORE_POINT: Mapping[DataType, int] = {BYTE: 10, SHORT: 10, INTEGER: 10, LONG: 20}


def may_widen(before: DataType, after: DataType) -> bool:
    """Whether a column of type ``before`` may be changed to the different type ``after``."""
    if after in _SAME_KIND.get(before, ()):
        return True
    if after == DOUBLE:
        return before in (BYTE, SHORT, INTEGER)
    if not isinstance(after, DecimalType) or before == after:
        return False
    if isinstance(before, DecimalType):
        more_digits = after.precision - before.precision
        return after.scale >= before.scale and more_digits >= after.scale - before.scale
    digits = _DIGITS_BEFORE_POINT.get(before)
    return digits is not None and after.precision - after.scale >= digits


def never_widens(before: DataType, after: DataType) -> bool:
    """The rule of a write that changes no type."""
    return False


def widening_in_writes(properties: TableProperties) -> Widens:
    """Which types a write that merges schemas may change on a table with these properties: the same as a user.

    With Iceberg compatibility, a change that Iceberg does not know is refused when the metadata is checked.
    """
    return may_widen if properties.configuration.get(ENABLED, "").lower() == "true" else never_widens


def iceberg_reads(before: DataType, after: DataType) -> bool:
    """Whether Iceberg, whose types a table with Iceberg compatibility must have, knows the change too."""
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale
    return before == FLOAT or (after not in (DOUBLE, TIMESTAMP_NTZ) and not isinstance(after, DecimalType))


def with_type_changes(before: StructType, after: StructType) -> StructType:
    """``after``, in which each field records the changes of its type since ``before``. Fields are paired by name."""
    return StructType(tuple(_recorded(before.field(item.name), item) for item in after.fields))


def _recorded(before: StructField | None, item: StructField) -> StructField:
    if before is None:
        return item
    changes = [
        {"fromType": _log_name(old), "toType": _log_name(new), **({"fieldPath": ".".join(path)} if path else {})}
        for path, old, new in widenings(before.type, item.type)
    ]
    metadata = item.metadata
    if changes:
        metadata = {**metadata, TYPE_CHANGES: [*metadata.get(TYPE_CHANGES, ()), *changes]}
    return replace(item, type=_inside(before.type, item.type), metadata=metadata)


def widenings(
    before: DataType, after: DataType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], DataType, DataType]]:
    """Path, old and new type of the parts of a type that become wider, outside of structs, whose fields have their own record."""
    match before, after:
        case ArrayType(), ArrayType():
            yield from widenings(before.element_type, after.element_type, (*path, "element"))
        case MapType(), MapType():
            yield from widenings(before.key_type, after.key_type, (*path, "key"))
            yield from widenings(before.value_type, after.value_type, (*path, "value"))
        case _ if may_widen(before, after):
            yield path, before, after


def _inside(before: DataType, after: DataType) -> DataType:
    match before, after:
        case StructType(), StructType():
            return with_type_changes(before, after)
        case ArrayType(), ArrayType():
            return replace(after, element_type=_inside(before.element_type, after.element_type))
        case MapType(), MapType():
            key = _inside(before.key_type, after.key_type)
            return replace(after, key_type=key, value_type=_inside(before.value_type, after.value_type))
        case _:
            return after


def _log_name(data_type: DataType) -> str:
    return data_type_text(data_type) if isinstance(data_type, DecimalType) else getattr(data_type, "name", "")
