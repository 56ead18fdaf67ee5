"""Columns on the wire: the schema of the log, with other names for the parts of nested types.

The Delta API writes ``element-type`` where the log has ``elementType``. Clients send either form; a client that reads the form of
the log silently gets no element type, so answers always have the other one. The older API has a description of each column.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

_TO_WIRE = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_TO_LOG = {wire: log for log, wire in _TO_WIRE.items()}
_NESTED = ("elementType", "keyType", "valueType", "element-type", "key-type", "value-type")

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
    partition_indexes = {name: index for index, name in enumerate(partition_columns)}
    infos = []
    for position, field in enumerate(from_json(schema_string)["fields"]):
        name, data_type = field["name"], field["type"]
        described = _simple_type(data_type) if isinstance(data_type, str) else _nested_type(data_type)
        infos.append(
            {
                "name": name,
                **described,
                "type_json": to_json(field).decode(),
                "type_interval_type": None,
                "position": position,
                "comment": (field.get("metadata") or {}).get("comment"),
                "nullable": field.get("nullable", True),
                "partition_index": partition_indexes.get(name),
            }
        )
    return infos


@lru_cache(maxsize=256)
def _simple_type(data_type: str) -> Mapping[str, Any]:
    """What describes a type that is no nested one. A list of tables has a hundred thousand columns, and few types."""
    precision, scale = _precision_and_scale(data_type)
    return {
        "type_text": type_text(data_type),
        "type_name": _TYPE_NAMES.get(data_type, data_type.partition("(")[0].upper()),
        "type_precision": precision,
        "type_scale": scale,
    }


def _nested_type(data_type: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type_text": type_text(data_type),
        "type_name": str(data_type["type"]).upper(),
        "type_precision": None,
        "type_scale": None,
    }


def _precision_and_scale(data_type: str) -> tuple[int | None, int | None]:
    """Those of a decimal, which Sail reads nowhere else; None for other types."""
    decimal = _DECIMAL.fullmatch(data_type)
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
