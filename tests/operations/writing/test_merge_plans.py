"""How Spark carries out a merge: which rows it shuffles."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.writing import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.protocol.statistics import file_forecast
from cm_delta_dagster.spark.session.session import temporary_settings
from tests.support.builders import TableBuilder

Exchanges = list[list[str]]

NO_CHOICE = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1"}
"""Spark broadcasts only what it is asked to, however small a table is."""


def _executions(spark: SparkSession) -> tuple[Any, frozenset[int]]:
    """The store of the plans, and the ids of the executions that it still has: a limited number."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
    store = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    return store, frozenset(found.apply(place).executionId() for place in range(found.size()))


def key_shuffles(spark: SparkSession, work: Callable[[], object]) -> Exchanges:
    """For each execution of Spark that ``work`` starts: its shuffles by the column ``id``, as the plan that ran has them."""
    _, before = _executions(spark)
    work()
    store, after = _executions(spark)
    found: Exchanges = []
    for execution in sorted(after - before):
        nodes = store.planGraph(execution).allNodes()
        descriptions = [nodes.apply(number).desc() for number in range(nodes.size())]
        shuffles = [text for text in descriptions if text.startswith("Exchange hashpartitioning(")]
        found.append([text for text in shuffles if "(id#" in text or "[id#" in text])
    return found


@pytest.mark.requirements("DML-4")
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize(("small_source", "most"), [(100_000, 0), (0, 1)])
def test_a_merge_shuffles_the_keys_of_the_table_at_most_once(
    client: DeltaClient,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    small_source: int,
    most: int,
    vectors: str,
) -> None:
    """Not at all with a small source. A shuffle by the key in a plan is one of the table and one of the source."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", small_source)
    builder = TableBuilder(client, spark, "id long, v string")
    builder = builder.with_properties({"delta.enableDeletionVectors": vectors})
    for part in range(2):
        builder.append(*[(number, f"v{number}") for number in range(part * 50, part * 50 + 50)])
    source = builder.frame((7, "a"), (60, "b"), (200, "c"))
    with temporary_settings(spark, NO_CHOICE):
        shuffles = key_shuffles(spark, _merge(builder, source).execute)
    assert len(shuffles) >= 2
    assert all(len(each) <= 2 * most for each in shuffles), shuffles
    assert (sum(map(len, shuffles)) > 0) == bool(most)
    assert sorted(builder.rows())[7] == (7, "a")


def _merge(builder: TableBuilder, source: DataFrame) -> MergeBuilder:
    change = RowChange(source=source, on="t.id = s.id", source_alias="s", target_alias="t")
    return MergeBuilder(builder.table, change=change).when_matched_update_all().when_not_matched_insert_all()


def _scans(spark: SparkSession, work: Callable[[], object]) -> list[int]:
    """For each execution of Spark that ``work`` starts: how many times it scans Parquet files."""
    _, before = _executions(spark)
    work()
    store, after = _executions(spark)
    plans = [store.planGraph(execution).allNodes() for execution in sorted(after - before)]
    return [
        sum(nodes.apply(number).name().startswith("Scan parquet") for number in range(nodes.size())) for nodes in plans
    ]


@pytest.mark.parametrize(("threshold", "shuffles"), [("1", [0, 2]), ("-1", [2, 2])])
def test_keys_that_spark_would_not_broadcast_by_default_are_broadcast(
    client: DeltaClient, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, threshold: str, shuffles: list[int]
) -> None:
    """While rows are looked for that change, only keys are read. Where the session turns broadcasts off, there is none."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", 0)
    builder = TableBuilder(client, spark, "id long, v string")
    builder.append(*[(number, f"v{number}") for number in range(100)])
    source = builder.frame((7, "a"), (60, "b"), (200, "c"))
    name = "spark.sql.autoBroadcastJoinThreshold"
    spark.conf.set(name, threshold)
    try:
        found = key_shuffles(spark, _merge(builder, source).execute)
        assert spark.conf.get(name) == threshold
    finally:
        spark.conf.unset(name)
    assert [len(each) for each in found][-2:] == shuffles


@pytest.mark.requirements("DML-4")
@pytest.mark.parametrize(("ids", "scans"), [((7, 60), [1, 1]), ((7, 60, 200), [1, 2])])
def test_a_merge_looks_for_rows_to_insert_only_if_some_have_no_partner(
    client: DeltaClient, spark: SparkSession, ids: tuple[int, ...], scans: list[int]
) -> None:
    """One scan finds the rows that change, one writes them, and a further one finds the rows that are inserted."""
    builder = TableBuilder(client, spark, "id long, v string")
    builder = builder.with_properties({"delta.enableDeletionVectors": "false"})
    builder.append(*[(number, f"v{number}") for number in range(100)])
    source = builder.frame(*[(number, "new") for number in ids])
    found = _scans(spark, _merge(builder, source).execute)
    assert [number for number in found if number] == scans
    expected = {**{number: f"v{number}" for number in range(100)}, **dict.fromkeys(ids, "new")}
    assert dict(builder.rows()) == expected


def test_a_large_merge_shuffles_only_the_rows_that_change(
    client: DeltaClient, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows of the files are copied by the tasks that read them."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", 0)
    monkeypatch.setattr(file_forecast, "SMALL_BYTES", 0)
    builder = TableBuilder(client, spark, "id long, v string")
    builder = builder.with_properties({"delta.enableDeletionVectors": "false"})
    builder.append(*[(number, f"v{number}") for number in range(1000)])
    source = builder.frame(*[(number, "new") for number in range(995, 1005)])
    before = {stage.stageId() for stage in _stages(spark)}
    with temporary_settings(spark, NO_CHOICE):
        _merge(builder, source).execute()
    rows = [stage.shuffleWriteRecords() for stage in _stages(spark) if stage.stageId() not in before]
    finding, writing = 1000 + 10, 5 + 10
    assert sum(rows) <= finding + writing + 100, rows
    assert len(builder.rows()) == 1005


def _stages(spark: SparkSession) -> list[Any]:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
    store: Any = spark.sparkContext._jsc.sc().statusStore()  # type: ignore[union-attr]
    defaults = [getattr(store, f"stageList$default${number}")() for number in (4, 5)]
    found = store.stageList(None, False, False, *defaults)
    return [found.apply(number) for number in range(found.size())]
