"""Which files DuckDB opens for a statement of ``lake.duckdb()``, and that the answers do not depend on it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.errors import ObjectNotFoundError
from cm_delta_dagster.operations.reading.duckdb import connection as connection_module
from cm_delta_dagster.operations.reading.duckdb import views
from cm_delta_dagster.storage.local_store import local_path
from tests.api.test_engine_reads import SCHEMA, append

FILES = 6


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as lake:
        yield lake


@pytest.fixture
def orders(lake: Connection) -> DeltaTable:
    """Six files with ten ids each."""
    table = lake.create_table("main.sales.orders", schema=SCHEMA)
    for number in range(FILES):
        append(table, *range(number * 10, number * 10 + 10))
    return table


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements are parsed for tables of any number of files."""
    monkeypatch.setattr(connection_module, "_PARSED_FROM_FILES", 0)


def remove_files(table: DeltaTable, *, but: int) -> None:
    """Remove the data files of all but one commit."""
    for row in table.scan().files().to_pylist():
        if f'"minValues":{{"id":{but * 10}}}' not in row["stats"]:
            (Path(local_path(table.location)) / row["path"]).unlink()


SELECTIVE = (
    "select id from main.sales.orders where id between 33 and 34",
    "select o.id from main.sales.orders o where o.id in (33, 34) and length(region) > 1",
    "from main.sales.orders select orders.id where main.sales.orders.id = 33 or orders.id = 30 + 4",
    "select id from main.sales.orders where id >= 33 and id < 35 union all select id from main.sales.orders where id = 99",
    "with few as (select * from main.sales.orders where id > 32 and id < 36) select id from few where id < 35",
    "select a.id from MAIN.sales.orders a join main.sales.orders b on a.id = b.id and b.id >= 33 "
    "where a.id in (33, 34) and b.id < 39",
)  # fmt: skip


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("text", SELECTIVE)
def test_a_condition_of_a_statement_selects_the_files(
    lake: Connection, orders: DeltaTable, parsed: None, text: str
) -> None:
    remove_files(orders, but=3)
    connection = lake.duckdb()
    for run in (connection.execute, connection.sql, connection.query):
        rows = run(text)
        assert rows is not None
        assert sorted(rows.fetchall()) == [(33,), (34,)]
    with pytest.raises(Exception, match="is gone"):
        connection.execute("select count(region) from main.sales.orders where id % 2 = 1").fetchall()


STATEMENTS = (
    "select count(*), sum(id) from main.sales.orders",
    "select x.k, o.id from main.sales.x x left join main.sales.orders o on o.id = x.k and o.id > 20 order by all",
    "select x.k, o.id from main.sales.x x left join main.sales.orders o on o.id = x.k where o.id is null order by all",
    "select x.k from main.sales.x x anti join main.sales.orders o on o.id = x.k and o.id < 20 order by all",
    "select o.id, x.k from main.sales.orders o full join main.sales.x x on o.id = x.k and o.id > 55 "
    "where o.id is null or o.id > 57 order by all",
    "select region, count(*) from main.sales.orders where id not in (1, 2) and not (id between 5 and 55) group by all order by all",
    "select id + 100 as id from main.sales.orders where id = 5",
    "select id, (select max(id) from main.sales.orders i where i.id < o.id) from main.sales.orders o "
    "where id in (0, 1, 59) order by all",
    "select max(id) over () from main.sales.orders where id < 12 limit 1",
    "select count(*) from main.sales.orders o join main.sales.orders p using (id) where id > 49",
    "select id from main.sales.orders where region = 'r7' or region like 'r5_'",
    "select count(*) from main.sales.orders where region = 'R7'",
    "select count(*) from main.sales.orders where id > 10 and id < 5",
)  # fmt: skip


@pytest.mark.parametrize("text", STATEMENTS)
def test_answers_are_those_of_tables_in_memory(lake: Connection, orders: DeltaTable, parsed: None, text: str) -> None:
    schema = pa.schema([("k", pa.int64())])
    other = lake.create_table("main.sales.x", schema=schema)
    other.append(pa.table({"k": [3, 33, 77, None]}, schema=schema))
    with duckdb.connect() as memory:
        for name, table in (("orders", orders), ("x", other)):
            memory.register(f"m_{name}", table.to_arrow())
        for collation in ("", "NOCASE"):
            expected_text = text.replace("main.sales.orders", "m_orders").replace("main.sales.x", "m_x")
            with lake.duckdb() as connection:
                for engine in (memory, connection):
                    engine.execute(f"SET default_collation = '{collation}'").fetchall()
                expected = memory.execute(expected_text).fetchall()
                assert sorted(map(str, connection.execute(text).fetchall())) == sorted(map(str, expected))
                rows = connection.sql(text)
                assert rows is not None
                assert sorted(map(str, rows.fetchall())) == sorted(map(str, expected))


def is_native(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether DuckDB reads the files of the newest view itself."""
    query = "select sql from duckdb_views() where view_name like '%@v%' order by view_oid desc limit 1"
    ((text,),) = connection.from_query(query).fetchall()
    return "read_parquet" in text


def test_what_may_be_filtered_later_of_many_files_is_a_dataset(
    lake: Connection, orders: DeltaTable, parsed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST_LATE_FILES", 3)
    text = "select count(*) from main.sales.orders where id > {}"
    with lake.duckdb() as connection:
        for value, counted, by_sql, by_execute in (
            ("5", 54, False, True),
            ("40", 19, True, True),
            ("?", 54, None, False),
        ):
            if by_sql is not None:
                rows = connection.sql(text.format(value))
                assert rows is not None and rows.fetchall() == [(counted,)]
                assert is_native(connection.connection) is by_sql
            parameters = [[5]] if value == "?" else []
            assert connection.execute(text.format(value), *parameters).fetchall() == [(counted,)]
            assert is_native(connection.connection) is by_execute


def test_a_relation_of_selected_files_is_fetched_after_other_statements(
    lake: Connection, orders: DeltaTable, parsed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_KEPT_SELECTIONS", 2)
    text = "select id from main.sales.orders where id = {}"
    with lake.duckdb() as connection:
        first = connection.sql(text.format(11))
        second = connection.sql(text.format(22))
        assert first is not None and second is not None
        append(orders, 11)
        assert connection.execute(text.format(11)).fetchall() == [(11,), (11,)]
        assert first.fetchall() == [(11,)]
        assert second.filter("id > 20").fetchall() == [(22,)]
        for number in (1, 2, 3):
            assert connection.execute(text.format(number)).fetchall() == [(number,)]
        assert second.filter("id > 21").fetchall() == [(22,)]  # Of the former version.


def test_a_lost_file_is_an_error_of_this_package(lake: Connection, orders: DeltaTable) -> None:
    with lake.duckdb() as connection:
        text = "select sum(id) from main.sales.orders"
        assert connection.execute(text).fetchall() == [(1770,)]
        later = connection.sql(text)
        assert later is not None
        remove_files(orders, but=3)
        for run in (connection.execute, connection.sql):
            with pytest.raises(ObjectNotFoundError, match=r"data file file:.*\.parquet is gone"):
                run(text)
        with pytest.raises(Exception, match=r"\.parquet"):
            later.fetchall()


def test_cursors_read_in_several_threads(lake: Connection, orders: DeltaTable, parsed: None) -> None:
    with lake.duckdb() as connection, ThreadPoolExecutor(4) as threads:

        def count(number: int) -> int:
            cursor = connection.cursor()
            row = cursor.execute(f"select count(*) from main.sales.orders where id >= {number}").fetchall()
            return int(row[0][0])

        assert list(threads.map(count, range(0, 60, 5))) == [60 - number for number in range(0, 60, 5)]
