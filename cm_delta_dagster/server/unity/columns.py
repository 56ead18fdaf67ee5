"""Columns on the wire: the schema of the log, with other names for the parts of nested types.

The Delta API writes ``element-type`` where the log has ``elementType``. Clients send either form; a client that reads the form of
the log silently gets no element type, so answers always have the other one. The older API has a description of each column.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_TO_WIRE = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_TO_LOG = {wire: log for log, wire in _TO_WIRE.items()}
_NESTED = ("elementType", "keyType", "valueType", "element-type", "key-type", "value-type")

_FIELD_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_TYPE_TEXTS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Names of the older API, which are those of SQL, for types that have another name in the log."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", re.ASCII)
_TYPE_NAMES = {"integer": "INT", "timestamp_ntz": "TIMESTAMP_NTZ"}


def columns_of(schema_string: str) -> dict[str, Any]:
    """The columns of the Delta API for the schema JSON of the log."""
    columns: dict[str, Any] = _renamed(json.loads(schema_string), _TO_WIRE)
    return columns


def log_schema(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The schema JSON of the log, parsed, for columns as a client sends them, in either form."""
    schema: dict[str, Any] = _renamed(columns, _TO_LOG)
    return schema


def _renamed(data_type: Any, names: Mapping[str, str]) -> Any:
    """A data type with other names of its parts. The metadata of fields stays as it is."""
    if not isinstance(data_type, Mapping):
        return data_type
    renamed = {
        names.get(key, key): _renamed(value, names) if key in _NESTED else value for key, value in data_type.items()
    }
    fields = renamed.get("fields")
    if isinstance(fields, Sequence):
        renamed["fields"] = [
            {**field, "type": _renamed(field.get("type"), names)} if isinstance(field, Mapping) else field
            for field in fields
        ]
    return renamed


def column_infos(schema_string: str, partition_columns: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of the older API for the schema JSON of the log."""
    return [
        _column_info(field, position, partition_columns)
        for position, field in enumerate(json.loads(schema_string)["fields"])
    ]


def _column_info(field: Mapping[str, Any], position: int, partition_columns: Sequence[str]) -> dict[str, Any]:
    name = field["name"]
    precision, scale = _precision_and_scale(field["type"])
    return {
        "name": name,
        "type_text": type_text(field["type"]),
        "type_json": _FIELD_JSON.encode(field),
        "type_name": _type_name(field["type"]),
        "type_precision": precision,
        "type_scale": scale,
        "type_interval_type": None,
        "position": position,
        "comment": (field.get("metadata") or {}).get("comment"),
        "nullable": field.get("nullable", True),
        "partition_index": partition_columns.index(name) if name in partition_columns else None,
    }


def _precision_and_scale(data_type: Any) -> tuple[int | None, int | None]:
    """Those of a decimal, which Sail reads nowhere else; None for other types."""
    decimal = _DECIMAL.fullmatch(data_type) if isinstance(data_type, str) else None
    return (None, None) if decimal is None else (int(decimal[1]), int(decimal[2]))


def type_text(data_type: Any) -> str:
    """The type as SQL writes it, e.g. ``array<bigint>``."""
    if isinstance(data_type, str):
        return _TYPE_TEXTS.get(data_type, data_type)
    match data_type["type"]:
        case "array":
            return f"array<{type_text(data_type['elementType'])}>"
        case "map":
            return f"map<{type_text(data_type['keyType'])},{type_text(data_type['valueType'])}>"
        case _:
            fields = (f"{field['name']}:{type_text(field['type'])}" for field in data_type["fields"])
            return f"struct<{','.join(fields)}>"


def _type_name(data_type: Any) -> str:
    if not isinstance(data_type, str):
        return str(data_type["type"]).upper()
    return _TYPE_NAMES.get(data_type, data_type.partition("(")[0].upper())
