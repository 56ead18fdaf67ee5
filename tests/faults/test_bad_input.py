"""Input that cannot be written: one clear error of this package, and the table stays as it was."""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.migrate import HEAD, VERSION_TABLE
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CatalogVersionError,
    CmDeltaError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.tables.create import create_table
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.schema import from_spark
from cm_delta_dagster.storage.stores import Stores
from tests.faults.refusals import files_below, refused, state_of
from tests.support.builders import rows_of

NAME = "main.test.orders"
DDL = "id long, name string, day date, place struct<zip:string,city:string>, tags array<string>"
DAY = dt.date(2026, 1, 1)
ROWS = [(1, "a", DAY, ("1", "x"), ["t"]), (2, "b", DAY, None, None)]
SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType(), False),
        T.StructField("name", T.StringType()),
        T.StructField("day", T.DateType()),
        T.StructField(
            "place",
            T.StructType([T.StructField("zip", T.StringType(), False), T.StructField("city", T.StringType())]),
        ),
        T.StructField("tags", T.ArrayType(T.StringType(), False)),
    ]
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaClient]:
    """One for all cases: each of them proves that it changed nothing, so the next one finds the same."""
    root = tmp_path_factory.mktemp("bad-input")
    client = DeltaClient(
        SqlCatalog(f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse"), stores=Stores()
    )
    yield client
    client.close()


@pytest.fixture(scope="module")
def good(spark: SparkSession) -> DataFrame:
    """Rows that fit."""
    return spark.createDataFrame(ROWS, DDL).coalesce(1)


@pytest.fixture(scope="module")
def orders(client: DeltaClient, good: DataFrame) -> Table:
    """Partitioned by day; NOT NULL at the top, in a struct and in an array."""
    table = create_table(client, identifier=NAME, schema=from_spark(SCHEMA), partition_columns=("day",))
    append(table, frame=good)
    return table


@pytest.fixture(scope="module")
def plain(client: DeltaClient, spark: SparkSession) -> Table:
    """Nullable throughout, partitioned by a string."""
    schema = from_spark(spark.createDataFrame([], "id long, p string, v int").schema)
    table = create_table(client, identifier="main.test.plain", schema=schema, partition_columns=("p",))
    append(table, frame=spark.createDataFrame([(1, "a", 1)], "id long, p string, v int").coalesce(1))
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a case works with."""

    spark: SparkSession
    good: DataFrame
    orders: Table
    plain: Table

    def rows(self, *rows: Any, columns: str = DDL) -> DataFrame:
        return self.spark.createDataFrame(list(rows), columns).coalesce(1)

    def some(self, columns: str = "") -> DataFrame:
        """One row for ``plain``, with more columns."""
        return self.spark.sql(f"SELECT 5L id, 'a' p, 1 v{', ' + columns if columns else ''}")


@pytest.fixture
def act(spark: SparkSession, good: DataFrame, orders: Table, plain: Table) -> Act:
    return Act(spark=spark, good=good, orders=orders, plain=plain)


Case = tuple[str, type[CmDeltaError], tuple[str, ...], Callable[[Act], object]]

COLUMNS: list[Case] = [
    (
        "a wrong type",
        SchemaMismatchError,
        (NAME, "'id' is bigint in the table and string", "Cast"),
        lambda act: append(act.orders, frame=act.good.withColumn("id", F.col("name"))),
    ),
    (
        "a type that would have to be narrowed",
        SchemaMismatchError,
        ("main.test.plain", "'v' is int in the table and bigint", "Cast"),
        lambda act: append(act.plain, frame=act.some().withColumn("v", F.lit(1).cast("long"))),
    ),
    (
        "text for a partition column of dates",
        SchemaMismatchError,
        (NAME, "'day' is date in the table and string", "Cast"),
        lambda act: append(act.orders, frame=act.good.withColumn("day", F.lit("yesterday"))),
    ),
    (
        "an unknown column",
        SchemaMismatchError,
        (NAME, "'extra' does not exist", "drop the columns", "schema to be merged"),
        lambda act: append(act.orders, frame=act.good.withColumn("extra", F.lit(1))),
    ),
    (
        "an unknown column in an overwrite",
        SchemaMismatchError,
        (NAME, "'extra' does not exist"),
        lambda act: overwrite(act.orders, frame=act.good.withColumn("extra", F.lit(1)), where="id = 1"),
    ),
    (
        "an unknown column in a merge",
        SchemaMismatchError,
        (NAME, "'extra' does not exist"),
        lambda act: merge(act.orders, frame=act.good.withColumn("extra", F.lit(1)), keys=["id"]),
    ),
    (
        "a required column that is missing",
        SchemaMismatchError,
        (NAME, "'id' is missing", "does not allow null"),
        lambda act: append(act.orders, frame=act.good.drop("id")),
    ),
    (
        "a required nested column that is missing",
        SchemaMismatchError,
        (NAME, "'place.zip' is missing"),
        lambda act: append(act.orders, frame=act.good.withColumn("place", F.struct(F.lit("x").alias("city")))),
    ),
    (
        "a partition column that is missing",
        SchemaMismatchError,
        ("main.test.plain", "partition column 'p'", "Add the column"),
        lambda act: append(act.plain, frame=act.some().drop("p")),
    ),
    (
        "a partition column that is missing in an overwrite",
        SchemaMismatchError,
        ("main.test.plain", "partition column 'p'", "Add the column"),
        lambda act: overwrite(act.plain, frame=act.some().drop("p")),
    ),
    (
        "a partition column that is missing in a new schema",
        SchemaMismatchError,
        ("main.test.plain", "partition column 'p'", "Keep it"),
        lambda act: overwrite(act.plain, frame=act.some().drop("p"), schema_mode=SchemaMode.OVERWRITE),
    ),
    (
        "no columns at all",
        SchemaMismatchError,
        ("main.test.plain", "no columns", "id, p, v"),
        lambda act: append(act.plain, frame=act.some().select()),
    ),
    (
        "two columns that differ in case only",
        SchemaMismatchError,
        ("main.test.plain", "'v' and 'V'", "Rename or drop"),
        lambda act: append(act.plain, frame=act.some("2 V")),
    ),
    (
        "an interval",
        SchemaMismatchError,
        ("main.test.plain", "'i'", "interval", "Cast"),
        lambda act: append(act.plain, frame=act.some("interval 1 day i"), schema_mode=SchemaMode.MERGE),
    ),
    (
        "a variant",
        UnsupportedFeatureError,
        ("main.test.plain", "'x' (variant)", "cast", "nothing was written"),
        lambda act: append(act.plain, frame=act.some("parse_json('1') x"), schema_mode=SchemaMode.MERGE),
    ),
    (
        "a name that Parquet cannot hold",
        SchemaMismatchError,
        ("main.test.plain", "'a b'", "Rename"),
        lambda act: append(act.plain, frame=act.some("1 `a b`"), schema_mode=SchemaMode.MERGE),
    ),
    (
        "a new schema by an append",
        InvalidArgumentError,
        ("main.test.plain", "append", "Use overwrite"),
        lambda act: append(act.plain, frame=act.some(), schema_mode=SchemaMode.OVERWRITE),
    ),
    (
        "a dictionary for a DataFrame",
        InvalidArgumentError,
        (NAME, "DataFrame", "dict", "spark.createDataFrame"),
        lambda act: append(act.orders, frame={"id": 1}),
    ),
    (
        "an Arrow table for a DataFrame",
        InvalidArgumentError,
        (NAME, "pyarrow", "spark.createDataFrame"),
        lambda act: merge(act.orders, frame=act.orders.snapshot().files, keys=["id"]),
    ),
]

VALUES: list[Case] = [
    (
        "NULL in a required column",
        InvalidDataError,
        (NAME, "'id' is NOT NULL", "id = NULL, name = z", "Fill the value or drop the row"),
        lambda act: append(act.orders, frame=act.rows(ROWS[0], (None, "z", DAY, None, None))),
    ),
    (
        "NULL in a required nested column",
        InvalidDataError,
        (NAME, "'place.zip' is NOT NULL", "name = z"),
        lambda act: append(act.orders, frame=act.rows((3, "z", DAY, (None, "x"), None))),
    ),
    (
        "NULL as an element",
        InvalidDataError,
        (NAME, "'tags.element' is NOT NULL", "name = z"),
        lambda act: overwrite(act.orders, frame=act.rows((3, "z", DAY, None, ["t", None]))),
    ),
    (
        "a partition value that no reader could parse",
        InvalidDataError,
        (NAME, "'day'", "+20000-01-01", "Replace the value"),
        lambda act: append(act.orders, frame=act.good.withColumn("day", F.expr("make_date(20000, 1, 1)"))),
    ),
    (
        "the text that stands for NULL as a partition value",
        InvalidDataError,
        ("main.test.plain", "'p'", "__HIVE_DEFAULT_PARTITION__", "Replace that value"),
        lambda act: append(act.plain, frame=act.some().withColumn("p", F.lit("__HIVE_DEFAULT_PARTITION__"))),
    ),
    (
        "a value that cannot be cast",
        InvalidDataError,
        ("main.test.plain", "'x0'", "Correct the rows"),
        lambda act: append(
            act.plain,
            frame=act.spark.range(1).selectExpr("id", "'a' p", "CAST(concat('x', id) AS int) v"),
        ),
    ),
    (
        "rows outside of the slice",
        PartitionMismatchError,
        (NAME, "DATE '2026-02-01'", "day = 2026-01-01", "widen the condition"),
        lambda act: overwrite(act.orders, frame=act.good, where="day = DATE '2026-02-01'"),
    ),
    (
        "rows outside of a slice within files",
        PartitionMismatchError,
        (NAME, "`id` > 1", "id = 1", "widen the condition"),
        lambda act: overwrite(act.orders, frame=act.good, where="id > 1"),
    ),
]

MERGES: list[Case] = [
    (
        "duplicate keys",
        InvalidDataError,
        (NAME, "id = 2", "Make the keys unique"),
        lambda act: merge(act.orders, frame=act.good.union(act.good.where("id = 2")), keys=["id"]),
    ),
    (
        "a key that the rows lack",
        InvalidArgumentError,
        (NAME, "'name' is not in the source", "id, day, place, tags"),
        lambda act: merge(act.orders, frame=act.good.drop("name"), keys=["name"]),
    ),
    (
        "a key that the table lacks",
        InvalidArgumentError,
        (NAME, "'k' is not in the table", "id, name, day, place, tags"),
        lambda act: merge(act.orders, frame=act.good.withColumn("k", F.lit(1)), keys=["k"]),
    ),
    (
        "no keys",
        InvalidArgumentError,
        (NAME, "at least one key column"),
        lambda act: merge(act.orders, frame=act.good, keys=[]),
    ),
    (
        "keys as one text",
        InvalidArgumentError,
        (NAME, "'id'", "list"),
        lambda act: merge(act.orders, frame=act.good, keys="id"),
    ),
    (
        "a NULL key where the table has NOT NULL",
        InvalidDataError,
        (NAME, "'id' is NOT NULL", "name = z"),
        lambda act: merge(act.orders, frame=act.rows(ROWS[0], (None, "z", DAY, None, None)), keys=["id"]),
    ),
    (
        "a row outside of the slice of the merge",
        PartitionMismatchError,
        (NAME, "id = ", "DATE '2027-01-01'", "widen the slice"),
        lambda act: merge(
            act.orders,
            frame=act.good,
            keys=["id"],
            within="day = DATE '2027-01-01'",
            mode=MergeMode.DELETE_UNMATCHED,
        ),
    ),
    (
        "a slice with an unknown function",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: merge(act.orders, frame=act.good, keys=["id"], within="nosuchfunction(id) > 1"),
    ),
]

CONDITIONS: list[Case] = [
    (
        "an unknown column in a condition",
        InvalidArgumentError,
        (NAME, "'nope'", "Use one of its columns"),
        lambda act: delete(act.orders, spark=act.spark, where="nope = 1"),
    ),
    (
        "no SQL",
        InvalidArgumentError,
        (NAME, "'day ===='", "Write only what would follow WHERE"),
        lambda act: delete(act.orders, spark=act.spark, where="day ===="),
    ),
    (
        "an unknown function",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: delete(act.orders, spark=act.spark, where="nosuchfunction(id) > 1"),
    ),
    (
        "an unknown function in the condition of an overwrite",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: overwrite(act.orders, frame=act.good, where="nosuchfunction(id) > 1"),
    ),
    (
        "an unknown function in the condition of a read",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: read(act.orders, spark=act.spark, where="nosuchfunction(id) > 1"),
    ),
    (
        "a condition that fails on a row",
        InvalidDataError,
        (NAME, "'a'", "INT", "Correct"),
        lambda act: delete(act.orders, spark=act.spark, where="CAST(name AS int) = 1"),
    ),
    (
        "a version of the future",
        VersionNotFoundError,
        (NAME, "Version 99", "0 to 1"),
        lambda act: read(act.orders, spark=act.spark, version=99),
    ),
    (
        "a negative version",
        VersionNotFoundError,
        (NAME, "Version -1", "0 to 1"),
        lambda act: read(act.orders, spark=act.spark, version=-1),
    ),
    (
        "a version as text",
        InvalidArgumentError,
        (NAME, "'1'", "whole number"),
        lambda act: read(act.orders, spark=act.spark, version="1"),
    ),
    (
        "a time before the table",
        VersionNotFoundError,
        (NAME, "as of 1 ms", "oldest readable version 0"),
        lambda act: read(act.orders, spark=act.spark, timestamp_ms=1),
    ),
    (
        "a time of the future",
        VersionNotFoundError,
        (NAME, "latest version 1", "Leave the timestamp out"),
        lambda act: read(act.orders, spark=act.spark, timestamp_ms=10**15),
    ),
    (
        "a version and a time",
        InvalidArgumentError,
        (NAME, "not both"),
        lambda act: read(act.orders, spark=act.spark, version=0, timestamp_ms=1),
    ),
    (
        "an unknown column to read",
        InvalidArgumentError,
        (NAME, "'nope'", "id, name, day, place, tags"),
        lambda act: read(act.orders, spark=act.spark, columns=["nope"]),
    ),
    (
        "columns as one text",
        InvalidArgumentError,
        (NAME, "'name'", "list"),
        lambda act: read(act.orders, spark=act.spark, columns="name"),
    ),
]

CREATIONS: list[Case] = [
    (
        "a name that is taken",
        TableAlreadyExistsError,
        ("main.test.plain", "choose another name"),
        lambda act: created(act, "main.test.plain", "SELECT 1 a"),
    ),
    (
        "a name of one part",
        InvalidArgumentError,
        ("'orders'", "catalog.schema.table"),
        lambda act: created(act, "orders", "SELECT 1 a"),
    ),
    (
        "an interval as a column",
        SchemaMismatchError,
        ("'x'", "interval", "Cast"),
        lambda act: created(act, "main.test.new", "SELECT interval 1 day x"),
    ),
    (
        "a variant as a column",
        UnsupportedFeatureError,
        ("main.test.new", "variantType"),
        lambda act: created(act, "main.test.new", "SELECT parse_json('1') x"),
    ),
    (
        "a variant as a partition column",
        InvalidArgumentError,
        ("'x'", "variant", "Partition by"),
        lambda act: created(act, "main.test.new", "SELECT parse_json('1') x, 1 a", "x"),
    ),
    (
        "an array as a partition column",
        InvalidArgumentError,
        ("'x'", "array<int>", "Partition by"),
        lambda act: created(act, "main.test.new", "SELECT array(1) x, 1 a", "x"),
    ),
    (
        "a partition column that is missing",
        InvalidArgumentError,
        ("'x'", "a, b", "Partition by"),
        lambda act: created(act, "main.test.new", "SELECT 1 a, 1 b", "x"),
    ),
    (
        "nothing but partition columns",
        InvalidArgumentError,
        ("partition column", "Keep at least one"),
        lambda act: created(act, "main.test.new", "SELECT 1 a, 1 b", "a", "b"),
    ),
    (
        "columns that differ in case only",
        SchemaMismatchError,
        ("'a' and 'A'", "Rename or drop"),
        lambda act: created(act, "main.test.new", "SELECT 1 a, 1 A"),
    ),
    (
        "an unusable property",
        InvalidArgumentError,
        ("delta.appendOnly", "maybe"),
        lambda act: created(act, "main.test.new", "SELECT 1 a", **{"delta.appendOnly": "maybe"}),
    ),
]


def created(act: Act, name: str, rows: str, *partitions: str, **properties: str) -> object:
    schema = from_spark(act.spark.sql(rows).schema)
    client = act.orders.services
    assert isinstance(client, DeltaClient)
    return create_table(client, identifier=name, schema=schema, partition_columns=partitions, properties=properties)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [pytest.param(*case[1:], id=case[0]) for case in (*COLUMNS, *VALUES, *MERGES, *CONDITIONS)],
)
def test_what_does_not_fit_is_refused_and_the_table_stays(
    act: Act, error: type[CmDeltaError], words: tuple[str, ...], call: Callable[[Act], object]
) -> None:
    """SCHEVO-1, SCHEMA-9, DML-5, DML-7, TT-3: no version, no feed entry, no file more or less."""
    with refused(error, *words, tables=(act.orders, act.plain)):
        call(act)


@pytest.mark.parametrize(("error", "words", "call"), [pytest.param(*case[1:], id=case[0]) for case in CREATIONS])
def test_a_table_that_cannot_be_is_not_made(
    act: Act, client: DeltaClient, error: type[CmDeltaError], words: tuple[str, ...], call: Callable[[Act], object]
) -> None:
    """CM-D5: neither a name nor a file comes into being."""
    warehouse = Path(act.orders.location.removeprefix("file://")).parent
    names, files = client.catalog.list_tables(), files_below(warehouse)
    with refused(error, *words, tables=(act.orders, act.plain)):
        call(act)
    assert (client.catalog.list_tables(), files_below(warehouse)) == (names, files)


def test_the_table_of_all_these_errors_is_read_and_written_as_ever(act: Act) -> None:
    assert rows_of(read(act.orders, spark=act.spark)) == [(1, "a", DAY, ("1", "x"), ["t"]), (2, "b", DAY, None, None)]
    assert act.orders.snapshot().version == 1
    append(act.orders, frame=act.rows((3, "c", DAY, None, [])))
    assert [row[0] for row in rows_of(read(act.orders, spark=act.spark))] == [1, 2, 3]


def test_null_keys_match_nothing_and_are_no_duplicates(client: DeltaClient, spark: SparkSession) -> None:
    """DML-4, DML-5: as SQL has it, NULL equals nothing, so that such rows are inserted."""
    columns = "id long, v int"
    schema = from_spark(spark.createDataFrame([], columns).schema)
    table = create_table(client, identifier="main.test.null_keys", schema=schema)
    append(table, frame=spark.createDataFrame([(None, 1), (1, 1)], columns))
    merge(table, frame=spark.createDataFrame([(None, 7), (None, 8), (1, 9)], columns), keys=["id"])
    assert rows_of(read(table, spark=spark)) == [(None, 1), (None, 7), (None, 8), (1, 9)]


def test_a_dropped_table_takes_no_rows_and_a_new_one_of_its_name_is_another(
    client: DeltaClient, spark: SparkSession
) -> None:
    """CM-D8: a handle is good for one table, not for a name."""
    frame = spark.range(3).coalesce(1)
    stale = create_table(client, identifier="main.test.dropped", schema=from_spark(frame.schema))
    append(stale, frame=frame)
    client.wait_for_background()
    drop_table(client, identifier="main.test.dropped")
    directory = Path(stale.location.removeprefix("file://"))
    before = files_below(directory)
    for call in (
        lambda: append(stale, frame=frame),
        lambda: overwrite(stale, frame=frame),
        lambda: merge(stale, frame=frame, keys=["id"]),
        lambda: delete(stale, spark=spark, where="id = 1"),
        lambda: read(stale, spark=spark),
        lambda: client.table("main.test.dropped"),
    ):
        with refused(TableNotFoundError, "main.test.dropped"):
            call()
    assert files_below(directory) == before

    new = create_table(client, identifier="main.test.dropped", schema=from_spark(frame.schema))
    assert new.location != stale.location
    with refused(TableNotFoundError, "main.test.dropped", tables=(new,)):
        append(stale, frame=frame)
    with refused(TableNotFoundError, "main.test.dropped", tables=(new,)):
        read(stale, spark=spark)
    assert files_below(directory) == before


def test_a_table_dropped_while_rows_are_written_gets_no_version(client: DeltaClient, spark: SparkSession) -> None:
    """CM-D8: the drop happens after the snapshot was taken and before the proposal."""
    schema = from_spark(spark.range(1).schema)
    table = create_table(client, identifier="main.test.meanwhile", schema=schema)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    client.wait_for_background()
    drop_table(client, identifier="main.test.meanwhile")
    before = files_below(Path(table.location.removeprefix("file://")))
    with refused(TableNotFoundError, str(table.table_id)):
        transaction.commit()
    after = files_below(Path(table.location.removeprefix("file://")))
    assert {name for name in after.keys() - before.keys() if "_staged_commits/" not in name} == set()


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:", ""])
def test_a_catalog_url_without_meaning_is_refused_at_once(tmp_path: Path, url: str) -> None:
    with refused(InvalidArgumentError, "catalog", "sqlite"):
        connect(url, warehouse=str(tmp_path / "warehouse"))
    assert files_below(tmp_path) == {}


@pytest.mark.parametrize("kind", ["postgresql", "file in the way", "no rights"])
def test_an_unreachable_catalog_is_named_and_nothing_is_written(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """No table, no file, no password in the message."""
    (tmp_path / "file").write_text("in the way")
    url, words = {
        "postgresql": ("postgresql://me:hunter2@127.0.0.1:1/catalog", ("127.0.0.1", "Check the URL")),
        "file in the way": (f"sqlite:///{tmp_path}/file/catalog.db", ("file/catalog.db", "Check the URL")),
        "no rights": ("sqlite:////proc/no/such/catalog.db", ("/proc/no/such/catalog.db", "Check the URL")),
    }[kind]
    frame = spark.range(1)
    with connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark) as lake:
        for call in (
            lambda: lake.create_table("main.test.t", schema=frame.schema),
            lambda: lake.open_or_create("main.test.t", schema=frame.schema),
            lambda: lake.table("main.test.t").append(frame),
            lambda: lake.tables(),
        ):
            with refused(CatalogUnavailableError, *words, untold=("hunter2",)):
                call()
    assert set(files_below(tmp_path)) == {"file"}


def test_a_catalog_that_goes_away_stops_writes_before_rows_are_written(
    spark: SparkSession, orders: Table, good: DataFrame
) -> None:
    """The table was opened through a catalog whose server is down by now."""
    away = DeltaClient(SqlCatalog("postgresql://me:hunter2@127.0.0.1:1/catalog"), stores=Stores())
    table = Table(
        services=away,
        identifier=orders.identifier,
        table_id=orders.table_id,
        location=orders.location,
        store=orders.store,
    )
    for call in (
        lambda: append(table, frame=good),
        lambda: merge(table, frame=good, keys=["id"]),
        lambda: delete(table, spark=spark, where="id = 1"),
        lambda: read(table, spark=spark),
    ):
        with refused(CatalogUnavailableError, NAME, "127.0.0.1", tables=(orders,), untold=("hunter2",)):
            call()
    away.close()


def test_a_catalog_of_a_newer_release_is_refused_unchanged(
    tmp_path: Path, spark: SparkSession, client: DeltaClient
) -> None:
    """The database says which release made it; an older one keeps its hands off."""
    url, frame = f"sqlite:///{tmp_path}/catalog.db", spark.range(2).coalesce(1)
    with connect(url, warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:
        lake.create_table("main.test.t", schema=frame.schema).append(frame)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)

    def set_revision(revision: str) -> None:
        with engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))

    set_revision("9999")
    files = files_below(tmp_path / "warehouse")
    with connect(url, warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:
        for call in (
            lambda: lake.table("main.test.t").append(frame),
            lambda: lake.create_table("main.test.other", schema=frame.schema),
        ):
            with refused(CatalogVersionError, "9999", "Upgrade the package"):
                call()
    assert files_below(tmp_path / "warehouse") == files
    set_revision(HEAD)
    with connect(url, warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:
        assert lake.tables() == ("main.test.t",)
        assert state_of(lake.table("main.test.t").table)[0] == 1
