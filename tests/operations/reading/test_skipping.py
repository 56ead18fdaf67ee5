"""Data skipping end to end: a condition reads the rows that reading everything and choosing would give (SKIP-1)."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cm_delta_dagster.arrow.schema import arrow_schema
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.reading.metadata_query import aggregate
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import LONG, PrimitiveType, StructField, StructType, schema_to_json
from cm_delta_dagster.storage.stores import Stores
from tests.support.random_rows import (
    TYPES,
    partition_names,
    partition_text,
    predicates,
    rows_of_a_file,
    sql_truth,
    stats_of,
)
from tests.support.random_rows import VALUES as COLUMNS

KINDS = {**TYPES, "p": PrimitiveType("integer"), "q": PrimitiveType("string"), "r": PrimitiveType("double"), "k": LONG}


def physical(name: str, is_mapped: bool) -> str:
    return f"col-{name}" if is_mapped else name


def schema(is_mapped: bool) -> StructType:
    return StructType(
        tuple(
            StructField(
                name, kind, metadata={PHYSICAL_NAME: physical(name, True), COLUMN_ID: number} if is_mapped else {}
            )
            for number, (name, kind) in enumerate(KINDS.items(), start=1)
        )
    )


def write_table(
    path: Path, files: Sequence[tuple[dict[str, Any], list[dict[str, Any]], bool, frozenset[int]]], is_mapped: bool
) -> list[dict[str, Any]]:
    """A table of these files: partition values, rows, whether there are statistics, positions deleted. Answers its rows."""
    (path / "_delta_log").mkdir(parents=True)
    features = ["deletionVectors", "timestampNtz", "columnMapping"]
    settings_of = {"delta.columnMapping.mode": "name"} if is_mapped else {}
    lines: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}},
        {"metaData": {"id": "t", "schemaString": schema_to_json(schema(is_mapped)), "partitionColumns": list(partition_names),
                      "format": {"provider": "parquet", "options": {}}, "configuration": settings_of}},
    ]  # fmt: skip
    stored = [name for name in KINDS if name not in partition_names]
    kinds = {field.name: field.type for field in arrow_schema(schema(False))}
    living: list[dict[str, Any]] = []
    for number, (partition, rows, has_stats, deleted) in enumerate(files):
        rows = [{**row, "k": 100 * number + position} for position, row in enumerate(rows)]
        gone = [position for position in sorted(deleted) if position < len(rows)]
        columns = {physical(name, is_mapped): pa.array([row[name] for row in rows], kinds[name]) for name in stored}
        pq.write_table(pa.table(columns), path / f"f{number}.parquet", write_statistics=False)
        add: dict[str, Any] = {
            "path": f"f{number}.parquet", "size": (path / f"f{number}.parquet").stat().st_size, "modificationTime": 0,
            "partitionValues": {physical(name, is_mapped): partition_text(value) for name, value in partition.items()},
            "dataChange": True,
        }  # fmt: skip
        if has_stats or gone:
            add["stats"] = stats_of(rows, spelled=lambda name: physical(name, is_mapped), tight=not gone)
        if gone:
            vector = encode_inline(gone)
            add["deletionVector"] = {"storageType": "i", "pathOrInlineDv": vector.path_or_inline_dv,
                                     "sizeInBytes": vector.size_in_bytes, "cardinality": vector.cardinality}  # fmt: skip
        lines.append({"add": add})
        living += [{**partition, **row} for position, row in enumerate(rows) if position not in gone]
    (path / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return living


tables = st.lists(
    st.tuples(
        st.fixed_dictionaries({name: st.none() | COLUMNS[name] for name in partition_names}),
        rows_of_a_file,
        st.booleans(),
        st.frozensets(st.integers(0, 3)),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.requirements("SKIP-1", "SKIP-2", "STATS-3", "COLMAP-9", "DV-22")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables, st.lists(predicates, min_size=1, max_size=4), st.booleans())
def test_a_condition_reads_what_reading_everything_and_choosing_gives(
    tmp_path: Path, files: Any, conditions: list[Predicate], is_mapped: bool
) -> None:
    """Nulls, NaN, long strings, wide bounds, mapped names."""
    path = tmp_path / uuid.uuid4().hex
    living = write_table(path, files, is_mapped)
    table = open_path_table(Stores(), str(path))
    for condition in conditions:
        try:
            found = read_arrow(open_scan(table, where=condition, columns=["k"]))
        except InvalidArgumentError as error:
            assert "without Spark" in str(error)
            continue
        assert sorted(found["k"].to_pylist()) == sorted(row["k"] for row in living if sql_truth(condition, row) is True)
    known = aggregate(open_scan(table, columns=["i", "y", "k", "p"]))
    assert known.num_rows in (None, len(living))
    for column in ("i", "y", "k", "p"):
        values = [row[column] for row in living if row[column] is not None]
        assert known.minimums.get(column, ...) in (..., min(values, default=None))
        assert known.maximums.get(column, ...) in (..., max(values, default=None))


@pytest.mark.requirements("SKIP-1", "CKPT-10")
def test_statistics_of_a_checkpoint_without_texts_leave_files_out(tmp_path: Path) -> None:
    """Only ``stats_parsed`` and ``partitionValues_parsed`` are there."""
    write_table(tmp_path / "t", [({"p": p, "q": "a", "r": 1.0}, [row(p)], True, frozenset()) for p in (1, 2, 3)], False)
    log = tmp_path / "t/_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    adds = []
    for line in lines:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            adds.append(
                {
                    **{key: line["add"][key] for key in ("path", "size", "modificationTime", "dataChange")},
                    "partitionValues": [],
                    "partitionValues_parsed": {"p": int(line["add"]["partitionValues"]["p"]), "q": "a", "r": 1.0},
                    "stats_parsed": {"numRecords": 1, **{
                        part: {"i": stats[part]["i"]} for part in ("minValues", "maxValues", "nullCount")}},
                }
            )  # fmt: skip
            adds[-1]["partitionValues"] = list(line["add"]["partitionValues"].items())
    small = [{name: line[name]} for line in lines for name in ("protocol", "metaData") if name in line]
    for item in small:
        if "metaData" in item:
            item["metaData"]["configuration"] = []
            item["metaData"]["format"] = {"provider": "parquet"}
    maps = pa.map_(pa.string(), pa.string())
    add_type = pa.struct(
        {
            "path": pa.string(), "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_(),
            "partitionValues": maps,
            "partitionValues_parsed": pa.struct({"p": pa.int32(), "q": pa.string(), "r": pa.float64()}),
            "stats_parsed": pa.struct({"numRecords": pa.int64(), **{
                part: pa.struct({"i": pa.int64()}) for part in ("minValues", "maxValues", "nullCount")}}),
        }
    )  # fmt: skip
    metadata_type = pa.struct(
        {"id": pa.string(), "schemaString": pa.string(), "partitionColumns": pa.list_(pa.string()), "configuration": maps,
         "format": pa.struct({"provider": pa.string()})}
    )  # fmt: skip
    rows = [*small, *({"add": add} for add in adds)]
    columns = {
        "protocol": pa.array([item.get("protocol") for item in rows]),
        "metaData": pa.array([item.get("metaData") for item in rows], metadata_type),
        "add": pa.array([item.get("add") for item in rows], add_type),
    }
    pq.write_table(pa.table(columns), log / f"{0:020d}.checkpoint.parquet")
    (log / f"{1:020d}.json").write_text('{"commitInfo":{}}\n')
    (log / f"{0:020d}.json").unlink()
    table = open_path_table(Stores(), str(tmp_path / "t"))
    from_statistics = table.snapshot().matching_files(None)
    assert from_statistics.num_rows == 3
    for where, paths in (("i = 2", ["f1.parquet"]), ("p = 3", ["f2.parquet"]), ("i > 7", [])):
        assert [row["path"] for row in matching(table, where)] == paths
        assert read_arrow(open_scan(table, where=where)).num_rows == len(paths)


def row(number: int) -> dict[str, Any]:
    return {**dict.fromkeys(TYPES), "i": number}


def matching(table: Any, where: str) -> list[dict[str, Any]]:
    snapshot = table.snapshot()
    return list(snapshot.matching_files(as_predicate(where, snapshot.schema)).to_pylist())


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("where", ["p = 1", "i = 1", "p = 1 and k >= 0"])
def test_a_file_that_is_left_out_is_not_opened(tmp_path: Path, where: str) -> None:
    write_table(tmp_path / "t", [({"p": p, "q": "a", "r": 1.0}, [row(p)], True, frozenset()) for p in (1, 2)], False)
    (tmp_path / "t/f1.parquet").unlink()
    assert read_arrow(open_scan(open_path_table(Stores(), str(tmp_path / "t")), where=where))["i"].to_pylist() == [1]
