"""``Connection.sql``: tables of the catalog in queries of Spark SQL."""

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    NamespaceNotFoundError,
    TableNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.actions.actions import CommitInfo
from cm_delta_dagster.protocol.actions.commit_json import encode_commit
from cm_delta_dagster.protocol.log.log_files import staged_commit_file_name, staged_commits_directory
from tests.support.actions import add_file

ORDERS = "main.sales.orders"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """Orders 0 to 2 in version 1, 3 and 4 added by version 2; refunds of 1 and 9; another table named orders."""
    root = tmp_path_factory.mktemp("sql")
    with connect(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/warehouse", spark=spark) as connection:
        columns = "cast(id as int) order_id", "id * 10 amount", "named_struct('city', concat('c', id)) place"
        orders = spark.range(3).selectExpr(*columns)
        table = connection.create_table(ORDERS, orders.schema, description="what was ordered")
        table.append(orders.coalesce(1))
        table.append(spark.range(3, 5).selectExpr(*columns).coalesce(1))
        refunds = spark.createDataFrame([(1, "late"), (9, "lost")], "order_id int, why string")
        connection.create_table_as("main.sales.refunds", refunds.coalesce(1), partition_by=["why"])
        connection.create_table_as("main.old.orders", spark.range(1).selectExpr("cast(1 as int) order_id").coalesce(1))
        yield connection


def rows(lake: Connection, text: str, args: Any = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.sql(text, args).collect())


QUERIES: dict[str, list[tuple[Any, ...]]] = {
    "select order_id, why from main.sales.orders o join main.sales.refunds r using (order_id)": [(1, "late")],
    "select orders.order_id, main.sales.orders.place.city, sales.orders.amount from main.sales.orders where amount = 40": [
        (4, "c4", 40)
    ],
    "select count(*) from main.sales.orders version as of 1": [(3,)],
    "select count(*), sum(o.amount) from main.sales.orders for system_version as of '1' o where o.amount > 0": [
        (2, 30)
    ],
    "select n.order_id from main.sales.orders n left anti join main.sales.orders version as of 1 v using (order_id)": [
        (3,),
        (4,),
    ],
    "with orders as (select 7 x), c as (select x from orders) select c.x, orders.x from c, orders": [(7, 7)],
    "with c as (with d as (select * from main.sales.orders) select order_id from d) select max(order_id) from c": [
        (4,)
    ],
    "select main.old.orders.order_id, main.sales.orders.amount from main.old.orders join main.sales.orders "
    "on main.old.orders.order_id = main.sales.orders.order_id": [(1, 10)],
    "select order_id from main.sales.orders o where exists (select 1 from main.sales.refunds r where r.order_id = o.order_id)": [
        (1,)
    ],
    "select order_id from main.sales.orders union select order_id from main.sales.refunds except table main.old.orders": [
        (0,),
        (2,),
        (3,),
        (4,),
        (9,),
    ],
    "from main.sales.orders |> where order_id = 2 |> select '{main.sales.orders}' as t": [("{main.sales.orders}",)],
    "select order_id, e from main.sales.orders o lateral view explode(array(1, 2)) t as e where order_id = 0": [
        (0, 1),
        (0, 2),
    ],
    "select * from (select order_id, amount from main.sales.orders) pivot (sum(amount) for order_id in (1, 2))": [
        (10, 20)
    ],
    "select /*+ broadcast(refunds) */ why from MAIN.Sales.`orders` join main.sales.refunds using (order_id)": [
        ("late",)
    ],
    "select count(*) from main.sales.orders tablesample (100 percent)": [(5,)],
    "select extract(year from date '2026-01-02'), 1 is distinct from order_id from main.old.orders;": [(2026, False)],
    "values (1), (2)": [(1,), (2,)],
}


@pytest.mark.parametrize("text", QUERIES)
def test_queries_name_tables_of_the_catalog(lake: Connection, text: str) -> None:
    assert rows(lake, text) == QUERIES[text]


def test_a_time_is_any_expression_that_spark_computes(lake: Connection) -> None:
    first = lake.table(ORDERS).snapshot(version=1).timestamp_ms
    text = f"select count(*) from main.sales.orders timestamp as of timestamp_millis({first}) + interval 0 hours o"
    assert rows(lake, text) == [(3,)]
    text = "select count(*) from main.sales.orders for system_time as of timestamp_millis(:at)"
    assert rows(lake, text, {"at": first}) == [(3,)]
    with pytest.raises(VersionNotFoundError, match="as of 2000-01-01"):
        lake.sql("select * from main.sales.orders timestamp as of '2000-01-01 12:00:00'")


def enable_change_data_feed(lake: Connection, name: str) -> None:
    """Commit version 1 as a writer that supports the feature does, with one row whose id is 7."""
    table = lake.table(name).table
    snapshot = table.snapshot()
    path = Path(table.location.removeprefix("file://")) / "changed.parquet"
    pq.write_table(pa.table({"id": [7]}), path)
    features = snapshot.protocol.writer_features or ()
    protocol = replace(snapshot.protocol, writer_features=(*features, "changeDataFeed"))
    configuration = {**snapshot.metadata.configuration, "delta.enableChangeDataFeed": "true"}
    metadata = replace(snapshot.metadata, configuration=configuration)
    moment, txn_id = snapshot.timestamp_ms + 1000, str(uuid.uuid4())
    info = CommitInfo(in_commit_timestamp=moment, timestamp=moment, txn_id=txn_id, operation="WRITE")
    data = encode_commit([info, protocol, metadata, add_file(path.name, size=path.stat().st_size)])
    file_name = staged_commit_file_name(1, str(uuid.uuid4()))
    table.store.write(f"{staged_commits_directory(table.location)}/{file_name}", data)
    proposal = CommitProposal(
        version=1,
        file_name=file_name,
        file_size=len(data),
        file_modification_time=moment,
        metadata=metadata,
        protocol=protocol,
        summary=CommitSummary(txn_id=txn_id, in_commit_timestamp=moment, operation="WRITE", data_change=True),
    )
    lake.client.coordinator.commit(table.table_id, proposal)


def test_changes_are_a_table(lake: Connection, spark: SparkSession) -> None:
    lake.create_table("main.feed.t", spark.range(1).schema)
    enable_change_data_feed(lake, "main.feed.t")
    query = "select id, _change_type, _commit_version from table_changes('main.feed.t', {}) c where c.id > :least"
    for bounds in ("1", "1, 1", ":first", "1, 1 + 0"):
        assert rows(lake, query.format(bounds), {"least": 0, "first": 1}) == [(7, "insert", 1)]
    moment = lake.table("main.feed.t").snapshot().timestamp_ms
    assert rows(lake, query.format(f"timestamp_millis({moment})"), {"least": 0}) == [(7, "insert", 1)]
    with pytest.raises(VersionNotFoundError, match="from version 9 on"):
        lake.sql(query.format("9"), {"least": 0})
    lake.drop("main.feed.t")


def test_parameters_have_values(lake: Connection) -> None:
    text = "select order_id from main.sales.orders where amount > :least"
    assert rows(lake, text, {"least": 35}) == [(4,)]
    assert rows(lake, text.replace(":least", "?"), [35]) == [(4,)]
    assert rows(lake, "select count(*) from identifier(:name) version as of 1", {"name": ORDERS}) == [(3,)]
    text = "select count(*) from main.sales.orders timestamp as of :day o"
    with pytest.raises(VersionNotFoundError):
        lake.sql(text, {"day": "2020-01-01"})
    with pytest.raises(InvalidArgumentError, match="args is of type str"):
        lake.sql("select ?", "x")  # type: ignore[arg-type]  # A wrong type on purpose.
    with pytest.raises(InvalidArgumentError, match="The value of the parameter least is of type object"):
        lake.sql(f"select * from {ORDERS} where amount > :least", {"least": object()})


def test_views_of_the_session_are_found_and_none_is_left(lake: Connection, spark: SparkSession) -> None:
    spark.range(2).createOrReplaceTempView("numbers")
    before = {view.name for view in spark.catalog.listTables()}
    try:
        assert rows(lake, "select id, why from numbers join main.sales.refunds on id = order_id") == [(1, "late")]
        assert [row.col_name for row in lake.sql("describe numbers").collect()] == ["id"]
        with pytest.raises(TableNotFoundError, match="Did you mean numbers"):
            lake.sql("select * from number")
        with pytest.raises(CmDeltaError):
            lake.sql("select nothing from main.sales.orders")
        for name in ("numbers", "c"):
            with pytest.raises(InvalidArgumentError, match=f"{name} has no versions"):
                lake.sql(f"with c as (select 1) select * from {name} version as of 1")
        assert {view.name for view in spark.catalog.listTables()} == before
        frame = lake.sql("select count(*) from main.sales.orders")
        assert frame.collect() == frame.collect()
    finally:
        spark.catalog.dropTempView("numbers")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "select * from main.sales.order",
            TableNotFoundError,
            r"no table main.sales.order, .*mean main\.sales\.orders",
        ),
        (
            "select * from orders",
            TableNotFoundError,
            r"catalog\.schema\.table.*main\.old\.orders or main\.sales\.orders",
        ),
        (
            "select * from sales.orders",
            TableNotFoundError,
            r"named catalog\.schema\.table. Did you mean main\.sales\.orders",
        ),
        ("select nothing from main.sales.orders", InvalidArgumentError, "nothing"),
        (
            "select * from main.sales.orders\nwhere where x y",
            InvalidArgumentError,
            r"line 2, column \d+.*where where x y",
        ),
        ("select * from main.sales.orders version as of 7", VersionNotFoundError, "Version 7"),
        ("select * from main.sales.orders timestamp as of null", InvalidArgumentError, "is NULL"),
        ("select * from table_changes('main.sales.none', 1)", TableNotFoundError, "main.sales.none"),
        ("select * from table_changes('main.sales.orders', 1, 2)", InvalidArgumentError, "main.sales.orders"),
        (
            "select * from table_changes('main.sales.orders', 0.5)",
            InvalidArgumentError,
            r"decimal\(1,1\).*whole number",
        ),
        ("create view v as select 1", InvalidArgumentError, "createOrReplaceTempView"),
        ("describe main.sales.order", TableNotFoundError, r"no table main\.sales\.order, .*mean main\.sales\.orders"),
        ("describe extended main.sales.order", TableNotFoundError, r"mean main\.sales\.orders"),
        ("describe order", TableNotFoundError, r"no table order, .*catalog\.schema\.table"),
        ("show tables in main.slaes", InvalidArgumentError, r"no schema main\.slaes\. Did you mean main\.sales "),
        ("show schemas in other", NamespaceNotFoundError, "There is no catalog other; names are case-sensitive"),
        ("show partitions main.sales.refunds", InvalidArgumentError, "SELECT DISTINCT"),
        ("select * from main.sales.orders@v1", InvalidArgumentError, "needs VERSION AS OF .* at line 1, column 32"),
        ("describe history orders", TableNotFoundError, "main.sales.orders"),
        ("show functions", InvalidArgumentError, "TABLES, SCHEMAS"),
    ],
)
def test_errors_say_what_to_do(lake: Connection, text: str, kind: type[CmDeltaError], message: str) -> None:
    with pytest.raises(kind, match=re.compile(message, re.DOTALL)) as caught:
        lake.sql(text)
    assert "_pyspark_" not in str(caught.value)


def test_names_that_differ_in_case_are_ambiguous(lake: Connection, spark: SparkSession) -> None:
    for name in ("main.case.t", "main.case.T"):
        lake.create_table(name, spark.range(1).schema)
    assert rows(lake, "select * from main.case.T") == []
    with pytest.raises(InvalidArgumentError, match=r"ambiguous: main\.case\.T, main\.case\.t"):
        lake.sql("select * from Main.case.t")
    for name in ("main.case.t", "main.case.T"):
        lake.drop(name)


def test_tables_are_described(lake: Connection) -> None:
    columns = [tuple(row) for row in lake.sql("describe main.sales.refunds").collect()]
    assert columns[:3] == [("order_id", "int", None), ("why", "string", None), ("# Partition Information", "", "")]
    extended = {row.col_name: row.data_type for row in lake.sql("describe extended main.sales.orders").collect()}
    assert (extended["Name"], extended["Provider"], extended["Version"]) == (ORDERS, "delta", "2")
    assert "Owner" not in extended, "the creator stated no name"
    lake.access.set_owner(ORDERS, "ana")
    shown = lake.sql("describe extended main.sales.orders").collect()
    assert ("Owner", "ana") in [(row.col_name, row.data_type) for row in shown]
    (detail,) = lake.sql("describe detail main.sales.orders").collect()
    assert detail.owner == "ana"
    assert (detail.name, detail.numFiles, detail.partitionColumns, detail.description) == (
        ORDERS,
        2,
        [],
        "what was ordered",
    )
    assert "catalogManaged" in detail.tableFeatures
    history = lake.sql("desc history main.sales.orders limit 2").collect()
    assert [(row.version, row.operation) for row in history] == [(2, "WRITE"), (1, "WRITE")]
    assert history[0].timestamp == detail.lastModified


def test_clustering_columns_are_described(lake: Connection) -> None:
    lake.sql(
        "create table main.feed.c (a int comment 'the a', s struct<`x-y`: string, z: int>) cluster by (s.`x-y`, a)"
    )
    (detail,) = lake.sql("describe detail main.feed.c").collect()
    assert (detail.partitionColumns, detail.clusteringColumns) == ([], ["s.`x-y`", "a"])
    (other,) = lake.sql("describe detail main.sales.refunds").collect()
    assert (other.partitionColumns, other.clusteringColumns) == (["why"], [])
    section = [
        ("# Clustering Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("s.`x-y`", "string", None),
        ("a", "int", "the a"),
    ]
    assert [tuple(row) for row in lake.sql("describe main.feed.c").collect()][2:] == section
    assert [tuple(row) for row in lake.sql("describe extended main.feed.c").collect()][2:6] == section
    lake.drop("main.feed.c")
    assert rows(lake, "show tables in main.feed") == []


def test_names_columns_and_properties_are_shown(lake: Connection) -> None:
    assert rows(lake, "show tables in main.sales like 'ref*|x'") == [("main.sales", "refunds", False)]
    assert [row.tableName for row in lake.sql("show tables").collect()] == ["orders", "orders", "refunds"]
    assert {("main.old",), ("main.sales",)} <= set(rows(lake, "show schemas in main"))
    assert rows(lake, "show schemas in main like 'o*|sal*'") == [("main.old",), ("main.sales",)]
    assert rows(lake, "show catalogs") == [("main",)]
    assert rows(lake, "show columns in main.sales.refunds") == [("order_id",), ("why",)]
    properties = dict(rows(lake, "show tblproperties main.sales.orders"))  # type: ignore[arg-type]  # Each row has two values.
    key = next(iter(properties))
    assert rows(lake, f"show tblproperties main.sales.orders ('{key}')") == [(key, properties[key])]
    ((statement,),) = rows(lake, "show create table main.sales.refunds")
    assert statement.startswith("CREATE TABLE main.sales.refunds (\n  `order_id` INT,\n  `why` STRING)\nUSING delta")
    assert "PARTITIONED BY (`why`)" in statement


def test_a_query_over_two_tables_reads_one_state(lake: Connection, spark: SparkSession) -> None:
    """A writer appends to the first table, then to the second one: the first one is never behind."""
    first, second = (lake.create_table(f"main.both.{name}", spark.range(1).schema) for name in ("a", "b"))
    one = spark.range(1).coalesce(1)

    def write() -> None:
        for _ in range(3):
            first.append(one)
            second.append(one)

    text = "select (select count(*) from main.both.a) - (select count(*) from main.both.b)"
    seen = set()
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        while not writing.done():
            seen |= set(rows(lake, text))
        writing.result()
    assert seen <= {(0,), (1,)}
    for table in (first, second):
        lake.drop(table.name)


def test_duckdb_keeps_a_relation_while_a_spark_session_runs(lake: Connection) -> None:
    """The time zone of the session is looked up for each statement, and is the same one."""
    with lake.duckdb() as connection:
        relation = connection.sql("select count(*) from main.sales.orders")
        for _ in range(40):
            connection.execute("select count(*) from main.sales.orders").fetchall()
        assert relation is not None and len(relation.fetchall()) == 1
