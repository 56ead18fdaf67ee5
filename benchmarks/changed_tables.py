"""The tables that the tasks of ``changes`` start with: files of rows without partitions, with statistics in the log.

``changed`` has eight files, ``thousand`` a thousand. Each file has a range of ids.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.row_tables import logged_adds, rows_of, write_rows

FILES = 8
SMALL_FILES = 1000
COLUMNS = {
    "id": "bigint", "customer": "int", "amount": "double", "paid": "boolean", "label": "string", "at": "timestamp", "day": "date",
}  # fmt: skip
_FEATURES = {"delta.enableDeletionVectors": "deletionVectors", "delta.enableChangeDataFeed": "changeDataFeed"}


def files_table(root: Path, rows: int, files: int) -> Path:
    """Write ``rows`` rows in ``files`` files, at least one row in each."""
    root.mkdir(parents=True)
    adds = []
    for number in range(files):
        first, end = number * rows // files, (number + 1) * rows // files
        file = root / f"part-{number:05d}.parquet"
        write_rows(file, first, max(1, end - first))
        adds.append(
            {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1700000000000,
             "dataChange": True, "stats": json.dumps(_statistics(file))}
        )  # fmt: skip
    _write_log(root, adds, {}, ())
    return root


def linked_table(root: Path, place: Path, properties: Mapping[str, str], cluster_by: Sequence[str]) -> None:
    """A table by path with links to the files of another one."""
    root.mkdir(parents=True)
    link_files(place, root)
    _write_log(root, logged_adds(place), properties, cluster_by)


def link_files(place: Path, root: Path) -> None:
    for file in place.glob("*.parquet"):
        os.link(file, root / file.name)


def changed_rows(ids: range) -> pa.Table:
    """The rows with these ids as a merge gives them."""
    table = rows_of(np.arange(ids.start, ids.stop, ids.step))
    table = table.set_column(2, "amount", pc.add(table["amount"], 1.0))
    return table.set_column(4, "label", pa.array(["changed"]).take(pa.array(np.zeros(len(ids), np.int32))))


def _statistics(file: Path) -> dict[str, Any]:
    table = pq.read_table(file)
    bounds = {name: pc.min_max(table[name]).as_py() for name in COLUMNS if name != "paid"}
    return {
        "numRecords": table.num_rows,
        "minValues": {name: _text(found["min"]) for name, found in bounds.items()},
        "maxValues": {name: _text(found["max"]) for name, found in bounds.items()},
        "nullCount": dict.fromkeys(COLUMNS, 0),
    }


def _text(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value.isoformat() if hasattr(value, "isoformat") else value


def _write_log(
    root: Path, adds: Sequence[Mapping[str, Any]], properties: Mapping[str, str], cluster_by: Sequence[str]
) -> None:
    enabled = {name: value for name, value in properties.items() if value == "true"}
    types = {"bigint": "long", "int": "integer"}
    fields = [
        {"name": name, "type": types.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in COLUMNS.items()
    ]
    readers = [_FEATURES[name] for name in enabled if _FEATURES[name] == "deletionVectors"]
    writers = [*(_FEATURES[name] for name in enabled), "invariants", "appendOnly"]
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE"}}]
    if cluster_by:
        writers += ["clustering", "domainMetadata"]
        domain = json.dumps({"clusteringColumns": [[name] for name in cluster_by], "domainName": "delta.clustering"})
        actions.append({"domainMetadata": {"domain": "delta.clustering", "configuration": domain, "removed": False}})
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if readers:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers}
    elif len(writers) > 2:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writers}
    metadata = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": enabled,
                "createdTime": 1700000000000}  # fmt: skip
    actions += [{"protocol": protocol}, {"metaData": metadata}, *({"add": dict(add)} for add in adds)]
    (root / "_delta_log").mkdir()
    (root / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
