"""Audited assets: rows that no reader sees before their checks have passed, with Spark and a Dagster instance."""

from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.orchestration import audited
from tests.orchestration.conftest import World

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

TABLE = "main.default.orders"
COLUMNS = "id int, amount double"
GOOD = [(1, 10.0), (2, 5.0)]
BAD = [(3, -1.0), (4, 2.0)]


def orders(world: World, rows: Any, **arguments: Any) -> dg.AssetsDefinition:
    """An asset whose rows are ``rows``, or what ``rows(context)`` returns."""

    @dg.asset(name="orders", metadata=arguments.pop("metadata", {"mode": "append"}), **arguments)
    def made(context: dg.AssetExecutionContext) -> DataFrame:
        return world.frame(rows(context) if callable(rows) else rows, COLUMNS)

    return made


@dg.asset_check(asset="orders", blocking=True)
def no_negative(orders: pa.Table) -> dg.AssetCheckResult:
    bad = [amount for amount in orders["amount"].to_pylist() if amount < 0]
    return dg.AssetCheckResult(
        passed=not bad, description=f"{len(bad)} negative amounts", metadata={"negative": len(bad)}
    )


@dg.asset_check(asset="orders")
def many(orders: pl.DataFrame) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=orders.height > 100, metadata={"rows": orders.height})


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def values(event: Any) -> dict[str, object]:
    return {name: value.value for name, value in event.metadata.items()}


@pytest.mark.requirements("WAP-3", "WAP-4", "WAP-8")
def test_rows_that_pass_are_ratified_and_the_results_name_their_version(world: World) -> None:
    seen = []

    @dg.asset_check(asset="orders", blocking=True)
    def sees_the_hold(orders: pa.Table) -> dg.AssetCheckResult:
        seen.append((orders.num_rows, world.rows(TABLE), len(world.events("orders"))))
        return dg.AssetCheckResult(passed=True)

    result = world.materialize(audited(orders(world, GOOD), checks=[no_negative, many, sees_the_hold]))
    assert seen == [(2, [], 0)]
    assert world.rows(TABLE) == GOOD
    (event,) = world.events("orders")
    metadata = values(event)
    assert metadata["cm_delta/commit_version"] == 1
    assert metadata["cm_delta/outcome"] == "committed"
    assert metadata["dagster/row_count"] == metadata["cm_delta/output_rows"] == 2
    assert event.tags["dagster/data_version"] == f"{world.client.table(TABLE).table_id}@1"
    (record,) = world.instance.fetch_materializations(dg.AssetKey("orders"), limit=10).records
    by_name = evaluations(result)
    assert {name: evaluation.passed for name, evaluation in by_name.items()} == {
        "no_negative": True,
        "many": False,
        "sees_the_hold": True,
    }
    for evaluation in by_name.values():
        assert values(evaluation)["cm_delta/commit_version"] == 1
        assert evaluation.target_materialization_data.storage_id == record.storage_id
    (entry,) = [entry for entry in world.client.feed.feed(after=0, limit=100) if entry.version == 1]
    assert entry.summary.tags["cm_delta/audited_by"] == f"Dagster run {result.run_id}"
    assert entry.summary.tags["cm_delta/audit_checks"] == "no_negative, many, sees_the_hold"
    assert entry.summary.tags["cm_delta/audit_failed_checks"] == "many"
    assert world.client.holds.holds() == ()


@pytest.mark.requirements("WAP-4")
def test_rows_that_fail_are_discarded_and_readers_never_see_them(world: World) -> None:
    world.materialize(audited(orders(world, GOOD), checks=[no_negative]))
    result = world.materialize(audited(orders(world, BAD), checks=[no_negative, many]), raises=False)
    assert not result.success
    assert world.rows(TABLE) == GOOD
    assert world.version(TABLE) == 1
    assert len(world.events("orders")) == 1
    by_name = evaluations(result)
    assert not by_name["no_negative"].passed
    assert values(by_name["no_negative"])["negative"] == 1
    assert values(by_name["no_negative"])["cm_delta/outcome"] == "discarded"
    assert by_name["no_negative"].description == (
        "1 negative amounts. The rows were discarded, and readers never saw them."
    )
    assert by_name["no_negative"].target_materialization_data is None
    failure = result.failure_data_for_node("orders")
    assert failure.user_failure_data.description == (
        "The audit of orders failed. no_negative: 1 negative amounts. The rows were discarded, and readers never saw them: "
        "main.default.orders has its rows of version 1. Correct the rows or the check, and materialize again."
    )
    assert world.client.holds.holds() == ()


@pytest.mark.requirements("WAP-3")
@pytest.mark.parametrize("kind", [DataFrame, pa.Table, pl.DataFrame, pl.LazyFrame, pd.DataFrame])
def test_checks_get_the_held_rows_in_the_type_of_their_annotation(world: World, kind: type) -> None:
    seen = []

    def check(orders: Any) -> dg.AssetCheckResult:
        rows = orders.collect() if hasattr(orders, "collect") else orders
        seen.append((isinstance(orders, kind), len(rows)))
        return dg.AssetCheckResult(passed=True)

    check.__annotations__ = {"orders": kind, "return": dg.AssetCheckResult}
    definition = dg.asset_check(asset="orders", name="typed", blocking=True)(check)
    world.materialize(audited(orders(world, GOOD), checks=[definition]))
    assert seen == [(True, 2)]
