"""Writing data files: exact content, Delta partition texts, row rules, and nothing left behind."""

import datetime as dt
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.errors import (
    EngineError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    StorageError,
)
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles
from cm_delta_dagster.protocol.statistics.statistics import schema_leaves
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.spark.session.session import check_frame
from cm_delta_dagster.spark.write.write import write_files
from cm_delta_dagster.storage.local_store import LocalStore

SETTINGS = (
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.writeLegacyFormat",
)


def write(frame: DataFrame, root: Path, **arguments: Any) -> WrittenFiles:
    schema = arguments.pop("schema", None) or from_spark(frame.schema)
    return write_files(
        frame,
        store=LocalStore(),
        layout=TableLayout(
            location=f"file://{root}", schema=schema, partition_columns=arguments.pop("partition_columns", ())
        ),
        spec=WriteSpec(statistics_columns=schema_leaves(schema), **arguments),
    )


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def required(schema: StructType, *names: str) -> StructType:
    return StructType(
        tuple(StructField(item.name, item.type, item.name not in names, item.metadata) for item in schema.fields)
    )


@pytest.mark.requirements("LOG-12", "FILE-10", "STATS-1")
def test_a_written_file_is_described_by_its_size_rows_and_statistics(spark: SparkSession, tmp_path: Path) -> None:
    """The add action states what the file really is."""
    written = write(spark.createDataFrame([(1, "a"), (2, None)], "id long, s string").coalesce(1), tmp_path)
    (add,) = written.adds
    path = tmp_path / decode_path(add.path)
    assert pq.read_table(path).to_pydict() == {"id": [1, 2], "s": ["a", None]}
    assert add.size == path.stat().st_size == written.size_bytes
    assert add.modification_time == int(path.stat().st_mtime * 1000)
    assert json.loads(add.stats or "")["numRecords"] == written.num_rows == 2
    assert json.loads(add.stats or "")["nullCount"] == {"id": 0, "s": 1}
    assert add.path.startswith("delta.txn=")


def test_an_empty_frame_adds_no_file_and_leaves_none(spark: SparkSession, tmp_path: Path) -> None:
    written = write(spark.createDataFrame([], "id long"), tmp_path)
    assert (written.adds, written.num_rows) == ((), 0)
    assert files_below(tmp_path) == []


def test_empty_tasks_add_no_file(spark: SparkSession, tmp_path: Path) -> None:
    written = write(spark.range(1).repartition(4), tmp_path)
    assert len(written.adds) == 1
    assert len([path for path in files_below(tmp_path) if path.suffix == ".parquet"]) == 1


@pytest.mark.requirements("PQ-1", "NTZ-2")
def test_timestamps_are_int64_microseconds_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT timestamp'1500-01-01 00:00:00Z' t, timestamp_ntz'2020-01-01 00:00:00.000001' n").coalesce(
        1
    )
    (add,) = write(frame, tmp_path).adds
    schema = pq.read_metadata(tmp_path / decode_path(add.path)).schema
    assert [schema.column(i).physical_type for i in range(2)] == ["INT64", "INT64"]
    assert json.loads(schema.column(0).logical_type.to_json())["isAdjustedToUTC"] is True
    assert json.loads(schema.column(1).logical_type.to_json())["isAdjustedToUTC"] is False
    value = pq.read_table(tmp_path / decode_path(add.path))["t"][0].as_py()
    assert value == dt.datetime(1500, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def legacy_settings(spark: SparkSession) -> Iterator[dict[str, str | None]]:
    spark.conf.set(SETTINGS[0], "INT96")
    spark.conf.unset(SETTINGS[1])
    spark.conf.set(SETTINGS[2], "true")
    yield {key: spark.conf.get(key, None) for key in SETTINGS}
    for key in SETTINGS:
        spark.conf.unset(key)


def test_the_session_is_left_as_it_was_found(
    spark: SparkSession, tmp_path: Path, legacy_settings: dict[str, str | None]
) -> None:
    (add,) = write(spark.sql("SELECT timestamp'2020-01-01' t, date'2020-01-01' d"), tmp_path).adds
    assert pq.read_metadata(tmp_path / decode_path(add.path)).schema.column(0).physical_type == "INT64"
    assert {key: spark.conf.get(key, None) for key in SETTINGS} == legacy_settings


def test_the_session_is_left_as_it_was_found_after_a_failure(
    spark: SparkSession, tmp_path: Path, legacy_settings: dict[str, str | None]
) -> None:
    frame = spark.sql("SELECT timestamp'2020-01-01' t, raise_error('no') x").selectExpr("t", "cast(x as int) x")
    with pytest.raises(EngineError):
        write(frame, tmp_path)
    assert {key: spark.conf.get(key, None) for key in SETTINGS} == legacy_settings


def test_concurrent_writes_share_the_settings_and_restore_them_once(
    spark: SparkSession, tmp_path: Path, legacy_settings: dict[str, str | None]
) -> None:
    results: list[WrittenFiles] = []
    frame = spark.sql("SELECT timestamp'2020-01-01' t")
    threads = [threading.Thread(target=lambda: results.append(write(frame, tmp_path))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = {
        pq.read_metadata(tmp_path / decode_path(add.path)).schema.column(0).physical_type
        for result in results
        for add in result.adds
    }
    assert (len(results), kinds) == (6, {"INT64"})
    assert {key: spark.conf.get(key, None) for key in SETTINGS} == legacy_settings


PARTITION_VALUES: list[tuple[str, Any, str | None]] = [
    ("string", "a b", "a b"),
    ("string", "50%", "50%"),
    ("string", "x/y", "x/y"),
    ("string", "ü", "ü"),
    ("string", "a+b", "a+b"),
    ("string", "k=v", "k=v"),
    ("string", "#1", "#1"),
    ("string", "{[*?\\^'\":", "{[*?\\^'\":"),
    ("string", "", None),
    ("string", None, None),
    ("date", dt.date(2020, 2, 29), "2020-02-29"),
    ("int", -5, "-5"),
    ("long", 2**62, str(2**62)),
    ("boolean", True, "true"),
    ("decimal(5,2)", Decimal("12.30"), "12.30"),
    ("decimal(38,18)", Decimal("0"), "0.000000000000000000"),
    ("decimal(20,11)", Decimal("-0.00000000150"), "-0.00000000150"),
    ("double", float("nan"), "NaN"),
    ("double", float("-inf"), "-Infinity"),
    ("double", 0.1, "0.1"),
    ("timestamp_ntz", dt.datetime(2020, 3, 29, 2, 30, 0, 120000), "2020-03-29 02:30:00.12"),
]


@pytest.mark.requirements("PART-2", "PART-3", "PART-4", "PART-5", "PART-6", "PATH-4")
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_partition_values_are_written_in_deltas_text_form(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    """Independent of the session's ANSI mode."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for kind, value, text in PARTITION_VALUES:
            frame = spark.createDataFrame([(1, value)], f"id long, p {kind}")
            (add,) = write(frame, tmp_path, partition_columns=["p"]).adds
            assert (kind, add.partition_values) == (kind, {"p": text})
            assert (tmp_path / decode_path(add.path)).exists()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.requirements("PART-5")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_timestamp_partitions_are_utc_text_in_every_session_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    micros = [0, -1, 1604217600123456, 1604214000000000, -86400000001]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame([(v,) for v in micros], "v long").selectExpr("v", "timestamp_micros(v) p")
        adds = write(frame, tmp_path, partition_columns=["p"]).adds
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    epoch = dt.datetime(1970, 1, 1)
    expected = {(epoch + dt.timedelta(microseconds=v)).isoformat(timespec="microseconds") + "Z" for v in micros}
    assert {add.partition_values["p"] for add in adds} == expected


def test_partition_columns_are_not_in_the_file(spark: SparkSession, tmp_path: Path) -> None:
    (add,) = write(spark.createDataFrame([(1, "x")], "id long, p string"), tmp_path, partition_columns=["p"]).adds
    assert pq.read_metadata(tmp_path / decode_path(add.path)).schema.names == ["id"]


def test_the_text_that_stands_for_null_is_stored_as_null(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "__HIVE_DEFAULT_PARTITION__")], "id long, p string")
    (add,) = write(frame, tmp_path, partition_columns=["p"]).adds
    assert add.partition_values == {"p": None}


@pytest.mark.requirements("PART-7")
def test_binary_partition_values_are_stored_byte_by_byte(spark: SparkSession, tmp_path: Path) -> None:
    """One character for each byte, whatever the bytes are."""
    values = [b"A1", b"\x00\xff/%", b"a" * 300, b"", None]
    rows = spark.createDataFrame(
        [(n, bytearray(v) if v is not None else None) for n, v in enumerate(values)], "id long, p binary"
    )
    adds = write(rows, tmp_path, partition_columns=["p"]).adds
    assert {add.partition_values["p"] for add in adds} == {"A1", "\x00\xff/%", "a" * 300, None}


LONG_TEXTS = {
    "just short enough": "a" * 253,
    "one byte too long": "a" * 254,
    "of two-byte characters": "é" * 127,
    "escaped, just short enough": "%" * 84,
    "escaped, too long": "%" * 85,
    "of every escaped character": "".join(map(chr, range(1, 33))) * 3 + "\x7f\"#%'*/:=?\\{[]^" * 8,
    "very long": "x y" * 10_000,
    "like a digest": "cm-delta-sha256-" + "0" * 64,
}


@pytest.mark.requirements("PART-1", "LOG-13")
@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS.keys())
def test_a_partition_value_longer_than_a_directory_name_is_stored(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    """The log has the value of each column, whatever the directory is called."""
    rows = [(1, text, "s"), (2, "short", text), (3, None, text + "!"), (4, "", "s")]
    written = write(spark.createDataFrame(rows, "id long, p string, q string"), tmp_path, partition_columns=("p", "q"))
    found = {}
    for add in written.adds:
        path = tmp_path / decode_path(add.path)
        assert all(len(part.encode()) <= 255 for part in path.parts)
        (number,) = pq.ParquetFile(path).read(["id"])["id"].to_pylist()
        found[number] = (add.partition_values["p"], add.partition_values["q"])
    assert found == {1: (text, "s"), 2: ("short", text), 3: (None, text + "!"), 4: (None, "s")}
    assert written.rows_by_partition == dict.fromkeys(found.values(), 1)


def test_long_partition_values_that_change_between_two_looks_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    drawn = F.expr("java_method('java.util.UUID', 'randomUUID')")  # Each time others, where uuid() repeats itself.
    frame = spark.range(3).select("id", F.concat(drawn, F.lit("x" * 300)).alias("p"))
    with pytest.raises(EngineError, match=r"'p'.*255 bytes.*Nothing was committed.*localCheckpoint"):
        write(frame, tmp_path, partition_columns=("p",))
    assert files_below(tmp_path) == []
    assert len(write(frame.localCheckpoint(), tmp_path, partition_columns=("p",)).adds) == 3


def test_a_partition_column_whose_name_fills_a_directory_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("n" * 175, "é" * 88):
        with pytest.raises(InvalidArgumentError, match="255 bytes"):
            write(spark.createDataFrame([(1, "a")], f"id long, `{name}` string"), tmp_path, partition_columns=(name,))
    assert files_below(tmp_path) == []
    frame = spark.createDataFrame([(1, "v" * 100)], f"id long, {'n' * 174} string")
    assert len(write(frame, tmp_path, partition_columns=("n" * 174,)).adds) == 1


@pytest.mark.requirements("SCHEMA-9")
def test_null_in_a_required_column_fails_and_shows_the_row(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is left behind."""
    frame = spark.createDataFrame([(1, "a"), (None, "the bad one")], "id long, s string")
    with pytest.raises(InvalidDataError, match=r"'id' is NOT NULL.*the bad one") as caught:
        write(frame, tmp_path, schema=required(from_spark(frame.schema), "id"))
    assert "\n" not in str(caught.value) and "\tat " not in str(caught.value)
    assert files_below(tmp_path) == []


@pytest.mark.requirements("SCHEMA-9")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("struct<x:int>", "named_struct('x', 1)", "named_struct('x', cast(null as int))"),
        ("array<int>", "array(1)", "array(1, null)"),
        ("map<string,int>", "map('a', 1)", "map('a', cast(null as int))"),
        ("array<struct<x:int>>", "array(named_struct('x', 1))", "array(named_struct('x', cast(null as int)))"),
    ],
)
def test_null_in_a_required_nested_place_fails(
    spark: SparkSession, tmp_path: Path, kind: str, good: str, bad: str
) -> None:
    """Nested fields too; a null list or map breaks nothing, the fields of a null struct are null."""
    schema = from_spark(spark.sql(f"SELECT 1L id, {good} v").schema)
    schema = StructType((schema.fields[0], StructField("v", schema.fields[1].type, True)))
    rows = spark.sql(f"SELECT 1L id, {good} v UNION ALL SELECT 2L, cast(null as {kind})")
    if kind.startswith("struct"):
        with pytest.raises(InvalidDataError, match="or in the struct around it"):
            write(rows, tmp_path, schema=schema)
    else:
        assert write(rows, tmp_path, schema=schema).num_rows == 2
    with pytest.raises(InvalidDataError, match="NOT NULL"):
        write(spark.sql(f"SELECT 1L id, {bad} v"), tmp_path, schema=schema)


@pytest.mark.requirements("DML-7")
def test_a_row_outside_of_the_guard_fails_and_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    """NULL is outside too."""
    guard = Comparison("p", ComparisonOperator.EQ, "a")
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, p string")
    with pytest.raises(PartitionMismatchError, match="p = b"):
        write(frame, tmp_path, partition_columns=["p"], guard=guard)
    with pytest.raises(PartitionMismatchError, match="p = NULL"):
        write(spark.createDataFrame([(1, None)], "id long, p string"), tmp_path, partition_columns=["p"], guard=guard)
    assert files_below(tmp_path) == []
    assert write(frame.where("p = 'a'"), tmp_path, partition_columns=["p"], guard=guard).num_rows == 1


@pytest.mark.requirements("SCHEVO-2", "LOG-15")
def test_columns_are_matched_ignoring_case_cast_and_filled(spark: SparkSession, tmp_path: Path) -> None:
    """Nested fields by name too; columns of the frame that the table lacks are left out."""
    schema = from_spark(spark.createDataFrame([], "id long, s struct<a:long,b:string>, n string, l array<long>").schema)
    frame = spark.sql("SELECT named_struct('B', 'x', 'A', 1) S, cast(7 as short) ID, array(1, null) L, 9 extra")
    (add,) = write(frame, tmp_path, schema=schema).adds
    assert pq.read_table(tmp_path / decode_path(add.path)).to_pylist() == [
        {"id": 7, "s": {"a": 1, "b": "x"}, "n": None, "l": [1, None]}
    ]


@pytest.mark.requirements("PQ-4")
def test_nested_nulls_and_empties_stay_distinct(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(None, [], {}), ((None,), [None], None)], "s struct<a:int>, l array<int>, m map<string,int>"
    ).coalesce(1)
    (add,) = write(frame, tmp_path).adds
    assert pq.read_table(tmp_path / decode_path(add.path)).to_pylist() == [
        {"s": None, "l": [], "m": []},
        {"s": {"a": None}, "l": [None], "m": None},
    ]


def test_a_storage_failure_is_one_line_with_the_root_cause(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where a directory is needed")
    with pytest.raises(StorageError) as caught:
        write(spark.range(1), tmp_path / "blocked" / "table")
    assert "\n" not in str(caught.value) and "java:" not in str(caught.value)


def test_a_failing_function_of_the_user_is_named_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1).select(F.udf(lambda value: 1 // value, "long")("id").alias("id"))
    with pytest.raises(EngineError, match="ZeroDivisionError") as caught:
        write(frame, tmp_path)
    assert "\n" not in str(caught.value)
    assert files_below(tmp_path) == []


def test_only_spark_dataframes_are_accepted() -> None:
    with pytest.raises(InvalidArgumentError, match=r"builtins\.list was given"):
        check_frame([1])
