"""Rows of Arrow: the table that Spark's writer would have made, without Spark where nothing needs it."""

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.arrow.write import data_file_writer
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
)
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator, Predicate
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.storage.local_store import local_path
from tests.support.arrow_cases import CASES, INF, KEYED, KEYED_COLUMNS, NAN, RowCase
from tests.support.arrow_engines import check_same_tables, sorted_rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.usefixtures("no_spark")
def test_both_engines_end_in_the_same_table(lake: Connection, spark: SparkSession, case: RowCase) -> None:
    check_same_tables(lake, spark, case)


@pytest.mark.usefixtures("no_spark")
def test_rows_of_every_library_are_appended_and_replaced_without_spark(lake: Connection) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    table = lake.create_table_as("main.test.t", [{"id": 1, "name": "a"}, {"id": 2}])
    batch = pa.record_batch({"id": [3]})
    for rows in (
        pa.table({"id": [3]}),
        batch,
        pa.RecordBatchReader.from_batches(batch.schema, iter([batch])),
        pl.DataFrame({"id": [3]}),
        pl.LazyFrame({"id": [3]}),
        pd.DataFrame({"id": [3]}),
        duckdb.sql("SELECT 3::BIGINT AS id"),
        [{"id": 3}],
    ):
        table.append(rows)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, *[3] * 8]
    table.overwrite(pl.DataFrame({"id": [4], "extra": [True]}), schema_mode=SchemaMode.MERGE)
    assert table.to_arrow().to_pylist() == [{"id": 4, "name": None, "extra": True}]
    table.overwrite(pa.table({"other": [1.5]}), schema_mode=SchemaMode.OVERWRITE)
    assert table.to_arrow().to_pylist() == [{"other": 1.5}]
    opened = lake.open_or_create("main.test.u", like=pl.DataFrame({"day": ["a", "b"], "v": [1, 2]}), partition_by="day")
    opened.append(pl.DataFrame({"day": ["a", "b"], "v": [1, 2]}))
    opened.overwrite(pl.DataFrame({"day": ["b"], "v": [3]}), partitions="dynamic")
    assert sorted_rows(opened.to_arrow()) == ["{'day': 'a', 'v': 1}", "{'day': 'b', 'v': 3}"]
    lake.create_table_as("main.test.u", pa.table({"w": [1]}), mode="replace")
    assert lake.table("main.test.u").to_arrow().to_pylist() == [{"w": 1}]


@pytest.mark.usefixtures("no_spark")
def test_held_and_joint_writes_take_rows_of_arrow(lake: Connection) -> None:
    table = lake.create_table_as("main.test.t", [{"id": 1}])
    hold = table.append([{"id": 2}], hold=True)
    assert hold.scan().count() == 2 and table.scan().count() == 1
    hold.ratify()
    with lake.transaction() as tx:
        tx.table("main.test.t").append(pa.table({"id": [3]}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_parts_of_a_write_that_need_spark_get_the_rows_of_arrow(lake: Connection) -> None:
    table = lake.create_table_as("main.test.t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    table.upsert(pa.table({"id": [2, 3], "v": ["c", "d"]}), on="id")
    table.overwrite([{"id": 1, "v": "e"}], where="id = 1")
    table.overwrite([{"id": 3, "v": "f"}], keys="id")
    assert table.to_arrow().sort_by("id")["v"].to_pylist() == ["e", "c", "f"]


BAD_ROWS = {
    "no rows": (5, "a builtins.int was given"),
    "text": ("rows", "a builtins.str was given"),
    "empty list": ([], "has no columns"),
    "other columns": (pa.table({"zz": [1]}), "'zz' does not exist"),
    "wrong type": (pa.table({"id": ["x"]}), "bigint in the table and string"),
    "narrower": (pa.table({"id": [1.5]}), "bigint in the table and double"),
    "two of one name": (pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"]), "id"),
    "a time of day": (pa.table({"id": pa.array([0], pa.time64("us"))}), "time64"),
    "a duration": (pa.table({"id": pa.array([0], pa.duration("us"))}), "duration"),
    "no columns": (pa.table({}), "no columns"),
    "null": (pa.table({"id": [1], "must": pa.nulls(1, pa.string())}), "'must' is NOT NULL"),
    "missing": (pa.table({"id": [1]}), "'must' is missing"),
    "nanoseconds": (
        pa.table({"id": [1], "must": ["x"], "at": pa.array([1], pa.timestamp("ns"))}),
        "'at' has a time with a fraction of a microsecond",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
@pytest.mark.usefixtures("no_spark")
def test_bad_rows_are_refused_and_leave_nothing(lake: Connection, name: str) -> None:
    rows, message = BAD_ROWS[name]
    table = lake.create_table("main.test.t", "id bigint, must string NOT NULL, at timestamp_ntz")
    with pytest.raises(CmDeltaError, match=message) as caught:
        table.append(rows)  # type: ignore[arg-type]
    assert isinstance(caught.value, InvalidArgumentError | SchemaMismatchError | InvalidDataError)
    assert table.snapshot().version == 0
    assert list(Path(local_path(table.location)).rglob("*.parquet")) == []


@pytest.mark.parametrize(
    "error", [ValueError("broken"), OSError("broken"), InvalidDataError("broken"), pa.ArrowInvalid("broken")]
)
@pytest.mark.usefixtures("no_spark")
def test_a_stream_that_fails_in_the_middle_leaves_no_file(
    lake: Connection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(data_file_writer, "_GROUP_BYTES", 1)
    monkeypatch.setattr(data_file_writer, "_FILE_BYTES", 1)
    table = lake.create_table("main.test.t", "id bigint")
    schema = pa.schema([("id", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]}, schema=schema)
        raise error

    with pytest.raises(InvalidDataError, match="broken"):
        table.append(pa.RecordBatchReader.from_batches(schema, batches()))
    assert table.snapshot().version == 0
    assert list(Path(local_path(table.location)).rglob("*.parquet")) == []


@pytest.mark.parametrize("limit", ["_FILE_BYTES", "_MEMORY_BYTES", "_MAX_OPEN_FILES"])
@pytest.mark.usefixtures("no_spark")
def test_files_end_when_they_are_large_or_memory_is_full(
    lake: Connection, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(data_file_writer, "_GROUP_BYTES", 1 if limit == "_FILE_BYTES" else 2**30)
    monkeypatch.setattr(data_file_writer, limit, 1)
    table = lake.create_table("main.test.t", "id bigint, p string, q int", partition_by="p")
    reader = pa.RecordBatchReader.from_batches(
        KEYED.schema, [batch for _ in range(3) for batch in KEYED.to_batches(max_chunksize=4)]
    )
    table.append(reader)
    files = table.snapshot().files
    assert files.num_rows > len(set(KEYED["p"].to_pylist()))
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([*range(8)] * 3)
    assert sum(json.loads(stats)["numRecords"] for stats in files["stats"].to_pylist()) == 24


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_second_attempt_of_a_write_does_not_lose_the_rows(
    lake: Connection, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    """Another client creates the table after the rows were written, so that they replace its rows by a second write."""
    rows = pa.table({"id": [1, 2]})
    unchanged = data_file_writer.write_arrow_files
    others = [pa.table({"id": [3]})]

    def written(*arguments: Any, **keywords: Any) -> Any:
        files = unchanged(*arguments, **keywords)
        if others:
            lake.create_table_as("main.test.t", others.pop())
        return files

    monkeypatch.setattr("cm_delta_dagster.operations.writing.file_writes.write_arrow_files", written)
    offered = rows.to_reader() if is_stream else rows
    if is_stream:
        with pytest.raises(InvalidArgumentError, match="stream, and an attempt of this write that was not committed"):
            lake.create_table_as("main.test.t", offered, mode="create_or_replace")
    else:
        lake.create_table_as("main.test.t", offered, mode="create_or_replace")
    assert lake.table("main.test.t").to_arrow()["id"].to_pylist() == ([3] if is_stream else [1, 2])


@pytest.mark.usefixtures("no_spark")
def test_a_large_batch_is_written_in_parts(lake: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BATCH_BYTES", "_GROUP_BYTES", "_FILE_BYTES"):
        monkeypatch.setattr(data_file_writer, name, 16)
    table = lake.create_table_as("main.test.t", pa.table({"id": list(range(7))}))
    assert table.snapshot().num_files == 4 and sorted(table.to_arrow()["id"].to_pylist()) == list(range(7))


@pytest.mark.usefixtures("no_spark")
def test_the_target_size_of_the_table_ends_a_file(lake: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "_GROUP_BYTES", 1)
    table = lake.create_table("main.test.t", "id bigint", properties={"delta.targetFileSize": "1"})
    batch = pa.record_batch({"id": [1]})
    table.append(pa.RecordBatchReader.from_batches(batch.schema, [batch] * 5))
    assert table.snapshot().num_files == 5


def test_values_that_are_not_numbers_are_not_skipped(lake: Connection) -> None:
    """Spark takes NaN for greater than every number, and the bounds of Parquet leave it out."""
    table = lake.create_table_as("main.test.t", pa.table({"x": [1.0, float("nan")]}))
    table.append(pa.table({"x": [2.0, 3.0]}))
    assert table.to_df(where="x > 5").count() == table.scan(where="x > 5").count() == 1
    bounds = [json.loads(stats).get("maxValues", {}) for stats in table.snapshot().files["stats"].to_pylist()]
    assert sorted(map(str, bounds)) == ["{'x': 3.0}", "{}"]


def test_files_have_the_form_that_spark_gives_them(lake: Connection) -> None:
    case = next(case for case in CASES if case.name == "every-type")
    table = lake.create_table_as("main.test.t", case.rows)
    (path,) = Path(local_path(table.location)).rglob("*.parquet")
    footer = pq.ParquetFile(path)
    schema = str(footer.schema)
    assert footer.metadata.metadata is None or b"ARROW:schema" not in footer.metadata.metadata
    assert "int32 field_id=-1 small (Decimal(precision=9, scale=2))" in schema
    assert "timeUnit=microseconds" in schema and "nanoseconds" not in schema
    assert "list {" in schema or "group field_id=-1 list" in schema
    assert "required" not in schema.replace("required group", "").replace(
        "required binary field_id=-1 key", ""
    ).replace("required group field_id=-1 schema", "")
    assert footer.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.usefixtures("no_spark")
def test_a_table_is_written_and_read_on_a_machine_without_java(tmp_path: Path) -> None:
    code = f"""
import pyarrow as pa
from cm_delta_dagster import connect
with connect("sqlite:///{tmp_path}/catalog.db", warehouse="{tmp_path}/warehouse") as lake:
    table = lake.create_table_as("main.s.t", pa.table({{"id": [1]}}))
    table.append([{{"id": 2}}])
    table.overwrite(table.to_polars(), where=None)
    table.alter.set_properties({{"delta.autoOptimize.autoCompact": "true"}})
    for number in range(3):
        table.append([{{"id": number}}])
    with lake.transaction() as tx:
        tx.table("main.s.t").append([{{"id": 9}}])
    print(table.scan().count(), table.snapshot().version)
"""
    environment = {**os.environ, "JAVA_HOME": f"{tmp_path}/none", "PATH": f"{tmp_path}/none"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["6", "7"] and "java" not in run.stderr.lower()


@pytest.mark.usefixtures("no_spark")
def test_numbers_of_python_get_the_types_of_the_table_if_these_hold_them(lake: Connection) -> None:
    table = lake.create_table("main.test.t", "b byte, i int, l long, f float, d decimal(10,2), e double")
    table.append([{"b": 127, "i": 1, "l": 2**40, "f": 0.1, "d": 3, "e": 0.1}, {"b": None}])
    row = table.to_arrow().sort_by("b").to_pylist()[0]
    assert row == {"b": 127, "i": 1, "l": 2**40, "f": pytest.approx(0.1), "d": 3, "e": 0.1}
    for rows, message in (([{"b": 128}], "tinyint in the table"), ([{"i": 1.5}], "int in the table and double")):
        with pytest.raises(SchemaMismatchError, match=message):
            table.append(rows)
    table.overwrite([{"i": 2}])
    assert table.to_arrow()["i"].to_pylist() == [2]


def test_columns_of_the_table_take_the_case_of_the_table(lake: Connection) -> None:
    table = lake.create_table("main.test.t", KEYED_COLUMNS)
    table.append(pa.table({"ID": [1], "Q": pa.array([2], pa.int32())}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "p": None, "q": 2}]


SLICES: Mapping[str, str | Predicate] = {
    "a partition": "p = 'a'",
    "a range of partitions": "q BETWEEN 1 AND 5",
    "two columns": "p = 'a' AND q = 1",
    "NULL": "p IS NULL",
    "a value": Comparison("p", ComparisonOperator.EQ, "a"),
    "no file": "p = 'absent'",
}


@pytest.mark.parametrize("case", SLICES)
@pytest.mark.usefixtures("no_spark")
def test_a_slice_of_whole_files_is_replaced_without_spark(lake: Connection, spark: SparkSession, case: str) -> None:
    """Both engines end in the same rows, files and operation; rows outside are refused by both with the same text."""
    ends = []
    for engine in ("arrow", "spark"):
        table = lake.create_table(f"main.test.{engine}", KEYED_COLUMNS, partition_by=["p", "q"])
        table.append(KEYED)
        inside = table.to_arrow(where=SLICES[case]).slice(0, 1)
        rows = inside if inside.num_rows else KEYED.schema.empty_table()
        result = table.overwrite(rows if engine == "arrow" else spark.createDataFrame(rows), where=SLICES[case])
        with pytest.raises(PartitionMismatchError) as caught:
            outside = pa.table({"id": [9], "p": ["other"], "q": pa.array([77], pa.int32())})
            table.overwrite(outside if engine == "arrow" else spark.createDataFrame(outside), where=SLICES[case])
        ends.append((sorted_rows(table.to_arrow()), result.metrics, str(caught.value).replace(engine, "engine")))
    assert _without_bytes(ends[0]) == _without_bytes(ends[1])


def _without_bytes(end: tuple[list[str], Mapping[str, str], str]) -> tuple[list[str], Mapping[str, str], str]:
    """The footers of the engines differ in size."""
    rows, metrics, message = end
    return rows, {name: value for name, value in metrics.items() if not name.endswith("Bytes")}, message


def test_a_slice_of_parts_of_files_is_replaced(lake: Connection) -> None:
    table = lake.create_table_as("main.test.t", [{"id": 1}, {"id": 2}])
    table.overwrite(pa.table({"id": [2, 2]}), where="id = 2")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 2]
    with pytest.raises(PartitionMismatchError):
        table.overwrite(pa.table({"id": [3]}), where="id = 2")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("sqrt(id) > 1", "only Spark evaluates the condition"),
        ("at > '2026-01-01'", "only Spark evaluates the condition"),
    ],
)
def test_a_slice_that_needs_spark_is_refused_without_a_session(
    lake: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, reason: str
) -> None:
    table = lake.create_table("main.test.t", "id bigint, at timestamp")
    table.append(pa.table({"id": [1, 2]}))
    monkeypatch.setattr("cm_delta_dagster.api.session.running_session", lambda: None)
    with (
        connect(f"sqlite:///{tmp_path}/catalog.db") as without_spark,
        pytest.raises(InvalidArgumentError, match=f"need Spark, because {reason}.*no Spark session runs"),
    ):
        without_spark.table("main.test.t").overwrite(pa.table({"id": [2]}), where=where)
    assert table.snapshot().version == 1


MIXED: Mapping[str, tuple[list[Any], str]] = {
    "dates and times": ([dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12)], "dates and times"),
    "dates and times in lists": ([[dt.date(2024, 1, 1)], [dt.datetime(2024, 1, 1, 12)]], "dates and times"),
    "dates and times in structs": ([{"x": dt.date(2024, 1, 1)}, {"x": dt.datetime(2024, 1, 1, 12)}], "dates and times"),
    "zones": ([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], "with and without a time zone"),
    "zones, reversed": (
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1)],
        "with and without a time zone",
    ),
    "booleans": ([1.5, True], "numbers and booleans"),
}


@pytest.mark.parametrize("case", MIXED)
def test_values_of_several_kinds_are_refused_and_never_changed(lake: Connection, case: str) -> None:
    import pandas as pd

    values, message = MIXED[case]
    for rows in ([{"v": value} for value in values], pd.DataFrame({"v": pd.Series(values, dtype=object)})):
        with pytest.raises(InvalidArgumentError, match=f"{message} in column 'v'"):
            lake.create_table_as("main.test.t", rows)
    assert not lake.tables()


def test_missing_lists_and_structs_of_pandas_are_null(lake: Connection) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [[1], NAN, None], "s": [NAN, {"x": 1}, None]})
    rows = lake.create_table_as("main.test.t", frame).to_arrow()
    assert rows["a"].to_pylist() == [[1], None, None] and rows["s"].to_pylist() == [None, {"x": 1}, None]


@pytest.mark.usefixtures("no_spark")
def test_partitions_of_floats_are_those_of_spark(lake: Connection, spark: SparkSession) -> None:
    doubles = [-0.0, 0.0, 1e300, -1.5e-5, 0.001, 1234567.0, 1e7, 0.1, NAN, INF, None]
    rows = pa.table(
        {"id": range(len(doubles)), "d": doubles, "f": pa.array(doubles[:2] + [1e10, 1.1] * 4 + [None], pa.float32())}
    )
    partitions = []
    for engine, offered in (("arrow", rows), ("spark", spark.createDataFrame(rows).coalesce(1))):
        table = lake.create_table(f"main.test.{engine}", "id bigint, d double, f float", partition_by=["d", "f"])
        table.append(offered)
        partitions.append(sorted(map(repr, table.snapshot().files["partitionValues"].to_pylist())))
        assert sorted_rows(table.to_arrow()) == sorted_rows(rows)
    assert partitions[0] == partitions[1]


@pytest.mark.usefixtures("no_spark")
def test_what_no_file_or_column_can_hold_is_one_clear_error(lake: Connection) -> None:
    with pytest.raises(InvalidArgumentError, match="no child field"):
        lake.create_table_as("main.test.t", pa.table({"id": [1], "s": pa.array([{}], pa.struct([]))}))
    table = lake.create_table("main.test.d", "id bigint, p date", partition_by=["p"])
    with pytest.raises(InvalidDataError, match="'p' has a value that has no text in the log"):
        table.append(pa.table({"id": [1], "p": pa.array([3_000_000], pa.int32()).cast(pa.date32())}))
    single = lake.create_table("main.test.f", "f float")
    with pytest.raises(SchemaMismatchError, match="float in the table and double"):
        single.append([{"f": 1e300}])
    assert table.snapshot().version == single.snapshot().version == 0


@pytest.mark.usefixtures("no_spark")
def test_times_that_no_row_has_are_not_refused(lake: Connection) -> None:
    lists = pa.array([[1], [1_000], None, [2_000]], pa.list_(pa.timestamp("ns"))).slice(1)
    named = lake.create_table_as("main.test.t", pa.table({"a": lists, "s": pa.array([{".y": 1.5}] * 3)}))
    assert sum(row["a"] is not None for row in named.to_arrow().to_pylist()) == 2


def test_constraints_on_char_columns_are_left_to_spark(lake: Connection, spark: SparkSession) -> None:
    table = lake.create_table("main.test.t", "v char(5)")
    table.alter.add_constraint("c", "v <> 'ab'")
    rows = pa.table({"v": ["ab"]})
    ends = []
    for offered in (rows, spark.createDataFrame(rows)):
        try:
            table.append(offered)
            ends.append("accepted")
        except InvalidDataError as error:
            ends.append(str(error))
    assert ends[0] == ends[1]
