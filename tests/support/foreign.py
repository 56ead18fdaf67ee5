"""Tables of writers other than this package: data files by pyarrow, log bytes by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.protocol.actions.paths import encode_path
from cm_delta_dagster.storage.local_store import LocalStore

COLUMN_ID = "delta.columnMapping.id"
PHYSICAL = "delta.columnMapping.physicalName"


def field(name: str, kind: Any, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    """A field of the schema JSON."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def mapped(
    name: str, kind: Any, number: int, physical: str, *, nullable: bool = True, **metadata: Any
) -> dict[str, Any]:
    """A field of a table with column mapping."""
    return field(name, kind, nullable=nullable) | {
        "metadata": {**metadata, COLUMN_ID: number, PHYSICAL: physical},
    }


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nullable}


def mapping(key: Any, value: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nullable}


def with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    """A column with a Parquet field id."""
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


class ForeignTable:
    """A table below ``root``; every call of :meth:`add` is one commit."""

    def __init__(
        self,
        root: Path,
        *fields: dict[str, Any],
        partitions: Sequence[str] = (),
        features: Sequence[str] = (),
        writer_features: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.version = -1
        self.schema = struct(*fields)
        self.partitions = list(partitions)
        self.properties = dict(properties or {})
        (root / "_delta_log").mkdir(parents=True)
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(features),
            "writerFeatures": [*features, *writer_features],
        }
        self.commit({"protocol": protocol}, self.metadata())

    def metadata(self) -> dict[str, Any]:
        return {
            "metaData": {
                "id": "11111111-2222-3333-4444-555555555555",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(self.schema),
                "partitionColumns": self.partitions,
                "configuration": self.properties,
            }
        }

    def commit(self, *actions: dict[str, Any]) -> None:
        self.version += 1
        path = self.root / "_delta_log" / f"{self.version:020}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))

    def evolve(self, *fields: dict[str, Any]) -> None:
        """A commit that gives the table another schema."""
        self.schema = struct(*fields)
        self.commit(self.metadata())

    def add(
        self,
        name: str,
        content: pa.Table,
        *,
        values: Mapping[str, str | None] | None = None,
        stats: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> Path:
        """A commit with one data file at a decoded relative path."""
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(content, target)
        self.register(encode_path(name), size=target.stat().st_size, values=values, stats=stats, **extra)
        return target

    def register(
        self,
        path: str,
        *,
        size: int,
        values: Mapping[str, str | None] | None = None,
        stats: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        """A commit with one existing file."""
        add = {
            "path": path,
            "partitionValues": dict(values or {}),
            "size": size,
            "modificationTime": 0,
            "dataChange": True,
            **({} if stats is None else {"stats": json.dumps(stats)}),
            **extra,
        }
        self.commit({"add": add})

    def open(self) -> PathTable:
        return PathTable(location=str(self.root), store=LocalStore())
