"""A table of rows that all engines read, written by pyarrow: the same files for all, in eight partitions (``region``).

``deleted`` and ``half`` hold the same files with every hundredth and every second row deleted by deletion vectors, ``vectors`` the
rows in a thousand files with a vector each, ``large_vector`` in one file. In a table of small files each file has a range of ids,
so that a condition on the id needs one of them.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cm_delta_dagster.protocol.features.deletion_vectors import encode_bitmap, encode_file, encode_relative_name

REGIONS = 8
_BATCH_ROWS = 500_000
SMALL_FILE_ROWS = 100
SMALL_SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("label", pa.string())])
_FIELDS = {"id": "long", "customer": "integer", "amount": "double", "paid": "boolean", "label": "string", "at": "timestamp",
           "day": "date", "region": "integer"}  # fmt: skip


def row_table(root: Path, rows: int) -> Path:
    """Write ``rows`` rows of eight columns in one commit, one file for each region."""
    adds = []
    for region in range(REGIONS):
        count = (region + 1) * rows // REGIONS - region * rows // REGIONS
        file = root / f"region={region}" / f"part-{region:05d}.snappy.parquet"
        file.parent.mkdir(parents=True)
        write_rows(file, region * rows // REGIONS, count)
        adds.append(_add(file, root, region, count))
    _write_log(root, adds, {})
    return root


def deleted_table(root: Path, source: Path, step: int = 100) -> Path:
    """Write a table of the files of ``source`` in which every ``step``-th row is deleted."""
    adds = []
    for file in sorted(source.glob("region=*/*.parquet")):
        place = root / file.relative_to(source)
        place.parent.mkdir(parents=True)
        os.link(file, place)
        count = pq.read_metadata(file).num_rows
        region = int(file.parent.name.partition("=")[2])
        (vector,) = _vectors(root, [count], step)
        adds.append(_add(place, root, region, count) | {"deletionVector": vector})
    _write_log(root, adds, {"delta.enableDeletionVectors": "true"})
    return root


def vectors_table(root: Path, rows: int, files: int, step: int) -> Path:
    """Write ``rows`` rows in ``files`` files without partitions, in each of which every ``step``-th row is deleted."""
    root.mkdir(parents=True)
    adds, counts = [], []
    for number in range(files):
        first, end = number * rows // files, (number + 1) * rows // files
        file = root / f"part-{number:05d}.parquet"
        write_rows(file, first, end - first)
        adds.append({**_add(file, root, None, end - first), "partitionValues": {}})
        counts.append(end - first)
    adds = [add | {"deletionVector": vector} for add, vector in zip(adds, _vectors(root, counts, step), strict=True)]
    fields = {name: kind for name, kind in _FIELDS.items() if name != "region"}
    _write_log(root, adds, {"delta.enableDeletionVectors": "true"}, fields, [])
    return root


def _vectors(root: Path, counts: Sequence[int], step: int) -> list[dict[str, object]]:
    """Write the deletion vectors of files of so many rows into one file."""
    bitmaps = [encode_bitmap(range(0, count, step)) for count in counts]
    content, offsets = encode_file(bitmaps)
    name = uuid.uuid4()
    (root / f"deletion_vector_{name}.bin").write_bytes(content)
    return [
        {"storageType": "u", "pathOrInlineDv": encode_relative_name(name), "offset": offset, "sizeInBytes": len(bitmap),
         "cardinality": len(range(0, count, step))}
        for bitmap, offset, count in zip(bitmaps, offsets, counts, strict=True)
    ]  # fmt: skip


def small_files_table(root: Path, files: int) -> Path:
    """Write ``files`` files of ``SMALL_FILE_ROWS`` rows, at most a thousand in a folder, in one commit."""
    adds = []
    for number in range(files):
        file = root / f"part-{number // 1000:03d}" / f"{number:06d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        ids = np.arange(number * SMALL_FILE_ROWS, (number + 1) * SMALL_FILE_ROWS)
        columns = [ids, (ids * 7 % 100_003).astype(np.float64), pa.array([f"order-{value}" for value in ids])]
        pq.write_table(pa.table(columns, schema=SMALL_SCHEMA), file, store_schema=False)
        low, high = int(ids[0]), int(ids[-1])
        stats = {"numRecords": len(ids), "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
        adds.append(
            {"path": str(file.relative_to(root)), "partitionValues": {}, "size": file.stat().st_size,
             "modificationTime": 1700000000000, "dataChange": True, "stats": json.dumps(stats)}
        )  # fmt: skip
    _write_log(root, adds, {}, {"id": "long", "amount": "double", "label": "string"}, [])
    return root


def logged_adds(root: Path) -> list[dict[str, object]]:
    """The files of a table of one commit."""
    lines = (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def write_rows(file: Path, first: int, count: int) -> None:
    """Write ``count`` rows with the ids from ``first`` on."""
    writer = None
    for start in range(first, first + count, _BATCH_ROWS):
        table = rows_of(np.arange(start, min(start + _BATCH_ROWS, first + count)))
        writer = writer or pq.ParquetWriter(file, table.schema, compression="snappy", store_schema=False)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def rows_of(ids: npt.NDArray[np.int64]) -> pa.Table:
    """The rows with these ids, without ``region``."""
    labels = pc.binary_join_element_wise("order-", pa.array(ids % 100_000).cast(pa.string()), "")
    return pa.table(
        {
            "id": ids,
            "customer": (ids % 1000).astype(np.int32),
            "amount": (ids * 7 % 100_003).astype(np.float64),
            "paid": ids % 2 == 0,
            "label": labels,
            "at": pa.array(1_700_000_000_000_000 + ids * 1000).cast(pa.timestamp("us", "UTC")),
            "day": pa.array((19_723 + ids % 365).astype(np.int32)).cast(pa.date32()),
        }
    )


def _add(file: Path, root: Path, region: int | None, count: int) -> dict[str, object]:
    stats = {"numRecords": count}
    return {"path": str(file.relative_to(root)), "partitionValues": {"region": str(region)}, "size": file.stat().st_size,
            "modificationTime": 1700000000000, "dataChange": True, "stats": json.dumps(stats)}  # fmt: skip


def _write_log(
    root: Path,
    adds: list[dict[str, object]],
    configuration: dict[str, str],
    fields: Mapping[str, str] = _FIELDS,
    partitions: Sequence[str] = ("region",),
) -> None:
    schema = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()],
    }
    protocol: dict[str, object] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if configuration:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                    "writerFeatures": ["deletionVectors", "invariants", "appendOnly"]}  # fmt: skip
    metadata = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
                "partitionColumns": list(partitions), "configuration": configuration, "createdTime": 1700000000000}  # fmt: skip
    actions = [{"commitInfo": {"operation": "WRITE"}}, {"protocol": protocol}, {"metaData": metadata}]
    log = root / "_delta_log"
    log.mkdir()
    lines = [json.dumps(action) for action in (*actions, *({"add": add} for add in adds))]
    (log / f"{0:020d}.json").write_text("\n".join(lines) + "\n")
