"""DuckDB reads and writes tables of the catalog through the server, by its extension for Unity Catalog."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.server.settings import ServerSettings
from tests.differential.other_readers import duckdb_answers
from tests.support.cached_folders import or_skip
from tests.support.live_server import LiveServer, live_server
from tests.support.peer_environments import peer_environment
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.peers]

EXTENSIONS = ("httpfs", "delta", "unity_catalog")


@pytest.fixture(scope="module", autouse=True)
def duckdb() -> None:
    or_skip(peer_environment, "duckdb")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        yield live


@pytest.fixture
def lake(server: LiveServer, spark: SparkSession) -> Iterator[Connection]:
    """A connection of this package to the same database."""
    connection = connect(server.settings.catalog, warehouse=server.settings.warehouse, spark=spark)
    yield connection
    connection.close()


def answers(server: LiveServer, *statements: str) -> list[Any]:
    """What DuckDB answers to each statement, with the catalog ``main`` as ``lake``."""
    attach = (
        f"CREATE SECRET (TYPE unity_catalog, TOKEN '{server.token_for('duck')}', ENDPOINT '{server.url}', AWS_REGION 'x')",
        "ATTACH 'main' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 's')",
    )
    result = duckdb_answers(*attach, *statements, extensions=EXTENSIONS)
    assert result[:2] == [[{"Success": True}], []]
    return result[2:]


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.orderBy("id").collect()]


CASES = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "column_mapping": {"delta.columnMapping.mode": "name"},
    "row_tracking": {"delta.enableRowTracking": "true"},
}


@pytest.mark.client("DuckDB", "list", "read", by="server")
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_duckdb_lists_and_reads_tables_of_each_kind(
    server: LiveServer, lake: Connection, spark: SparkSession, mode: str
) -> None:
    expected = {}
    for name, properties in CASES.items():
        rows = spark.range(8).selectExpr("id", "concat('v', id) AS v", "id % 2 AS p")
        partitions = [] if name == "column_mapping" else ["p"]
        table = lake.create_table(f"main.s.{name}", rows.schema, partitions, properties=properties)
        lake.settings.set_commit_mode(f"main.s.{name}", mode)
        table.append(rows)
        table.delete("id IN (2, 5)")
        if name == "column_mapping":
            table.alter.rename_column("v", "V w")
        expected[name] = rows_of(table.to_df())
    names, *read = answers(
        server, "SHOW TABLES FROM lake.s", *(f"SELECT * FROM lake.s.{name} ORDER BY id" for name in CASES)
    )
    assert {table["name"] for table in names} == set(CASES)
    assert dict(zip(CASES, read, strict=True)) == expected


@pytest.mark.client("DuckDB", "INSERT", by="server")
def test_duckdb_inserts_rows_that_this_package_reads_and_the_server_publishes(
    server: LiveServer, lake: Connection, spark: SparkSession
) -> None:
    table = lake.create_table("main.s.t", spark.sql("SELECT 1L AS id, nullif('', '') AS v").schema)
    table.append(spark.sql("SELECT 1L AS id, 'ours' AS v"))
    inserted, counted, rest = answers(
        server,
        "INSERT INTO lake.s.t VALUES (2, 'theirs'), (3, NULL)",
        "SELECT count(*) AS n FROM lake.s.t",
        "INSERT INTO lake.s.t SELECT id + 10, v FROM lake.s.t",
    )
    assert (inserted, counted, rest) == ([{"Count": 2}], [{"n": 3}], [{"Count": 3}])
    assert [row["id"] for row in rows_of(lake.table("main.s.t").to_df())] == [1, 2, 3, 11, 12, 13]
    registry = lake.client.registry
    entry = lake.client.registry.load_table(TableIdentifier.parse("main.s.t"))
    until(lambda: registry.load_table_by_id(entry.table_id).ratified.published_version == 3)
    log = Path(entry.location.removeprefix("file://")) / "_delta_log"
    assert all((log / f"{version:020d}.json").exists() for version in range(4))
    feed = lake.client.feed.feed(after=0, limit=100)
    assert [entry.principal for entry in feed if entry.version in (2, 3)] == ["duck", "duck"]
    table.append(spark.sql("SELECT 20L AS id, 'after' AS v"))
    (total,) = answers(server, "SELECT max(id) AS m, count(*) AS n FROM lake.s.t")
    assert total == [{"m": 20, "n": 7}]


@pytest.mark.client("DuckDB", "INSERT", by="server", refuses="tables in the commit mode `put_if_absent`")
def test_a_table_in_put_if_absent_mode_is_read_and_its_insert_names_the_mode(
    server: LiveServer, lake: Connection, spark: SparkSession
) -> None:
    table = lake.create_table("main.s.t", spark.range(0).schema)
    lake.settings.set_commit_mode("main.s.t", "put_if_absent")
    table.append(spark.range(3))
    refused, read = answers(server, "INSERT INTO lake.s.t VALUES (7)", "SELECT count(*) AS n FROM lake.s.t")
    assert "put_if_absent" in refused and read == [{"n": 3}]


@pytest.mark.client("DuckDB", "read a version", by="path")
def test_duckdb_reads_by_path_up_to_a_version_of_the_catalog(
    server: LiveServer, lake: Connection, spark: SparkSession
) -> None:
    table = lake.create_table("main.s.t", spark.range(0).schema)
    table.append(spark.range(3))
    answers(server, "INSERT INTO lake.s.t VALUES (7)")
    entry = lake.client.registry.load_table(TableIdentifier.parse("main.s.t"))
    until(lambda: lake.client.registry.load_table_by_id(entry.table_id).ratified.published_version == 2)
    place = entry.location.removeprefix("file://")
    statements = [
        statement
        for version in range(3)
        for statement in (
            f"ATTACH '{place}' AS v{version} (TYPE delta, MAX_CATALOG_VERSION {version})",
            f"SELECT count(*) AS n FROM v{version}",
        )
    ]
    counts = duckdb_answers(*statements, extensions=("delta",))[1::2]
    assert counts == [[{"n": 0}], [{"n": 3}], [{"n": 4}]]


@pytest.mark.client("DuckDB", "read", by="server", refuses="partition columns of tables with column mapping are NULL")
def test_duckdb_shows_nulls_for_the_partition_columns_of_a_table_with_column_mapping(
    server: LiveServer, lake: Connection, spark: SparkSession
) -> None:
    """An error of DuckDB 1.5.5 and not of the server: it shows the same by path. The page about other engines warns of it."""
    rows = spark.range(2).selectExpr("id", "id % 2 AS p")
    table = lake.create_table("main.s.t", rows.schema, ["p"], properties={"delta.columnMapping.mode": "name"})
    table.append(rows)
    table.maintenance.publish()
    place = table.location.removeprefix("file://")
    attach = f"ATTACH '{place}' AS by_path (TYPE delta, MAX_CATALOG_VERSION 1)"
    by_name, _, by_path = answers(
        server, "SELECT * FROM lake.s.t ORDER BY id", attach, "SELECT * FROM by_path ORDER BY id"
    )
    assert by_name == by_path == [{"id": 0, "p": None}, {"id": 1, "p": None}]


PAGE = Path(__file__).parents[2] / "docs" / "other-engines.md"


def test_the_statements_of_the_page_work(server: LiveServer, lake: Connection, spark: SparkSession) -> None:
    by_name, by_path = re.findall(r"```sql\n(.*?)```", PAGE.read_text().partition("## Sail")[0], re.DOTALL)
    rows = spark.sql("SELECT * FROM VALUES (1L, 'first'), (2L, 'second') AS t(id, v)")
    table = lake.create_table("main.sales.orders", rows.schema)
    table.append(rows)
    text = by_name.replace("<token>", server.token_for("duck")).replace("http://127.0.0.1:8181", server.url)
    statements = [statement.strip() for statement in text.split(";") if statement.strip()]
    *_, read, inserted, counted = duckdb_answers(*statements, extensions=EXTENSIONS)
    assert [row["id"] for row in read] == [1, 2] and (inserted, counted) == ([{"Count": 1}], [{"n": 3}])
    lake.table("main.sales.orders").maintenance.publish()
    text = by_path.replace("<location of the table>", table.location.removeprefix("file://"))
    statements = [statement.strip() for statement in text.split(";") if statement.strip()]
    assert duckdb_answers(*statements)[-1] == [{"n": 3}]
