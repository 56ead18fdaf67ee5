"""Every way to write an asset can be audited: partitions, ranges, merges, several tables, frames without Spark, retries."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CommitRejectedError, InvalidDataError
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.orchestration import CheckSettings, TableCheck, audited, table_checks
from tests.orchestration.assets.test_change_inputs import consumer, run, upstream
from tests.orchestration.audit.test_audited import BAD, COLUMNS, GOOD, TABLE, evaluations, no_negative, orders, values
from tests.orchestration.conftest import World
from tests.support.dagster_assets import refused

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),
]

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])


def by_letter(world: World, amount: float = 1.0, **arguments: Any) -> dg.AssetsDefinition:
    @dg.asset(
        name="orders",
        partitions_def=LETTERS,
        metadata={"partition_expr": "letter"},
        backfill_policy=dg.BackfillPolicy.single_run(),
        **arguments,
    )
    def made(context: dg.AssetExecutionContext) -> DataFrame:
        return world.frame([(key, amount) for key in context.partition_keys], "letter string, amount double")

    return made


def letters_check(seen: list[list[str]], **arguments: Any) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset="orders", blocking=True, **arguments)
    def letters(orders: pa.Table) -> dg.AssetCheckResult:
        seen.append(sorted(orders["letter"].to_pylist()))
        return dg.AssetCheckResult(passed=min(orders["amount"].to_pylist()) > 0)

    return letters


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_a_partition_is_audited_and_replaced_alone(world: World) -> None:
    whole: list[list[str]] = []
    good = audited(by_letter(world), checks=[letters_check(whole)])
    for key in ("a", "b"):
        world.materialize(good, partition_key=key)
    assert whole == [["a"], ["a", "b"]]
    own: list[list[str]] = []
    bad = audited(by_letter(world, -1.0), checks=[letters_check(own, partitions_def=LETTERS)])
    assert not world.materialize(bad, partition_key="b", raises=False).success
    assert own == [["b"]]
    assert world.rows(TABLE) == [("a", 1.0), ("b", 1.0)]
    assert [event.partition for event in world.events("orders")] == ["a", "b"]


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_a_range_is_audited_as_one_commit(world: World) -> None:
    seen: list[list[str]] = []
    made = audited(by_letter(world), checks=[letters_check(seen, partitions_def=LETTERS)])
    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
    result = world.materialize(made, tags=tags)
    assert seen == [["a", "b", "c"]]
    assert sorted(event.partition for event in world.events("orders")) == ["a", "b", "c"]
    assert {values(event)["cm_delta/commit_version"] for event in world.events("orders")} == {1}
    assert values(evaluations(result)["letters"])["cm_delta/commit_version"] == 1
    assert results_of_partitions(world, made) == {"a": True, "b": True, "c": True}, "no partition is shown as skipped"
    bad = audited(by_letter(world, -1.0), checks=[letters_check(seen, partitions_def=LETTERS)])
    assert not world.materialize(bad, tags=tags, raises=False).success
    assert results_of_partitions(world, bad) == {"a": False, "b": False, "c": False}


def results_of_partitions(world: World, asset: dg.AssetsDefinition) -> dict[str, bool | None]:
    """By partition, the last result of the only check of an asset; None if it is planned only."""
    (spec,) = asset.check_specs
    storage, results = world.instance.event_log_storage, {}
    for record in reversed(storage.get_asset_check_execution_history(spec.key, limit=50)):
        evaluation = record.event and record.event.get_dagster_event().event_specific_data
        if record.partition is not None:
            results[record.partition] = getattr(evaluation, "passed", None)
    return results


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_a_merge_is_audited_with_the_rows_that_it_matches(world: World) -> None:
    world.materialize(orders(world, GOOD))
    metadata = {"mode": "merge", "on": ["id"]}
    seen = []

    @dg.asset_check(asset="orders", blocking=True)
    def amounts(orders: DataFrame) -> dg.AssetCheckResult:
        seen.append(sorted(row.amount for row in orders.collect()))
        return dg.AssetCheckResult(passed=min(seen[-1]) > 0)

    world.materialize(audited(orders(world, [(2, 7.0), (3, 3.0)], metadata=metadata), checks=[amounts]))
    assert world.rows(TABLE) == [(1, 10.0), (2, 7.0), (3, 3.0)]
    failed = audited(orders(world, [(1, -1.0)], metadata=metadata), checks=[amounts])
    assert not world.materialize(failed, raises=False).success
    assert seen == [[3.0, 7.0, 10.0], [-1.0, 3.0, 7.0]]
    assert world.rows(TABLE) == [(1, 10.0), (2, 7.0), (3, 3.0)]


@pytest.mark.requirements("WAP-3", "WAP-4")
@pytest.mark.parametrize("kind", [pa.Table, pl.DataFrame])
def test_rows_without_spark_are_audited(world: World, kind: type) -> None:
    table = pa.table({"id": pa.array([1], pa.int32()), "amount": [1.0]})

    def made() -> pa.Table | pl.DataFrame:
        return table if kind is pa.Table else pl.from_arrow(table)

    made.__annotations__ = {"return": kind}
    world.materialize(audited(dg.asset(name="orders")(made), checks=[no_negative]))
    assert world.rows(TABLE) == [(1, 1.0)]


def both(world: World, amount: float) -> dg.AssetsDefinition:
    together = {"commit_together": True, "mode": "append"}

    @dg.multi_asset(outs={"orders": dg.AssetOut(metadata=together), "totals": dg.AssetOut(metadata=together)})
    def load() -> Iterator[dg.Output[DataFrame]]:
        yield dg.Output(world.frame([(1, amount)], COLUMNS), "orders", metadata={"source": "file"})
        yield dg.Output(world.frame([(amount,)], "amount double"), "totals")

    return load


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_the_tables_of_one_function_are_published_as_one_or_not_at_all(world: World) -> None:
    @dg.multi_asset_check(
        specs=[dg.AssetCheckSpec("same", asset="totals", blocking=True, additional_deps=["orders"])],
        ins={"orders": dg.AssetKey("orders"), "totals": dg.AssetKey("totals")},
    )
    def compared(orders: pa.Table, totals: pa.Table) -> Iterator[dg.AssetCheckResult]:
        same = sum(orders["amount"].to_pylist()) == sum(totals["amount"].to_pylist())
        yield dg.AssetCheckResult(passed=same, asset_key="totals", check_name="same")

    def made(amount: float) -> dg.AssetsDefinition:
        return audited(both(world, amount), checks=[no_negative, compared])

    assert not world.materialize(made(-1.0), raises=False).success
    assert world.rows(TABLE) == world.rows("main.default.totals") == []
    assert world.events("orders") == world.events("totals") == []
    result = world.materialize(made(2.0))
    assert world.rows(TABLE) == [(1, 2.0)] and world.rows("main.default.totals") == [(2.0,)]
    assert {name: evaluation.passed for name, evaluation in evaluations(result).items()} == {
        "no_negative": True,
        "same": True,
    }
    for key in ("orders", "totals"):
        (event,) = world.events(key)
        assert values(event)["cm_delta/commit_version"] == 1
        assert event.tags["dagster/data_version"].endswith("@1")
    assert values(world.events("orders")[0])["source"] == "file"
    (first, second) = [entry for entry in world.client.feed.feed(after=0, limit=100) if entry.version == 1]
    assert first.summary.tags["cm_delta/hold_id"] == second.summary.tags["cm_delta/hold_id"]


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_library_checks_read_the_held_state(world: World) -> None:
    world.materialize(orders(world, GOOD))
    plain = orders(world, [(3, 3.0)] * 10)
    settings = CheckSettings(max_rows=5, constraints={})
    checks = table_checks(plain, checks=["row_count", "schema_change"], settings=settings, blocking=["row_count"])
    result = world.materialize(audited(plain, checks=[checks]), raises=False)
    assert not result.success
    assert evaluations(result)["row_count"].description.startswith("The table has 12 rows, more than the maximum of 5.")
    assert world.rows(TABLE) == GOOD
    world.materialize(audited(orders(world, [(3, 3.0)]), checks=[checks]))
    assert world.rows(TABLE) == [*GOOD, (3, 3.0)]


def test_library_checks_of_partitions_count_the_ones_being_written(world: World) -> None:
    plain = by_letter(world)
    settings = CheckSettings(min_rows_per_partition=2)
    checks = table_checks(
        plain, checks=[TableCheck.PARTITION_ROW_COUNT], settings=settings, blocking=[TableCheck.PARTITION_ROW_COUNT]
    )
    result = world.materialize(audited(plain, checks=checks), partition_key="a", raises=False)
    assert not result.success
    assert evaluations(result)["partition_row_count"].metadata["cm_delta/wrong_partitions"].value == 1


@pytest.mark.requirements("WAP-6")
def test_what_an_asset_declares_of_its_table_is_published_with_its_rows(world: World) -> None:
    """Clustering columns, which need a commit of their own, follow the ratification."""
    world.materialize(orders(world, GOOD))
    before = world.client.table(TABLE).snapshot()
    declared = {
        "mode": "append",
        "table_properties": {"owner": "sales", "delta.enableChangeDataFeed": "true"},
        "constraints": {"positive": "amount > -5"},
        "cluster_by": "id",
    }
    assert not world.materialize(
        audited(orders(world, BAD, metadata=declared), checks=[no_negative]), raises=False
    ).success
    after = world.client.table(TABLE).snapshot()
    assert (after.version, after.metadata, after.protocol) == (before.version, before.metadata, before.protocol)
    world.materialize(audited(orders(world, [(3, 3.0)], metadata=declared), checks=[no_negative]))
    history = [entry for entry in world.client.feed.feed(after=0, limit=100) if entry.version > before.version]
    assert [entry.summary.operation for entry in history] == ["WRITE", "ALTER TABLE"]
    ratified, latest = (world.client.table(TABLE).snapshot(version=entry.version) for entry in history)
    assert declared["table_properties"].items() <= ratified.metadata.configuration.items()
    assert ratified.metadata.configuration["delta.constraints.positive"] == "amount > -5"
    assert not ratified.clustering_columns and latest.clustering_columns and world.rows(TABLE) == [*GOOD, (3, 3.0)]
    refusal = refused(world, audited(orders(world, [(4, -9.0)], metadata=declared), checks=[no_negative]))
    assert isinstance(refusal, InvalidDataError)


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_changes_that_an_audit_discards_are_read_again(world: World) -> None:
    """Also of an asset with a key prefix, which its checks name."""
    read: list[Any] = []

    def made(limit: int) -> dg.AssetsDefinition:
        @dg.asset_check(asset=["sales", "down"], blocking=True)
        def small(down: pa.Table) -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=max(down["id"].to_pylist()) < limit)

        return audited(consumer(world, read=read, key_prefix=["sales"]), checks=[small])

    upstream(world, (1, "a"))
    assert run(world, made(3)).success
    upstream(world, (3, "c"))
    assert not run(world, made(3), raises=False).success
    assert run(world, made(9)).success
    assert read == [[(1, "insert", 0)], [(3, "insert", 1)], [(3, "insert", 1)]]
    assert [row[0] for row in world.rows("main.sales.down")] == [1, 3]


@pytest.mark.requirements("WAP-7")
def test_a_retried_step_is_ratified_once(world: World) -> None:
    attempts = []

    @dg.asset(name="orders", metadata={"mode": "append"})
    def made(context: dg.AssetExecutionContext) -> Iterator[dg.Output[DataFrame]]:
        attempts.append(context.retry_number)
        yield dg.Output(world.frame(GOOD, COLUMNS))
        if len(attempts) == 1:
            raise dg.RetryRequested()

    made_once = audited(made, checks=[no_negative])
    result = world.materialize(made_once)
    assert attempts == [0, 1]
    assert world.rows(TABLE) == GOOD and world.version(TABLE) == 1
    assert evaluations(result)["no_negative"].passed


def test_a_check_can_read_the_columns_of_the_held_state_alone(world: World) -> None:
    seen = []

    @dg.asset_check(asset="orders", blocking=True)
    def columns(context: dg.AssetCheckExecutionContext, orders: Snapshot) -> dg.AssetCheckResult:
        seen.append((orders.num_rows, orders.schema.names, context.run.run_id))
        return dg.AssetCheckResult(passed=True)

    result = world.materialize(audited(orders(world, GOOD), checks=[columns]))
    assert seen == [(2, ("id", "amount"), result.run_id)]


def test_an_output_of_none_is_not_checked(world: World) -> None:
    world.materialize(orders(world, GOOD))

    @dg.asset(name="orders")
    def sometimes() -> DataFrame | None:
        return None

    result = world.materialize(audited(sometimes, checks=[no_negative]))
    assert evaluations(result) == {} and len(world.events("orders")) == 1


@pytest.mark.requirements("WAP-3", "WAP-4")
def test_the_other_outputs_of_a_step_are_checked_if_one_is_none(world: World) -> None:
    """A check of the output that has rows reads what the table of the other one has."""
    world.materialize(orders(world, GOOD))
    together = {"commit_together": True, "mode": "append"}

    @dg.multi_asset(outs={"orders": dg.AssetOut(metadata=together), "totals": dg.AssetOut(metadata=together)})
    def load() -> tuple[DataFrame | None, DataFrame]:
        return None, world.frame([(15.0,)], "amount double")

    @dg.asset_check(asset="totals", blocking=True, additional_ins={"orders": dg.AssetIn()})
    def same(totals: pa.Table, orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=sum(totals["amount"].to_pylist()) == sum(orders["amount"].to_pylist()))

    result = world.materialize(audited(load, checks=[no_negative, same]))
    assert evaluations(result).keys() == {"same"} and evaluations(result)["same"].passed
    assert world.rows("main.default.totals") == [(15.0,)] and world.rows(TABLE) == GOOD


def test_a_retry_after_the_ratification_says_that_readers_see_the_rows(world: World) -> None:
    attempts = []

    @dg.asset(name="orders", metadata={"mode": "append"})
    def made(context: dg.AssetExecutionContext) -> Iterator[dg.Output[DataFrame]]:
        attempts.append(context.retry_number)
        yield dg.Output(world.frame(GOOD, COLUMNS))
        if len(attempts) == 1:
            raise dg.RetryRequested()

    @dg.asset_check(asset="orders", blocking=True)
    def only_once(orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=len(attempts) == 1, description=f"{orders.num_rows} rows")

    result = world.materialize(audited(made, checks=[only_once]), raises=False)
    assert world.rows(TABLE) == GOOD
    assert result.failure_data_for_node("orders").user_failure_data.description == (
        "The audit failed: only_once: 2 rows. This attempt wrote no rows, so what the checks read is what readers see already: "
        "main.default.orders (already_committed, version 1)."
    )


@pytest.mark.requirements("WAP-2")
def test_a_put_if_absent_table_is_refused_before_a_file_is_written(world: World) -> None:
    world.materialize(orders(world, GOOD))
    set_commit_policy(world.client.table(TABLE), CommitPolicy.parse("put_if_absent"))
    error = refused(world, audited(orders(world, [(3, 3.0)]), checks=[no_negative]))
    assert isinstance(error, CommitRejectedError)
    assert world.rows(TABLE) == GOOD


def test_another_io_manager_is_refused_before_anything_is_computed(world: World) -> None:
    computed = []

    @dg.asset(name="orders", io_manager_key="other")
    def made() -> DataFrame:
        computed.append(1)
        return world.frame(GOOD, COLUMNS)

    world.resources["other"] = dg.mem_io_manager
    error = refused(world, audited(made, checks=[no_negative]))
    assert "cannot hold rows" in str(error) and computed == []
