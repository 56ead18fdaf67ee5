"""Invalid input raises one error of this package, and the table stays unchanged."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.migrate import HEAD, VERSION_TABLE
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogNotFoundError,
    CatalogUnavailableError,
    CatalogVersionError,
    CmDeltaError,
    InvalidArgumentError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.storage.stores import Stores
from tests.faults.bad_input_cases import COLUMNS, CONDITIONS, CREATIONS, DAY, DDL, MERGES, NAME, ROWS, VALUES, Act
from tests.faults.refusals import files_below, refused, state_of
from tests.support.builders import rows_of
from tests.support.creation import create_table

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
    """One client for all cases, because each case checks that it changed nothing."""
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


@pytest.fixture
def act(spark: SparkSession, good: DataFrame, orders: Table, plain: Table) -> Act:
    return Act(spark=spark, good=good, orders=orders, plain=plain)


@pytest.mark.requirements("SCHEVO-1", "SCHEMA-9", "DML-5", "DML-7", "TT-3")
@pytest.mark.parametrize(
    ("error", "words", "call"),
    [pytest.param(*case[1:], id=case[0]) for case in (*COLUMNS, *VALUES, *MERGES, *CONDITIONS)],
)
def test_invalid_input_is_refused_and_the_table_stays_unchanged(
    act: Act, error: type[CmDeltaError], words: tuple[str, ...], call: Callable[[Act], object]
) -> None:
    """Versions, feed and files stay the same."""
    with refused(error, *words, tables=(act.orders, act.plain)):
        call(act)


@pytest.mark.requirements("CM-D5")
@pytest.mark.parametrize(("error", "words", "call"), [pytest.param(*case[1:], id=case[0]) for case in CREATIONS])
def test_a_table_with_an_invalid_definition_is_not_created(
    act: Act, client: DeltaClient, error: type[CmDeltaError], words: tuple[str, ...], call: Callable[[Act], object]
) -> None:
    """Neither a name nor a file is created."""
    warehouse = Path(act.orders.location.removeprefix("file://")).parent
    names, files = client.registry.list_tables(), files_below(warehouse)
    with refused(error, *words, tables=(act.orders, act.plain)):
        call(act)
    assert (client.registry.list_tables(), files_below(warehouse)) == (names, files)


def test_the_table_can_be_read_and_written_after_all_errors(act: Act) -> None:
    assert rows_of(read(open_scan(act.orders), spark=act.spark)) == [
        (1, "a", DAY, ("1", "x"), ["t"]),
        (2, "b", DAY, ("1", "x"), None),
    ]
    assert act.orders.snapshot().version == 1
    append(act.orders, frame=act.rows((3, "c", DAY, ("2", None), [])))
    assert [row[0] for row in rows_of(read(open_scan(act.orders), spark=act.spark))] == [1, 2, 3]


@pytest.mark.requirements("DML-4", "DML-5")
def test_null_keys_match_nothing_and_are_not_duplicates(client: DeltaClient, spark: SparkSession) -> None:
    """As in SQL, NULL equals nothing, so that such rows are inserted."""
    columns = "id long, v int"
    schema = from_spark(spark.createDataFrame([], columns).schema)
    table = create_table(client, identifier="main.test.null_keys", schema=schema)
    append(table, frame=spark.createDataFrame([(None, 1), (1, 1)], columns))
    merge(table, frame=spark.createDataFrame([(None, 7), (None, 8), (1, 9)], columns), keys=["id"])
    assert rows_of(read(open_scan(table), spark=spark)) == [(None, 1), (None, 7), (None, 8), (1, 9)]


@pytest.mark.requirements("CM-D8")
def test_a_handle_to_a_dropped_table_does_not_write_to_a_new_table_of_its_name(
    client: DeltaClient, spark: SparkSession
) -> None:
    """A handle belongs to a table and not to a name."""
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
        lambda: read(open_scan(stale), spark=spark),
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
        read(open_scan(stale), spark=spark)
    assert files_below(directory) == before


@pytest.mark.requirements("CM-D8")
def test_a_table_dropped_during_a_write_gets_no_version(client: DeltaClient, spark: SparkSession) -> None:
    """The drop happens after the snapshot was taken and before the proposal."""
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
def test_an_invalid_catalog_url_is_refused_by_connect(tmp_path: Path, url: str) -> None:
    with refused(InvalidArgumentError, "catalog", "sqlite"):
        connect(url, warehouse=str(tmp_path / "warehouse"))
    assert files_below(tmp_path) == {}


@pytest.mark.parametrize("kind", ["postgresql", "file in the way", "no directory"])
def test_an_unreachable_catalog_is_an_error_and_nothing_is_written(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    """No table, no file, no password in the message."""
    (tmp_path / "file").write_text("in the way")
    url, words = {
        "postgresql": ("postgresql://me:hunter2@127.0.0.1:1/catalog", ("127.0.0.1", "Check the URL")),
        "file in the way": (f"sqlite:///{tmp_path}/file/catalog.db", ("file/catalog.db", "Check the URL")),
        "no directory": ("sqlite:////proc/no/such/catalog.db", ("/proc/no/such/catalog.db", "Check the URL")),
    }[kind]
    frame = spark.range(1)
    with connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark) as lake:
        for call in (
            lambda: lake.create_table("main.test.t", schema=frame.schema),
            lambda: lake.open_or_create("main.test.t", schema=frame.schema),
            lambda: lake.table("main.test.t").append(frame),
            lambda: lake.tables(),
        ):
            error = CatalogNotFoundError if kind == "no directory" else CatalogUnavailableError
            with refused(error, *words, hidden=("hunter2",)):
                call()
    assert set(files_below(tmp_path)) == {"file"}


def test_without_the_catalog_writes_stop_before_rows_are_written(
    spark: SparkSession, orders: Table, good: DataFrame
) -> None:
    """The table was opened before the server of the catalog stopped."""
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
        lambda: read(open_scan(table), spark=spark),
    ):
        with refused(CatalogUnavailableError, NAME, "127.0.0.1", tables=(orders,), hidden=("hunter2",)):
            call()
    away.close()


def test_a_catalog_of_a_newer_release_is_refused_and_stays_unchanged(
    tmp_path: Path, spark: SparkSession, client: DeltaClient
) -> None:
    """The database records its schema version; an older release does not change it."""
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
