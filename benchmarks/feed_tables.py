"""Tables whose log is read: ``feed`` with a change data feed, ``history`` with many commits.

``feed`` has a hundred commits that append a file each; every second commit also deletes the first half of the rows of the file
before, and writes change files. ``history`` has a thousand commits of one file each, of which only the log exists.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FEED_COMMITS = 100
LONG_LOG_COMMITS = 50_000
HISTORY_COMMITS = 1000

_FILE_ROWS = 1000
_START_MS = 1_700_000_000_000
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("id", "long"), ("amount", "double"))
    ],
}  # fmt: skip


def feed_table(root: Path) -> Path:
    """Write ``feed``."""
    commits = []
    before: dict[str, Any] | None = None
    for version in range(1, FEED_COMMITS + 1):
        first = version * _FILE_ROWS
        ids = np.arange(first, first + _FILE_ROWS)
        actions = [_add(root, f"part-{version:05d}.parquet", ids)]
        if version % 2 == 0 and before is not None:
            gone = np.arange(first - _FILE_ROWS, first - _FILE_ROWS // 2)
            kept = np.arange(first - _FILE_ROWS // 2, first)
            change = _add(root, f"_change_data/cdc-{version:05d}.parquet", gone, "delete")["add"]
            inserted = _add(root, f"_change_data/new-{version:05d}.parquet", ids, "insert")["add"]
            actions += [_add(root, f"rest-{version:05d}.parquet", kept)]
            actions += [{"remove": {**before, "deletionTimestamp": _START_MS + version, "dataChange": True}}]
            actions += [
                {"cdc": {key: value[key] for key in ("path", "partitionValues", "size")} | {"dataChange": False}}
                for value in (change, inserted)
            ]
        before = {key: actions[0]["add"][key] for key in ("path", "partitionValues", "size")}
        commits.append(actions)
    _write_log(root, commits)
    return root


def history_table(root: Path, num_commits: int = HISTORY_COMMITS) -> Path:
    """Write ``history``, or ``long_log`` with more commits."""
    add = {"partitionValues": {}, "size": 1000, "modificationTime": _START_MS, "dataChange": True}
    _write_log(
        root,
        [[{"add": {**add, "path": f"part-{version:05d}.parquet"}}] for version in range(1, num_commits)],
    )
    return root


def _add(root: Path, path: str, ids: Any, change: str | None = None) -> dict[str, Any]:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {"id": ids, "amount": (ids * 7 % 100_003).astype(np.float64)}
    if change is not None:
        columns["_change_type"] = [change] * len(ids)
    pq.write_table(pa.table(columns), root / path, store_schema=False)
    stats = {"numRecords": len(ids), "minValues": {"id": int(ids[0])}, "maxValues": {"id": int(ids[-1])}}
    return {"add": {"path": path, "partitionValues": {}, "size": (root / path).stat().st_size, "modificationTime": _START_MS,
                    "dataChange": True, "stats": json.dumps(stats)}}  # fmt: skip


def _write_log(root: Path, commits: list[list[dict[str, Any]]]) -> None:
    metadata = {"id": "0d5f9d3e-5f5e-4a48-9f53-3cfb1b8a7f10", "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(_SCHEMA), "partitionColumns": [], "createdTime": _START_MS,
                "configuration": {"delta.enableChangeDataFeed": "true"}}  # fmt: skip
    head: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, {"metaData": metadata}]
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, actions in enumerate([head, *commits]):
        info = {"timestamp": _START_MS + 1000 * version, "operation": "WRITE", "operationParameters": {}}
        lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
        (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")
