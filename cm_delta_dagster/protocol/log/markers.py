"""Markers: small files that record to which catalog a warehouse or a table belongs.

They are not part of the Delta protocol, and Delta readers ignore them. The catalog is authoritative. The marker of a warehouse
prevents two catalogs from using the same warehouse; the marker of a table is a hint for recovery after the catalog is lost.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

WAREHOUSE_MARKER_NAME = "_cm_delta_warehouse.json"
"""Name of the marker in the root directory of a warehouse."""

TABLE_MARKER_NAME = "_cm_delta_table"
"""Name of the marker in the ``_delta_log`` of a table. Without ``.json``, because some tools take such files for commits."""

_FORMAT = 1


class MarkedState(StrEnum):
    """State of the table in the catalog when its marker was written."""

    ACTIVE = "active"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseMarker:
    """The catalog that places its tables in a warehouse."""

    catalog_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMarker:
    """The catalog entry of a table when the marker was last written; it may be outdated.

    Attributes:
        name: ``catalog.schema.table``; for a dropped table its last name.
    """

    table_id: str
    name: str
    catalog_id: str
    state: MarkedState


def encode_marker(marker: WarehouseMarker | TableMarker) -> bytes:
    """Encode the marker as an indented JSON object."""
    return (json.dumps({"format": _FORMAT, **asdict(marker)}, indent=1, ensure_ascii=False) + "\n").encode()


def decode_warehouse_marker(data: bytes) -> WarehouseMarker | None:
    """Decode the marker of a warehouse; None if it is invalid."""
    fields = _fields(data)
    catalog_id = fields.get("catalog_id")
    return WarehouseMarker(catalog_id=catalog_id) if isinstance(catalog_id, str) and catalog_id else None


def decode_table_marker(data: bytes) -> TableMarker | None:
    """Decode the marker of a table; None if it is invalid, which callers treat like an absent marker."""
    fields = _fields(data)
    texts = [fields.get(name) for name in ("table_id", "name", "catalog_id", "state")]
    if not all(isinstance(text, str) for text in texts) or texts[3] not in tuple(MarkedState):
        return None
    table_id, name, catalog_id, state = map(str, texts)
    return TableMarker(table_id=table_id, name=name, catalog_id=catalog_id, state=MarkedState(state))


def _fields(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and value.get("format") == _FORMAT else {}
