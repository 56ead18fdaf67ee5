"""The first rows of a table or partition as Markdown, for the event of a write. Reads through Arrow, without a JVM."""

import logging
from itertools import islice
from typing import Any

import dagster as dg

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.orchestration.metadata.partitions import PartitionSlice

PREVIEW = "cm_delta/preview"
_MAX_CELL = 80
_MAX_COLUMNS = 30

_log = logging.getLogger(__name__)


def preview(table: Table, snapshot: Snapshot, *, part: PartitionSlice | None, num_rows: int) -> dict[str, Any]:
    """The metadata entry with the first rows; empty if they cannot be read, because the write has succeeded."""
    columns = snapshot.schema.names[:_MAX_COLUMNS]
    where = None if part is None else part.where
    try:
        with read_batches(SnapshotScan(snapshot=snapshot, store=table.store, columns=columns, where=where)) as batches:
            rows = (row for batch in batches for row in batch.slice(0, num_rows).to_pylist())
            first = list(islice(rows, num_rows))
    except CmDeltaError as error:
        _log.warning("No preview of %s: %s", table.identifier, error)
        return {}
    lines = [
        _line(columns),
        _line(["---"] * len(columns)),
        *(_line([_cell(row[name]) for name in columns]) for row in first),
    ]
    return {PREVIEW: dg.MetadataValue.md("\n".join(lines))}


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    text = "" if value is None else " ".join(str(value).split())
    text = text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}..."
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
