"""Tables with many columns: one file of one row, with statistics of all columns. The work is to grow with the columns only.

A checkpoint holds the statistics as columns too; it is deleted again.
"""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

WIDTHS = (1000, 2000)
READ_WIDTH = 5000
CHECKPOINTS = {f"wide_checkpoint_{width}": f"wide_{width}" for width in WIDTHS}
SOURCES = {**CHECKPOINTS, "wide_read": f"wide_{READ_WIDTH}"}
TASKS = tuple(SOURCES)
Task = Callable[[], dict[str, Any]]
_PROPERTIES = {"delta.checkpoint.writeStatsAsStruct": "true"}


def makers() -> dict[str, Callable[[Path], object]]:
    """What creates each table."""
    return {f"wide_{width}": lambda root, width=width: wide_table(root, width) for width in (*WIDTHS, READ_WIDTH)}


def wide_table(root: Path, width: int) -> Path:
    """Write a table of ``width`` columns and one row in one commit."""
    names = [f"column_{number}" for number in range(width)]
    log = root / "_delta_log"
    log.mkdir(parents=True)
    file = root / "part-0.parquet"
    pq.write_table(pa.table({name: pa.array([number], pa.int64()) for number, name in enumerate(names)}), file)
    bounds = {name: number for number, name in enumerate(names)}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(names, 0)}
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    metadata = {
        "id": "7d1c6a2e-9e0f-4f0e-9a3e-0c5f1f0f9a12",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": _PROPERTIES,
    }
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1700000000000,
           "dataChange": True, "stats": json.dumps(stats)}  # fmt: skip
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}, {"add": add}]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return root


def ours(open_table: Callable[[str], Any], place: Callable[[str], Path]) -> dict[str, Task]:
    """The tasks of this package."""
    write = importlib.import_module("cm_delta_dagster.client.post_commit.checkpoint_writer").write_checkpoint
    read = importlib.import_module("cm_delta_dagster.operations.reading.read_arrow").read_arrow
    scan = importlib.import_module("cm_delta_dagster.operations.reading.snapshot_scan").open_scan

    def checkpoint(name: str) -> dict[str, Any]:
        table = open_table(name)
        write(table.store, table.snapshot(), now_ms=1700000000000)
        written = [*place(name).glob("_delta_log/*.checkpoint*"), place(name) / "_delta_log/_last_checkpoint"]
        for file in written:
            file.unlink()
        return {"answer": len(written)}

    checkpoints: dict[str, Task] = {task: lambda name=name: checkpoint(name) for task, name in CHECKPOINTS.items()}
    return {**checkpoints, "wide_read": lambda: {"answer": read(scan(open_table(f"wide_{READ_WIDTH}"))).num_columns}}


def deltalake(package: Any, place: Callable[[str], Path]) -> dict[str, Task]:
    """The tasks of deltalake."""
    name = f"wide_{READ_WIDTH}"
    return {"wide_read": lambda: {"answer": package.DeltaTable(str(place(name))).to_pyarrow_table().num_columns}}
