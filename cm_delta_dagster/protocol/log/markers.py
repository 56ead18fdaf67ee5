"""Markers: small objects beside the tables that tell a human, or recovery, to which catalog they belong.

They are not part of the Delta protocol, whose readers ignore them. The catalog alone is authoritative; the marker of a
warehouse prevents that two catalogs use it by mistake, and that of a table is a hint for the case that the catalog is lost.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

WAREHOUSE_MARKER_NAME = "_cm_delta_warehouse.json"
"""Directly in the warehouse."""

TABLE_MARKER_NAME = "_cm_delta_table"
"""In the ``_delta_log`` of the table; like ``_last_checkpoint`` without the ending of commits, for which some tools look."""

_FORMAT = 1


class MarkedState(StrEnum):
    """Whether the table had a name when its marker was written."""

    ACTIVE = "active"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseMarker:
    """Which catalog places its tables in a warehouse."""

    catalog_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMarker:
    """What the catalog said of a table last, as far as it could be written.

    Attributes:
        name: ``catalog.schema.table``, of a dropped table the one that it had.
    """

    table_id: str
    name: str
    catalog_id: str
    state: MarkedState


def encode_marker(marker: WarehouseMarker | TableMarker) -> bytes:
    """One JSON object, readable by a human."""
    return (json.dumps({"format": _FORMAT, **asdict(marker)}, indent=1, ensure_ascii=False) + "\n").encode()


def decode_warehouse_marker(data: bytes) -> WarehouseMarker | None:
    """None if the marker cannot be understood."""
    fields = _fields(data)
    catalog_id = fields.get("catalog_id")
    return WarehouseMarker(catalog_id=catalog_id) if isinstance(catalog_id, str) and catalog_id else None


def decode_table_marker(data: bytes) -> TableMarker | None:
    """None if the marker cannot be understood; then it is as good as absent."""
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
