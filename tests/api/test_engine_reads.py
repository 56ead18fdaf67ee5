"""DuckDB and polars through the Python API, without a JVM: names of the catalog in SQL, versions, zones and arguments."""

import datetime as dt
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster import Connection, DeltaTable, DuckDBConnection, InvalidArgumentError, TableIdentifier, connect
from cm_delta_dagster.operations.reading.duckdb import connection as connection_module
from cm_delta_dagster.operations.sql.duckdb_rows import duckdb_rows
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.local_store import local_path
from tests.support.foreign import ForeignTable, field

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as lake:
        yield lake


def append(table: DeltaTable, *ids: int) -> None:
    """A commit of one file, without Spark."""
    place = Path(local_path(table.location)) / f"{uuid.uuid4()}.parquet"
    pq.write_table(pa.table({"id": ids, "region": [f"r{number}" for number in ids]}, schema=SCHEMA), place)
    handle = table.table
    transaction = handle.start_transaction(handle.snapshot(), operation="WRITE")
    stats = f'{{"numRecords":{len(ids)},"minValues":{{"id":{min(ids)}}},"maxValues":{{"id":{max(ids)}}}}}'
    size = place.stat().st_size
    transaction.add_files([AddFile(path=place.name, partition_values={}, size=size, modification_time=1, stats=stats)])
    transaction.commit()


@pytest.fixture
def orders(lake: Connection) -> DeltaTable:
    table = lake.create_table("main.sales.orders", schema=SCHEMA)
    append(table, 1, 2)
    append(table, 3)
    return table


def test_statements_of_duckdb_name_tables_of_the_catalog(lake: Connection, orders: DeltaTable) -> None:
    append(lake.create_table("main.sales.refunds", schema=SCHEMA), 2)
    mine = pa.table({"id": [2, 3], "note": ["two", "three"]})
    with lake.duckdb() as connection:
        sql = """
            select o.id, note, main.sales.orders.region -- main.sales.comment
            from main.sales.orders join main.sales.orders o using (id) join mine using (id)
            where o.id in (select id from "main".sales."refunds") and 'main.sales.orders' <> $$main.sales.orders$$ || '.'
        """
        assert mine.num_rows == 2
        assert connection.sql(sql).fetchall() == [(2, "two", "r2")]
        assert connection.execute('select count(*) from "main.sales.orders" where id > ?', [1]).fetchall() == [(2,)]
        assert connection.table("main.sales.orders").order("id").limit(1).fetchall() == [(1, "r1")]
        connection.execute("create table kept as select * from main.sales.orders")
        assert connection.query(query="from kept").to_arrow_table().num_rows == 3
        assert connection.cursor().execute("select max(id) from main.sales.orders").fetchall() == [(3,)]
        with pytest.raises(duckdb.Error, match=r"main\.sales\.orders"):  # A struct cannot have the name of a table.
            connection.sql("select main.sales.orders from (select {'sales': {'orders': 7}} as main)")


QUALIFIED: dict[str, list[tuple[Any, ...]]] = {
    "select orders.id from main.sales.orders order by orders.id limit 1": [(1,)],
    "select Orders.id, main.sales.orders.region from (select 3 id) x join MAIN.sales.orders on x.id = orders.id": [
        (3, "r3")
    ],
    "from main.sales.orders select orders.id where orders.id = 2": [(2,)],
    "select orders.id, o.id from main.sales.orders left join main.sales.orders o on o.id = orders.id + 1 where orders.id = 3": [
        (3, None)
    ],
    "select main.sales.orders.id from main.sales.orders, (select 2 id) x where x.id = main.sales.orders.id": [(2,)],
    "select main.sales.orders.id, main.old.orders.id from main.sales.orders join main.old.orders on true where "
    "main.sales.orders.id = 1": [(1, 7)],
    "with orders as (select 9 id) select orders.id, main.sales.orders.id from orders join main.sales.orders on true "
    "order by 2 limit 1": [(9, 1)],
    "select count(*) from main.sales.orders positional join main.old.orders": [(3,)],
    "select count(*) from main.sales.orders tablesample 100%": [(3,)],
    "select o.id from main.sales.orders as o order by all limit 1": [(1,)],
    "select id from main.sales.orders where exists (select 1 from main.old.orders o where o.id = orders.id + 6)": [
        (1,)
    ],
}


@pytest.mark.parametrize("text", QUALIFIED)
def test_the_last_part_of_a_name_qualifies_columns(lake: Connection, orders: DeltaTable, text: str) -> None:
    append(lake.create_table("main.old.orders", schema=SCHEMA), 7)
    assert lake.duckdb().sql(text).fetchall() == QUALIFIED[text]


def test_each_statement_reads_the_latest_versions_and_loads_no_other_table(
    lake: Connection, orders: DeltaTable
) -> None:
    for number in range(5):
        lake.create_table(f"main.other.t{number}", schema=SCHEMA)
    other = lake.table("main.other.t0").table.table_id
    lake.client.forget(other)
    connection = lake.duckdb()
    query = "select count(*), max(id) from main.sales.orders"
    assert connection.sql(query).fetchall() == [(3, 3)]
    relation = orders.scan().duckdb(connection)
    append(orders, 4)
    assert connection.sql(query).fetchall() == [(4, 4)]
    assert len(relation.fetchall()) == 3
    assert lake.client.cached_snapshot(other) is None
    with pytest.raises(duckdb.CatalogException, match="nosuch"):
        connection.sql("select * from main.sales.nosuch")
    for text in ("select * from main.sales.ordrs", 'select count(*) from main.sales.orders o, "main.sales.ordrs" x'):
        for run in (connection.sql, connection.execute, connection.cursor().sql):
            with pytest.raises(
                duckdb.CatalogException,
                match=r"no table main\.sales\.ordrs, and DuckDB has.*Did you mean main\.sales\.orders\?",
            ):
                run(text)
    with pytest.raises(duckdb.CatalogException, match="nofunction"):
        connection.sql("select nofunction(id) from main.sales.orders")
    with pytest.raises(duckdb.ParserException):
        connection.sql("selec 'x")
    connection.close()


@pytest.mark.requirements("LOG-19")
def test_the_tables_of_a_statement_have_versions_that_existed_together(lake: Connection, orders: DeltaTable) -> None:
    """A writer commits to one table after the other; in the connection and for the command line."""
    names = ("main.sales.first", "main.sales.second")
    first, second = (lake.create_table(name, schema=SCHEMA) for name in names)
    query = f"select (select count(*) from {names[0]}) as a, (select count(*) from {names[1]}) as b"

    def write() -> None:
        for number in range(8):
            append(first, number)
            append(second, number)

    seen = []
    with ThreadPoolExecutor(1) as threads, lake.duckdb() as connection:
        writing = threads.submit(write)
        while not writing.done():
            relation = connection.sql(query)
            assert relation is not None
            seen += relation.fetchall()
            (row,) = duckdb_rows(lake.client, query, limit=1).to_pylist()
            seen.append((row["a"], row["b"]))
        writing.result()
    assert seen and {a - b for a, b in seen} <= {0, 1}
    assert duckdb_rows(lake.client, query, limit=1).to_pylist() == [{"a": 8, "b": 8}]


@pytest.mark.requirements("LOG-19")
def test_a_relation_that_is_fetched_later_reads_the_versions_of_its_statement(
    lake: Connection, orders: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after later statements, in what is derived from it, and while its versions are kept."""
    monkeypatch.setattr(connection_module, "_KEPT_VERSIONS", 3)
    refunds = lake.create_table("main.sales.refunds", schema=SCHEMA)
    with lake.duckdb() as connection:
        both = connection.sql(
            "select (select count(*) from main.sales.orders), (select count(*) from main.sales.refunds)"
        )
        rows = connection.sql("select id from main.sales.orders")
        assert both is not None and rows is not None
        for number in (4, 5):
            append(orders, number)
            append(refunds, number)
            assert connection.execute("select count(*) from main.sales.orders").fetchall() == [(number,)]
        assert both.fetchall() == [(3, 0)]
        assert rows.filter("id > 1").order("id").fetchall() == [(2,), (3,)]
        append(orders, 6)
        assert connection.execute("select count(*) from main.sales.orders").fetchall() == [(6,)]
        with pytest.raises(duckdb.CatalogException, match=r"main\.sales\.orders@v2"):
            rows.filter("id > 2").fetchall()


def test_a_rollback_of_duckdb_brings_no_older_version_back(lake: Connection, orders: DeltaTable) -> None:
    refunds = lake.create_table("main.sales.refunds", schema=SCHEMA)
    count = "select count(*) from main.sales.{}"
    with lake.duckdb() as connection:
        connection.execute("begin")
        assert connection.execute(count.format("orders")).fetchall() == [(3,)]
        append(orders, 4)
        assert connection.execute(count.format("orders")).fetchall() == [(4,)]
        assert connection.execute(count.format("refunds")).fetchall() == [(0,)]
        connection.execute("rollback")
        assert connection.execute(count.format("orders")).fetchall() == [(4,)]
        assert connection.execute(count.format("refunds")).fetchall() == [(0,)]
        assert connection.connection.sql('select count(*) from "main.sales.orders"').fetchall() == [(4,)]
        connection.connection.execute('drop view "main.sales.orders"')
        assert connection.execute(count.format("orders")).fetchall() == [(4,)]
        append(refunds, 1)
        assert connection.execute(count.format("refunds")).fetchall() == [(1,)]


def test_names_of_dropped_and_renamed_tables_are_unknown_to_duckdb(lake: Connection, orders: DeltaTable) -> None:
    quoted = 'select count(*) from "main.sales.orders"'
    with lake.duckdb() as connection:
        assert connection.execute(quoted).fetchall() == [(3,)]
        lake.rename("main.sales.orders", "main.sales.bookings")
        with pytest.raises(duckdb.CatalogException, match="orders"):
            connection.execute(quoted)
        assert connection.execute(quoted.replace("orders", "bookings")).fetchall() == [(3,)]


@pytest.mark.parametrize(
    "text", ["select {}", "explain select {}", "explain analyze select {}", "PREPARE p AS select {}"]
)
def test_statements_around_a_query_find_tables_in_any_case(lake: Connection, orders: DeltaTable, text: str) -> None:
    with lake.duckdb() as connection:
        rows = connection.execute(
            text.format("count(*) from MAIN.Sales.orders where id = 3 -- main.sales.x")
        ).fetchall()
        if text.startswith("PREPARE"):
            rows = connection.execute("execute p").fetchall()
        assert rows == [(1,)] or "explain" in text


def test_an_error_of_the_catalog_or_the_store_is_not_a_missing_table(lake: Connection, orders: DeltaTable) -> None:
    def refuse(names: Iterable[TableIdentifier]) -> Any:
        raise InvalidArgumentError("'endpoint' is no storage option. Did you mean 'endpoint_url'?")

    with pytest.raises(InvalidArgumentError, match="Did you mean"), DuckDBConnection(None, refuse) as connection:
        connection.sql("select * from main.sales.orders")


def test_a_connection_of_the_user_is_kept(lake: Connection, orders: DeltaTable) -> None:
    with duckdb.connect() as mine:
        mine.execute("create table small (id bigint)")
        mine.execute("insert into small values (2)")
        both = lake.duckdb(mine)
        assert both.connection is mine
        assert both.sql("select region from main.sales.orders join small using (id)").fetchall() == [("r2",)]
        assert mine.sql('select count(*) from "main.sales.orders"').fetchall() == [(3,)]
    assert orders.scan(where="id > 1", columns=["id"]).duckdb().order("id").fetchall() == [(2,), (3,)]


def test_polars_reads_a_version_with_columns_and_conditions(orders: DeltaTable) -> None:
    frame = orders.scan(version=1).lazy()
    assert frame.filter(pl.col("id") > 1).select("region").collect().rows() == [("r2",)]
    assert orders.to_polars(["id"], where="id <> 2").rows() == [(1,), (3,)]
    assert orders.scan(["id"]).dataset().to_table().num_rows == 3
    before = orders.scan().lazy()
    append(orders, 9)
    assert before.select(pl.len()).collect().item() == 3


@pytest.mark.requirements("PART-5")
def test_the_time_zone_applies_to_partition_values_and_conditions(lake: Connection, tmp_path: Path) -> None:
    foreign = ForeignTable(tmp_path / "foreign", field("id", "long"), field("at", "timestamp"), partitions=["at"])
    foreign.add("a.parquet", pa.table({"id": [1]}), values={"at": "2024-07-01 12:00:00"})
    table = lake.path_table(str(tmp_path / "foreign"))
    berlin = dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    assert table.to_polars(time_zone="Europe/Berlin")["at"].to_list() == [berlin]
    where = "at = TIMESTAMP '2024-07-01 12:00:00'"
    assert table.scan(where=where, time_zone="Europe/Berlin").dataset().to_table()["at"].to_pylist() == [berlin]
    relation = table.scan(time_zone="Europe/Berlin").duckdb().filter("\"at\" = '2024-07-01 10:00:00Z'::TIMESTAMPTZ")
    assert relation.select("id").fetchall() == [(1,)]
