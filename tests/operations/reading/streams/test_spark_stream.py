"""A table as a source of Spark Structured Streaming: real queries, checkpoints, restarts and replays."""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from cm_delta_dagster import ChangeHandling, Connection, DeltaTable, Idempotency, SchemaMode, connect
from cm_delta_dagster.arrow.schema import VARIANT_TYPE
from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.errors import EngineError, InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.reading.streams.spark_source import FilePartition, TableStreamReader, file_groups
from cm_delta_dagster.operations.reading.streams.spark_stream import stream, stream_spec
from cm_delta_dagster.operations.reading.streams.state import StreamOptions
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.storage.local_store import LocalStore
from tests.support.foreign import ForeignTable, field
from tests.support.lake import Lake

Sink = Callable[[DataFrame, int], None]


@pytest.fixture
def connection(spark: SparkSession, tmp_path: Path) -> Any:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"), spark=spark) as lake:
        yield lake


def run(frame: DataFrame, sink: Sink, checkpoint: Path) -> None:
    """One query over everything that is there, until it ends by itself or by an error."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(300)
    finally:
        query.stop()


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_arrow(["id"])["id"].to_pylist())


def numbers(lake: Connection, name: str, *groups: range) -> DeltaTable:
    """``main.test.<name>`` with a commit of one file for each group."""
    frames = [lake.spark.range(group.start, group.stop, 1, 1) for group in groups]
    table = lake.create_table_as(f"main.test.{name}", frames[0])
    for frame in frames[1:]:
        table.append(frame)
    return table


class Interrupted(Exception):
    """The consumer dies."""


@pytest.mark.requirements("STREAM-1", "STREAM-3", "STREAM-6", "TXN-4")
@pytest.mark.exhaustive
def test_a_query_that_is_stopped_restarted_and_replayed_copies_each_row_once(
    connection: Connection, tmp_path: Path
) -> None:
    """Killed before the write, after it, and once more with its progress forgotten."""
    source = numbers(connection, "source", range(10), range(10, 20), range(20, 40))
    target = connection.create_table("main.test.target", pa.schema({"id": pa.int64()}))
    checkpoint = tmp_path / "checkpoint"
    batches: list[tuple[int, list[int]]] = []

    def copy(frame: DataFrame, batch: int) -> None:
        batches.append((batch, sorted(row.id for row in frame.collect())))
        if len(batches) == 2:
            raise Interrupted  # Batch 1 is in the write-ahead log, and nothing was written.
        target.append(frame, idempotency=Idempotency(app_id="copy", version=batch))
        if len(batches) == 4:
            raise Interrupted  # Batch 2 is committed, and Spark does not know.

    def started() -> None:
        run(source.stream(max_files=1).to_df(), copy, checkpoint)

    for _ in range(2):
        with pytest.raises(StreamingQueryException):
            started()
    source.append(connection.spark.range(40, 45, 1, 1))
    started()
    assert [batch for batch, _ in batches] == [0, 1, 1, 2, 2, 3]
    assert batches[1][1] == batches[2][1] and batches[3][1] == batches[4][1]
    assert all(len(rows) <= 20 for _, rows in batches)
    assert ids(target) == list(range(45))

    # A crash between the last write and its acknowledgement, found when there is nothing else to do.
    (checkpoint / "commits" / "3").unlink()
    (checkpoint / "commits" / ".3.crc").unlink(missing_ok=True)
    started()
    assert batches[-1] == batches[-2] == (3, list(range(40, 45)))
    assert ids(target) == list(range(45))
    assert json.loads((checkpoint / "offsets" / "3").read_text().splitlines()[-1])["reservoirVersion"] == 4


@pytest.mark.requirements("STREAM-1", "STREAM-6")
@pytest.mark.slow
def test_the_first_batch_is_replayed_from_the_snapshot_that_it_began_with(
    connection: Connection, tmp_path: Path
) -> None:
    """Spark does not remember the start of a query that has not finished a batch."""
    source = numbers(connection, "source", range(3), range(3, 5))
    batches: list[tuple[int, list[int]]] = []

    def fail_once(frame: DataFrame, batch: int) -> None:
        batches.append((batch, sorted(row.id for row in frame.collect())))
        if len(batches) == 1:
            raise Interrupted

    with pytest.raises(StreamingQueryException):
        run(source.stream().to_df(), fail_once, tmp_path / "c")
    source.append(connection.spark.range(100, 101, 1, 1))
    run(source.stream().to_df(), fail_once, tmp_path / "c")
    assert batches == [(0, [0, 1, 2, 3, 4]), (0, [0, 1, 2, 3, 4]), (1, [100])]


@pytest.mark.requirements("STREAM-1", "PART-5")
@pytest.mark.slow
def test_rows_of_every_type_are_those_of_a_read(connection: Connection, tmp_path: Path) -> None:
    """Nullability, nesting, moments in partition values and variants."""
    spark = connection.spark
    frame = spark.sql(
        "SELECT 1 AS n, 'x' AS s, CAST(1.5 AS DECIMAL(10, 2)) AS d, DATE '2024-05-01' AS day, "
        "TIMESTAMP '2024-05-01 12:00:00' AS at, TIMESTAMP_NTZ '2024-05-01 12:00:00' AS local, X'00FF' AS b, "
        "array(1, NULL) AS a, map('k', named_struct('x', 1.5D)) AS m, named_struct('y', CAST(NULL AS STRING)) AS z, "
        "TIMESTAMP '2024-05-02 12:00:00' AS p"
    )
    table = connection.create_table_as("main.test.types", frame, partition_by=["p"])
    streamed = table.stream().to_df()
    assert streamed.isStreaming
    assert streamed.schema == table.to_df().schema
    rows: list[Any] = []
    run(streamed, lambda batch, number: rows.extend(batch.collect()), tmp_path / "c")
    assert rows == table.to_df().collect()
    assert (rows[0].d, rows[0].p.astimezone(dt.UTC).day) == (Decimal("1.50"), 2)

    some: list[Any] = []
    run(
        table.stream(columns=["S", "n"], where="n = 1").to_df(),
        lambda batch, number: some.extend(batch.collect()),
        tmp_path / "d",
    )
    assert [row.asDict() for row in some] == [{"s": "x", "n": 1}]


@pytest.mark.requirements("STREAM-3", "STREAM-5")
@pytest.mark.slow
def test_a_delete_stops_a_query_and_one_that_skips_changes_goes_on(connection: Connection, tmp_path: Path) -> None:
    """With the text of the error, and from the same checkpoint."""
    source = numbers(connection, "source", range(3))
    seen: list[int] = []

    def collect(frame: DataFrame, batch: int) -> None:
        seen.extend(row.id for row in frame.collect())

    run(source.stream().to_df(), collect, tmp_path / "c")
    source.append(connection.spark.range(3, 5, 1, 1))
    source.delete("id = 1")
    source.append(connection.spark.range(5, 6, 1, 1))
    with pytest.raises(StreamingQueryException, match=r"Version 2 of main\.test\.source .*skipChangeCommits"):
        run(source.stream().to_df(), collect, tmp_path / "c")
    assert sorted(seen) == [0, 1, 2, 3, 4]
    run(source.stream(changes=ChangeHandling.SKIP_CHANGE_COMMITS).to_df(), collect, tmp_path / "c")
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]


@pytest.mark.requirements("STREAM-1")
def test_a_table_of_another_writer_is_streamed_by_its_path(connection: Connection, tmp_path: Path) -> None:
    """With a stateful query on top, whose state Spark keeps."""
    path = str(tmp_path / "foreign")
    for number in range(2):
        deltalake.write_deltalake(path, pa.table({"id": pa.array([number, number], pa.int64())}), mode="append")
    table = connection.path_table(path)
    counts = table.stream(starting_version=0, max_files=1).to_df().groupBy("id").count()
    writer = counts.writeStream.format("memory").queryName("counted").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert sorted(tuple(row) for row in connection.spark.table("counted").collect()) == [(0, 2), (1, 2)]


@pytest.mark.requirements("STREAM-1", "DV-1", "UP-VAR-2")
def test_variants_and_deletion_vectors_of_another_writer_are_streamed(connection: Connection, tmp_path: Path) -> None:
    properties = ("deletionVectors", "variantType")
    table = ForeignTable(tmp_path / "t", field("id", "long"), field("v", "variant"), features=properties)
    one = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "v": pa.array([one, None], VARIANT_TYPE)})
    vector = encode_inline(BitMap64([1]))
    descriptor = {"storageType": "i", "pathOrInlineDv": vector.path_or_inline_dv, "sizeInBytes": vector.size_in_bytes}
    table.add("a.parquet", rows, deletionVector={**descriptor, "cardinality": 1})
    table.add("b.parquet", rows)
    found: list[Any] = []

    def collect(frame: DataFrame, batch: int) -> None:
        found.extend(tuple(row) for row in frame.selectExpr("id", "CAST(v AS STRING)").collect())

    run(connection.path_table(str(tmp_path / "t")).stream().to_df(), collect, tmp_path / "c")
    assert sorted(found, key=str) == [(1, "1"), (1, "1"), (2, None)]


# --- without a query --------------------------------------------------------------------------------------------------


def reader_of(table: DeltaTable, **options: Any) -> TableStreamReader:
    """The reader that another process makes of the source."""
    spark = table._connection.spark
    sent = cloudpickle.dumps(stream_spec(table.table, StreamOptions(**{"max_files": None, **options}), spark=spark))
    return TableStreamReader(cloudpickle.loads(sent), table.to_df().schema)


def rows_of(reader: TableStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    found = [batch["id"].to_pylist() for part in reader.partitions(start, end) for batch in reader.read(part)]
    return sorted(number for group in found for number in group)


CASES = [(None, [0, 1, 2, 3, 4]), (1, [3, 4]), ("latest", [])]


@pytest.mark.requirements("STREAM-1", "STREAM-6")
@pytest.mark.parametrize("limit", [ReadAllAvailable(), None], ids=["Spark 4.2", "Spark 4.0"])
@pytest.mark.parametrize(("starting", "expected"), CASES)
def test_a_first_batch_is_the_same_whenever_it_is_run(
    connection: Connection, limit: Any, starting: Any, expected: list[int]
) -> None:
    """Also for a Spark of 4.0 or 4.1, which asks for an end without giving the start."""
    source = numbers(connection, "source", range(3), range(3, 5))
    reader = reader_of(source, starting_version=starting)
    start = reader.initialOffset()
    end = reader.latestOffset() if limit is None else reader.latestOffset(start, limit)
    assert rows_of(reader, start, end) == expected
    source.append(connection.spark.range(9, 10, 1, 1))
    restarted = reader_of(source, starting_version=starting)
    assert rows_of(restarted, restarted.initialOffset(), json.loads(json.dumps(end))) == expected
    later = restarted.latestOffset() if limit is None else restarted.latestOffset(end, limit)
    assert rows_of(restarted, end, later) == [9]
    assert (restarted.latestOffset() if limit is None else restarted.latestOffset(later, limit)) == later
    reader.stop()
    restarted.stop()


@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize(
    ("options", "limit", "expected"),
    [
        ({"max_files": 2}, ReadMaxFiles(2), [[0, 1], [2, 3]]),
        ({"max_bytes": 1}, ReadMaxBytes(1), [[0], [1], [2], [3]]),
        ({"max_files": 3, "max_bytes": 1}, ReadMaxFiles(3), [[0], [1], [2], [3]]),
        ({}, ReadAllAvailable(), [[0, 1, 2, 3]]),
    ],
)
def test_batches_are_bounded_as_was_asked(
    connection: Connection, options: dict[str, int], limit: Any, expected: list[list[int]]
) -> None:
    """And to what was there when a query of all that is available began."""
    source = numbers(connection, "source", *(range(number, number + 1) for number in range(4)))
    reader = reader_of(source, starting_version=0, **options)
    assert reader.getDefaultReadLimit() == limit
    reader.prepareForTriggerAvailableNow()
    source.append(connection.spark.range(9, 10, 1, 1))
    position, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(position, limit)) != position:
        batches.append(rows_of(reader, position, end))
        position = end
    assert batches == expected
    reader.stop()


@pytest.mark.requirements("STREAM-4")
def test_new_columns_stop_a_query_which_has_them_when_it_is_started_again(connection: Connection) -> None:
    """After the rows before them."""
    source = numbers(connection, "source", range(2))
    old = reader_of(source)
    position = old.latestOffset(old.initialOffset(), ReadAllAvailable())
    source.append(connection.spark.range(2, 3, 1, 1))
    wider = connection.spark.sql("SELECT 3L AS id, 'x' AS note").coalesce(1)
    source.append(wider, schema_mode=SchemaMode.MERGE)
    end = old.latestOffset(position, ReadAllAvailable())
    assert rows_of(old, position, end) == [2]
    with pytest.raises(SchemaMismatchError, match=r"Version 2 of main\.test\.source .*Create a new DataFrame"):
        old.latestOffset(end, ReadAllAvailable())
    # A Spark that does not give the start has asked for all of it at once.
    with pytest.raises(SchemaMismatchError, match="lies inside of the batch"):
        old.partitions(position, old.latestOffset())
    new = reader_of(source)
    (part,) = new.partitions(end, new.latestOffset(end, ReadAllAvailable()))
    assert [batch.to_pylist() for batch in new.read(part)] == [[{"id": 3, "note": "x"}]]
    old.stop()
    new.stop()


@pytest.mark.requirements("STREAM-4")
def test_a_query_that_is_started_again_maps_unread_rows_to_renamed_and_widened_columns(connection: Connection) -> None:
    """The one that runs stops before the first change; its checkpoint then leads on, without a row lost or doubled."""
    properties = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    rows = connection.spark.sql("SELECT 0 AS id, 'x' AS note").coalesce(1)
    source = connection.create_table_as("main.test.source", rows, properties=properties)
    old = reader_of(source)
    position = old.latestOffset(old.initialOffset(), ReadAllAvailable())
    source.append(connection.spark.sql("SELECT 1 AS id, 'y' AS note").coalesce(1))
    source.alter.rename_column("note", "text")
    source.alter.change_type("id", "bigint")
    source.append(connection.spark.sql("SELECT 1099511627776L AS id, 'z' AS text").coalesce(1))
    end = old.latestOffset(position, ReadAllAvailable())
    assert rows_of(old, position, end) == [1]
    with pytest.raises(SchemaMismatchError, match=r"Version 2 of main\.test\.source .*'note' was renamed to 'text'"):
        old.latestOffset(end, ReadAllAvailable())
    new = reader_of(source)
    last = new.latestOffset(position, ReadAllAvailable())
    read = [batch.to_pylist() for part in new.partitions(position, last) for batch in new.read(part)]
    assert sorted(row["id"] for batch in read for row in batch) == [1, 2**40]
    assert {row["text"] for batch in read for row in batch} == {"y", "z"}
    old.stop()
    new.stop()


@pytest.mark.requirements("STREAM-1", "PART-5")
def test_a_time_zone_that_python_does_not_know_is_refused_where_it_matters(connection: Connection) -> None:
    frame = connection.spark.sql("SELECT 1L AS id, TIMESTAMP '2024-05-01 12:00:00' AS at")
    table = connection.create_table_as("main.test.times", frame, partition_by=["at"])
    other = connection.create_table_as("main.test.others", frame)
    before = connection.spark.conf.get("spark.sql.session.timeZone")
    connection.spark.conf.set("spark.sql.session.timeZone", "SystemV/PST8PDT")
    try:
        with pytest.raises(InvalidArgumentError, match=r"main\.test\.times.*'SystemV/PST8PDT'"):
            table.stream().to_df()
        assert other.stream().to_df().isStreaming
    finally:
        connection.spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.requirements("STREAM-1")
def test_files_are_given_to_tasks_by_size() -> None:
    """Each file once and in order, however many and however large."""
    for sizes in ([1], [1] * 100, [2**30, 1, 1, 2**27, 5], [2**22] * 40, []):
        files = pa.table({"path": [f"{n}" for n in range(len(sizes))], "size": pa.array(sizes, pa.int64())})
        groups = [FilePartition(group).files for group in file_groups(files)]
        assert [path for group in groups for path in group["path"].to_pylist()] == files["path"].to_pylist()
        assert all(group.num_rows for group in groups)
        assert all(sum(group["size"].to_pylist()[:-1]) < 2**27 for group in groups)
    large = pa.table({"path": ["a"] * 40, "size": pa.array([2**26] * 40, pa.int64())})
    assert 10 <= len(list(file_groups(large))) <= 40


@pytest.mark.requirements("STREAM-5")
def test_a_table_that_no_other_process_can_open_is_refused(lake: Lake, spark: SparkSession) -> None:
    """A store in memory would be an empty one there."""
    with pytest.raises(InvalidArgumentError, match=r"main\.test\.t.*to_batches"):
        stream(lake.new_table(), spark=spark)


@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize(
    "wanted",
    [
        {"columns": ["nope"]},
        {"columns": "id"},
        {"columns": ["id", "ID"]},
        {"options": StreamOptions(max_files=0)},
        {"where": "id % 2 = 0"},
    ],
)
def test_what_means_nothing_is_refused_before_a_query_starts(lake: Lake, spark: SparkSession, wanted: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"main\.test\.t"):
        stream(lake.new_table(), spark=spark, **wanted)


@pytest.mark.requirements("STREAM-1", "UP-INT-1")
def test_a_type_that_spark_does_not_take_from_python_is_refused_before_a_query_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"), field("term", "interval year to month"))
    table.add("a.parquet", pa.table({"id": pa.array([1], pa.int64()), "term": pa.array([14], pa.int32())}))
    with pytest.raises(InvalidArgumentError, match=r"'term' has the type interval year to month.*to_batches"):
        stream(table.open(), spark=spark)
    rows: list[Any] = []
    run(
        stream(table.open(), spark=spark, columns=["id"]),
        lambda batch, number: rows.extend(batch.collect()),
        tmp_path / "c",
    )
    assert [row.id for row in rows] == [1]


class Unopenable(LocalStore):
    """A store that other processes cannot make again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@pytest.mark.requirements("STREAM-5")
def test_a_source_that_the_other_process_cannot_make_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    """As where this package is missing beside the driver."""
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    broken = PathTable(location=str(table.root), store=Unopenable())
    with pytest.raises(
        EngineError, match=r"cannot open .* as a stream .*: ValueError: invalid literal .*to_batches"
    ) as caught:
        stream(broken, spark=spark)
    assert "\n" not in str(caught.value)
