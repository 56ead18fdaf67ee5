"""Actions that state high-water marks of row ids and identity columns."""

import json
from typing import Any


def row_id_mark(mark: int) -> dict[str, Any]:
    """The domain of row tracking."""
    configuration = json.dumps({"rowIdHighWaterMark": mark})
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}}


def numbered(mark: int | None, *, start: int = 1, step: int = 1, name: str = "n", **field: Any) -> dict[str, Any]:
    """Metadata with one column, an identity column; ``field`` is added to its metadata."""
    values: dict[str, Any] = {
        "delta.identity.start": start,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": False,
    }
    if mark is not None:
        values["delta.identity.highWaterMark"] = mark
    column = {"name": name, "type": "long", "nullable": True, "metadata": values | field}
    return {
        "metaData": {
            "id": "5d1a",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [column]}),
            "partitionColumns": [],
            "configuration": {"delta.enableInCommitTimestamps": "true"},
        }
    }
