"""Logs of tables without data files, written without an engine, to measure the time to load and to list them.

A table has ``files`` live files of 1,000 rows in 365 partitions (``day``); file ``i`` holds the ids from ``1000 * i`` on. The
paths, partition values and statistics are of the size that writers make them.
"""

import json
import uuid
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COMMITS = 10
DAYS = [(date(2024, 1, 1) + timedelta(days=number)).isoformat() for number in range(365)]
ROWS_PER_FILE = 1000

_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "amount", "type": "double", "nullable": True, "metadata": {}},
        {"name": "label", "type": "string", "nullable": True, "metadata": {}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    ],
}
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_METADATA = {
    "id": "5b0c6a2e-9e0f-4f0e-9a3e-0c5f1f0f9a11",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(_SCHEMA),
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": 1700000000000,
}
_MAP = pa.map_(pa.string(), pa.string())


def json_table(root: Path, files: int) -> Path:
    """Write a table that consists of ten JSON commits."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    for version in range(COMMITS):
        head = [{"protocol": _PROTOCOL}, {"metaData": _METADATA}] if version == 0 else []
        first = version * files // COMMITS
        rows = _rows(first, (version + 1) * files // COMMITS - first)
        lines = pc.binary_join_element_wise(
            '{"add":{"path":"', rows["path"], '","partitionValues":{"day":"', rows["day"], '"},"size":',
            rows["size"].cast(pa.string()), ',"modificationTime":1700000000000,"dataChange":true,"stats":"',
            pc.replace_substring(rows["stats"], '"', '\\"'), '"}}', "",
        )  # fmt: skip
        text = [json.dumps({"commitInfo": {"timestamp": 1700000000000 + version, "operation": "WRITE"}})]
        text += [json.dumps(action) for action in head]
        (log / f"{version:020d}.json").write_text("\n".join([*text, *lines.to_pylist()]) + "\n")
    return root


def checkpoint_table(root: Path, files: int) -> Path:
    """Write a table that consists of a classic checkpoint of version 9 and the commit of that version."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    rows = _rows(0, files)
    offsets = pa.array(np.arange(files + 1, dtype=np.int32))
    keys = pa.array(["day"]).take(pa.array(np.zeros(files, dtype=np.int32)))
    add = pa.StructArray.from_arrays(
        [
            rows["path"],
            pa.MapArray.from_arrays(offsets, keys, rows["day"]),
            rows["size"],
            pa.array(np.full(files, 1700000000000)),
            pa.array(np.zeros(files, dtype=bool)),
            rows["stats"],
            pa.nulls(files, _MAP),
        ],
        names=["path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"],
    )
    small = pa.table({"protocol": [_PROTOCOL, None], "metaData": [None, _metadata_row()]}, schema=_SMALL)
    table = pa.concat_tables([small, pa.table({"add": add})], promote_options="default")
    # Row groups of about the 128 MB that parquet-mr makes.
    pq.write_table(table, log / f"{COMMITS - 1:020d}.checkpoint.parquet", row_group_size=500_000, store_schema=False)
    (log / f"{COMMITS - 1:020d}.json").write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")
    (log / "_last_checkpoint").write_text(json.dumps({"version": COMMITS - 1, "size": files + 2}))
    return root


def text_bytes() -> float:
    """Average length of the path and the statistics of a file, which every engine must store."""
    rows = _rows(500_000, 1000)
    return sum(pc.sum(pc.binary_length(rows[name])).as_py() for name in ("path", "stats")) / 1000


def append_commit(root: Path, version: int) -> None:
    """Write a further commit that adds one file."""
    add = {"path": f"day=2024-01-01/part-{version:05d}-{uuid.uuid4()}.snappy.parquet", "partitionValues": {"day": "2024-01-01"},
           "size": 45000, "modificationTime": 1700000000000, "dataChange": True, "stats": '{"numRecords":1000}'}  # fmt: skip
    lines = [json.dumps({"commitInfo": {"operation": "WRITE"}}), json.dumps({"add": add})]
    (root / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


_SMALL = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
    }
)


def _metadata_row() -> dict[str, object]:
    return {**_METADATA, "format": {"provider": "parquet", "options": []}, "configuration": []}


def _rows(first: int, count: int) -> dict[str, pa.Array]:
    """Columns of the adds from number ``first``; equal for equal arguments, so that all engines read the same table."""
    numbers = np.arange(first, first + count)
    texts = np.random.default_rng(first).bytes(16 * count).hex()
    ids = pa.array([texts[at : at + 32] for at in range(0, 32 * count, 32)])
    day = pa.array(DAYS).take(pa.array(numbers % len(DAYS)))
    low, high = pa.array(numbers * ROWS_PER_FILE), pa.array(numbers * ROWS_PER_FILE + ROWS_PER_FILE - 1)
    stats = pc.binary_join_element_wise(
        '{"numRecords":1000,"minValues":{"id":', low.cast(pa.string()), ',"amount":0.5,"label":"order-0"},"maxValues":{"id":',
        high.cast(pa.string()), ',"amount":99999.25,"label":"order-99999"},"nullCount":{"id":0,"amount":0,"label":3}}', "",
    )  # fmt: skip
    part = pa.array(numbers % 200).cast(pa.string())
    path = pc.binary_join_element_wise(
        "day=", day, "/part-", pc.utf8_lpad(part, 5, "0"), "-", ids, ".c000.snappy.parquet", ""
    )
    return {"path": path, "day": day, "size": pa.array(numbers % 1000 + 45000), "stats": stats}
