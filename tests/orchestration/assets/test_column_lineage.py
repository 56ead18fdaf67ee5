"""Column lineage of materializations: from which columns of upstream assets each column of an output is computed."""

from collections.abc import Mapping, Sequence

import dagster as dg
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.assets.column_lineage import column_lineage, remember_input
from tests.orchestration.conftest import RunningSpark, World

ORDERS, PEOPLE = ["s", "orders"], ["s", "people"]


@dg.asset(key=ORDERS)
def orders(spark: RunningSpark) -> DataFrame:
    return spark.spark_session.createDataFrame([(1, "acme", 2.0)], "id int, who string, amount double").coalesce(1)


@dg.asset(key=PEOPLE, metadata={"table_properties": {"delta.columnMapping.mode": "name"}})
def people(spark: RunningSpark) -> DataFrame:
    return spark.spark_session.createDataFrame([("acme", "NL")], "who string, country string").coalesce(1)


def same(text):  # noqa: ANN001, ANN201 - Spark warns of annotations that it cannot use.
    return text


def select(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.select("who", "id")


def rename(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.withColumnRenamed("amount", "Price").drop("id")


def expression(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.selectExpr("amount * id AS total", "upper(who) AS name", "1 AS one", "current_date() AS day")


def join(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.join(people, "who", "full").select("who", "country", "amount")


def semi_join(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.join(people, "who", "left_semi").where("amount > 0").orderBy("id").limit(5)


def aggregate(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.groupBy("who").agg(F.sum("amount").alias("total"), F.count("*").alias("n"))


def rollup(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.rollup("who").agg(F.max("id").alias("last"))


def union(orders: DataFrame, people: DataFrame) -> DataFrame:
    doubled = orders.select("who", (F.col("amount") * 2).alias("value"), F.lit(1).alias("k"))
    return doubled.union(people.select("who", F.length("country"), F.length("who")))


def union_of_itself(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.select("id", "id").toDF("a", "b").union(orders.select("id", "amount"))


def window(orders: DataFrame, people: DataFrame) -> DataFrame:
    rank = F.rank().over(Window.partitionBy("who").orderBy("amount"))
    return orders.select("id", rank.alias("place"))


def self_join(orders: DataFrame, people: DataFrame) -> DataFrame:
    other = orders.select(F.col("id").alias("other"), F.col("amount").alias("theirs"))
    return orders.join(other, F.col("id") == F.col("other")).select(
        "id", "other", (F.col("theirs") - F.col("amount")).alias("d")
    )


def udf(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.select(F.udf(same, "string")("who").alias("name"), "id")


def explode(orders: DataFrame, people: DataFrame) -> DataFrame:
    return orders.select("id", F.explode(F.split("who", "c")).alias("part"))


def query(orders: DataFrame, people: DataFrame) -> DataFrame:
    orders.createOrReplaceTempView("lineage_orders")
    text = "WITH big AS (SELECT id, amount * 2 AS twice FROM lineage_orders) SELECT a.id, b.twice FROM big a JOIN big b USING (id)"
    return orders.sparkSession.sql(text)


def rows_by_function(orders: DataFrame, people: DataFrame) -> DataFrame:
    """What a function does with whole rows is not known; neither is where rows come from that were collected."""
    mapped = orders.mapInPandas(lambda parts: parts, "id int, who string, amount double")
    return people.join(mapped.select("who", "id"), "who").select("country", "id")


def collected(orders: DataFrame, people: DataFrame) -> DataFrame:
    session = orders.sparkSession
    again = session.createDataFrame([tuple(row) for row in orders.collect()], orders.schema)
    return again.join(people, "who").select(again["who"], F.concat("country", again["who"]).alias("text"), "country")


def subquery(orders: DataFrame, people: DataFrame) -> DataFrame:
    orders.createOrReplaceTempView("lineage_orders")
    return orders.sparkSession.sql("SELECT id, (SELECT max(amount) FROM lineage_orders) AS top FROM lineage_orders")


ID, WHO, AMOUNT = ("s/orders", "id"), ("s/orders", "who"), ("s/orders", "amount")
COUNTRY, PERSON = ("s/people", "country"), ("s/people", "who")

CASES = {
    select: {"who": [WHO], "id": [ID]},
    rename: {"who": [WHO], "Price": [AMOUNT]},
    expression: {"total": [AMOUNT, ID], "name": [WHO]},
    join: {"who": [WHO, PERSON], "country": [COUNTRY], "amount": [AMOUNT]},
    semi_join: {"id": [ID], "who": [WHO], "amount": [AMOUNT]},
    aggregate: {"who": [WHO], "total": [AMOUNT]},
    rollup: {"who": [WHO], "last": [ID]},
    union: {"who": [WHO, PERSON], "value": [AMOUNT, COUNTRY], "k": [PERSON]},
    union_of_itself: {"a": [ID], "b": [AMOUNT, ID]},
    window: {"id": [ID], "place": [AMOUNT, WHO]},
    self_join: {"id": [ID], "other": [ID], "d": [AMOUNT]},
    udf: {"name": [WHO], "id": [ID]},
    explode: {"id": [ID], "part": [WHO]},
    query: {"id": [ID], "twice": [AMOUNT]},
    rows_by_function: {"country": [COUNTRY]},
    collected: {"country": [COUNTRY]},
    subquery: {"id": [ID]},
}


def lineage_of(event: dg.AssetMaterialization) -> dict[str, list[tuple[str, str]]]:
    return texts(event.metadata["dagster/column_lineage"].value.deps_by_column)


def texts(found: Mapping[str, Sequence[dg.TableColumnDep]]) -> dict[str, list[tuple[str, str]]]:
    return {
        name: [(item.asset_key.to_user_string(), item.column_name) for item in columns]
        for name, columns in found.items()
    }


class Step:
    """Stands for Dagster's context of a step, of which only the identity counts."""


def test_the_columns_of_an_output_lead_to_columns_of_its_inputs(world: World) -> None:
    """Only plans are made, and no rows are computed."""
    world.materialize(orders, people)
    step, frames = Step(), []
    for key in (ORDERS, PEOPLE):
        frames.append(read(open_scan(world.client.table(f"main.s.{key[-1]}")), spark=world.spark))
        remember_input(dg.build_input_context(asset_key=dg.AssetKey(key)), step, frames[-1])
    for case, expected in CASES.items():
        found = column_lineage(step, case(*frames))
        lowered = {name.lower(): columns for name, columns in expected.items()}
        assert (case.__name__, texts(found)) == (case.__name__, lowered)


def test_a_materialization_has_the_lineage_of_its_columns(world: World) -> None:
    inputs = {"orders": dg.AssetIn(ORDERS), "people": dg.AssetIn(PEOPLE)}
    assets = [dg.asset(case, key=["s", case.__name__], ins=inputs) for case in (rename, join)]
    world.materialize(orders, people, *assets)
    for case in (rename, join):
        assert lineage_of(world.events(f"s/{case.__name__}")[-1]) == CASES[case]


def test_lineage_is_left_out_where_it_is_not_certain(world: World) -> None:
    """Without inputs, by clauses of a merge, and if it is switched off."""
    clauses = [{"when": "not_matched", "then": "insert"}]

    @dg.asset(
        key=["s", "merged"],
        ins={"orders": dg.AssetIn(ORDERS)},
        metadata={"mode": "merge", "on": ["id"], "merge_clauses": clauses},
    )
    def merged(orders: DataFrame) -> DataFrame:
        return orders

    @dg.asset(key=["s", "copied"], ins={"orders": dg.AssetIn(ORDERS)})
    def copied(orders: DataFrame) -> DataFrame:
        return orders

    world.materialize(orders)
    world.materialize(orders, merged, selection=[merged])
    manager = CatalogManagedDeltaIOManager(catalog=world.catalog, spark=RunningSpark(), column_lineage=False)
    world.resources["io_manager"] = manager
    world.materialize(orders, copied, selection=[copied])
    for key in ("s/orders", "s/merged", "s/copied"):
        assert "dagster/column_lineage" not in world.events(key)[-1].metadata


def test_files_with_deleted_rows_have_lineage_and_changes_have_none(world: World) -> None:
    """Files with deletion vectors are read by another plan; changes partly from rows that are no file."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}

    @dg.asset(key=ORDERS, metadata={"mode": "append", "table_properties": properties})
    def logged() -> DataFrame:
        return world.frame([(1, "acme", 2.0), (2, "blue", 3.0)], "id int, who string, amount double")

    @dg.asset(key=["s", "changed"], ins={"changes": dg.AssetIn(ORDERS, metadata={"changes": True})})
    def changed(changes: DataFrame) -> DataFrame:
        return changes.select("id", F.col("_change_type").alias("kind"))

    @dg.asset(key=["s", "kept"], ins={"rows": dg.AssetIn(ORDERS, metadata={"columns": "id,amount"})})
    def kept(rows: DataFrame) -> DataFrame:
        return rows

    world.materialize(logged)
    delete(world.client.table("main.s.orders"), spark=world.spark, where="id = 1")
    world.materialize(logged, changed, kept, selection=[changed, kept])
    assert "dagster/column_lineage" not in world.events("s/changed")[-1].metadata
    assert lineage_of(world.events("s/kept")[-1]) == {"id": [ID], "amount": [AMOUNT]}
