"""How Spark carries out a merge: which rows it shuffles."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.api.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.writing import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.spark.session import temporary_settings
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
    """DML-4: not at all with a small source. A shuffle by the key in a plan is one of the table and one of the source."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", small_source)
    builder = TableBuilder(client, spark, "id long, v string")
    builder = builder.with_properties({"delta.enableDeletionVectors": vectors})
    for part in range(2):
        builder.append(*[(number, f"v{number}") for number in range(part * 50, part * 50 + 50)])
    source = builder.frame((7, "a"), (60, "b"), (200, "c"))
    change = RowChange(source=source, on="t.id = s.id", source_alias="s", target_alias="t")
    merge = MergeBuilder(builder.table, change=change).when_matched_update_all().when_not_matched_insert_all()
    with temporary_settings(spark, NO_CHOICE):
        shuffles = key_shuffles(spark, merge.execute)
    assert len(shuffles) >= 2
    assert all(len(each) <= 2 * most for each in shuffles), shuffles
    assert (sum(map(len, shuffles)) > 0) == bool(most)
    assert sorted(builder.rows())[7] == (7, "a")
