"""Other writers between the checks of an audited asset and its ratification, and processes that stop there."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitConflictError, HoldClosedError, HoldOutdatedError, InvalidArgumentError
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.orchestration import FirstTick, audited, ratified_commit_sensor
from tests.orchestration.audit.test_audited import COLUMNS, GOOD, TABLE, evaluations, no_negative, orders, values
from tests.orchestration.conftest import World
from tests.support.dagster_assets import raised, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def interrupted(meanwhile: Callable[[], object], *, times: int = 1_000) -> tuple[dg.AssetChecksDefinition, list[int]]:
    """A check after which ``meanwhile()`` runs, the first ``times`` times; and the rows that it saw each time."""
    seen: list[int] = []

    @dg.asset_check(asset="orders", blocking=True)
    def counted(orders: pa.Table) -> dg.AssetCheckResult:
        seen.append(orders.num_rows)
        if len(seen) <= times:
            meanwhile()
        return dg.AssetCheckResult(passed=True, metadata={"rows": orders.num_rows})

    return counted, seen


def other_rows(world: World) -> None:
    append(world.client.table(TABLE), frame=world.frame([(9, 9.0)], COLUMNS))


@pytest.mark.requirements("WAP-5")
def test_rows_of_another_writer_run_the_checks_again_on_the_rebased_state(world: World) -> None:
    check, seen = interrupted(lambda: other_rows(world), times=1)
    result = world.materialize(audited(orders(world, GOOD), checks=[check]))
    assert seen == [2, 3]
    assert world.rows(TABLE) == [*GOOD, (9, 9.0)]
    assert values(evaluations(result)["counted"])["rows"] == 3
    assert values(evaluations(result)["counted"])["cm_delta/commit_version"] == 2 == world.version(TABLE)
    assert values(world.events("orders")[0])["cm_delta/output_rows"] == 2


@pytest.mark.requirements("WAP-5")
def test_a_check_that_other_rows_overtake_three_times_fails_the_step(world: World) -> None:
    check, seen = interrupted(lambda: other_rows(world))
    result = world.materialize(audited(orders(world, GOOD), checks=[check]), raises=False)
    assert seen == [2, 3, 4]
    assert world.rows(TABLE) == [(9, 9.0)] * 3
    assert world.events("orders") == [] and world.client.holds.holds() == ()
    assert evaluations(result)["counted"].target_materialization_data is None
    error = result.failure_data_for_node("orders").error
    assert "HoldOutdatedError" in error.cause.cls_name if error.cause else error.cls_name
    with pytest.raises(Exception) as caught:
        world.materialize(audited(orders(world, GOOD), checks=[check]))
    assert isinstance(raised(caught.value), HoldOutdatedError)


@pytest.mark.requirements("WAP-5")
def test_a_compaction_does_not_run_the_checks_again(world: World) -> None:
    rule = MaintenanceRule(scope=TABLE, kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    world.client.maintenance_policies.set_maintenance_rule(rule)
    for _ in range(2):
        world.materialize(orders(world, GOOD))
    check, seen = interrupted(lambda: optimize(world.client.table(TABLE), spark=world.spark))
    version = world.version(TABLE)
    world.materialize(audited(orders(world, GOOD), checks=[check]))
    assert seen == [6]
    assert world.version(TABLE) == version + 2
    assert world.rows(TABLE) == sorted(GOOD * 3)


@pytest.mark.requirements("WAP-5")
def test_disjoint_ok_does_not_run_the_checks_again(world: World) -> None:
    check, seen = interrupted(lambda: other_rows(world))
    metadata = {"mode": "append", "audit": "disjoint_ok"}
    world.materialize(audited(orders(world, GOOD, metadata=metadata), checks=[check]))
    assert seen == [2]
    assert world.rows(TABLE) == [*GOOD, (9, 9.0)]


@pytest.mark.requirements("WAP-5")
@pytest.mark.parametrize("audit", ["recheck", "disjoint_ok"])
def test_a_conflict_ends_the_audit(world: World, audit: str) -> None:
    world.materialize(orders(world, GOOD))
    check, seen = interrupted(
        lambda: overwrite(world.client.table(TABLE), frame=world.frame([(9, 9.0)], COLUMNS)), times=1
    )
    error = refused(world, audited(orders(world, [(5, 5.0)], metadata={"audit": audit}), checks=[check]))
    assert isinstance(error, CommitConflictError)
    assert seen == [1] and world.rows(TABLE) == [(9, 9.0)]
    assert world.client.holds.holds() == () and len(world.events("orders")) == 1


@pytest.mark.requirements("WAP-7")
def test_a_hold_whose_check_takes_too_long_expires(world: World) -> None:
    def wait_for_expiry() -> None:
        while world.client.holds.holds():
            pass

    check, _ = interrupted(wait_for_expiry)
    error = refused(world, audited(orders(world, GOOD), checks=[check], hold=timedelta(seconds=1)))
    assert isinstance(error, HoldClosedError)
    assert world.rows(TABLE) == [] and world.events("orders") == []


def test_a_check_that_raises_discards_the_rows(world: World) -> None:
    @dg.asset_check(asset="orders", blocking=True)
    def broken(orders: pa.Table) -> dg.AssetCheckResult:
        raise ZeroDivisionError("no rows to divide by")

    result = world.materialize(audited(orders(world, GOOD), checks=[broken]), raises=False)
    assert not result.success
    assert world.rows(TABLE) == [] and world.client.holds.holds() == ()
    (closed,) = world.client.holds.holds(with_closed=True)
    assert closed.reason == "The check failed: ZeroDivisionError: no rows to divide by"


@pytest.mark.parametrize("first", ["unchecked", "orders"])
def test_a_table_that_another_asset_writes_in_the_same_run_is_refused(world: World, first: str) -> None:
    """Whichever of the two comes first: readers see nothing of the run."""

    @dg.asset(metadata={"table": TABLE, "mode": "append"}, deps=["orders"] if first == "orders" else [])
    def unchecked() -> DataFrame:
        return world.frame([(7, -7.0)], COLUMNS)

    check, seen = interrupted(lambda: None)
    metadata = {"table": TABLE, "mode": "append"}
    deps = [unchecked] if first == "unchecked" else []
    error = refused(world, unchecked, audited(orders(world, GOOD, metadata=metadata, deps=deps), checks=[check]))
    assert isinstance(error, InvalidArgumentError) and "unchecked" in str(error)
    assert seen == [] and not world.client.registry.list_tables()


@pytest.mark.requirements("WAP-3")
def test_a_blocking_check_that_is_a_step_of_the_same_run_is_refused_before_anything_is_computed(world: World) -> None:
    """Without ``cm_delta_definitions``, which refuses it when the definitions are loaded."""
    computed = []

    @dg.asset(name="orders", metadata={"mode": "append"})
    def written() -> DataFrame:
        computed.append(1)
        return world.frame(GOOD, COLUMNS)

    @dg.asset_check(asset="orders", blocking=True)
    def late(orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    made = audited(written, checks=[no_negative])
    job = dg.Definitions([made], asset_checks=[late], resources=world.resources).resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=world.instance, raise_on_error=False)
    failure = result.failure_data_for_node("orders")
    assert not result.success and failure is not None and failure.error is not None
    assert "late of orders is blocking and is a step of its own" in str(failure.error.cause or failure.error)
    assert computed == []


@pytest.mark.requirements("WAP-5")
def test_rows_that_are_added_under_a_new_name_of_the_table_are_checked_too(world: World) -> None:
    world.materialize(orders(world, GOOD))

    def rename_and_append() -> None:
        table = world.client.table(TABLE)
        world.client.registry.rename_table(table.table_id, TableIdentifier.of("main.default.renamed"))
        append(world.client.table("main.default.renamed"), frame=world.frame([(9, 9.0)], COLUMNS))

    check, seen = interrupted(rename_and_append, times=1)
    made = audited(orders(world, [(5, 5.0)], metadata={"mode": "append"}), checks=[check])
    assert world.materialize(made).success
    assert seen == [3, 4]
    assert world.rows("main.default.renamed") == [*GOOD, (5, 5.0), (9, 9.0)]


@pytest.mark.requirements("WAP-3")
def test_an_asset_that_writes_its_rows_itself_is_not_taken_for_audited(world: World) -> None:
    """Its type is not known when the definitions are loaded."""

    @dg.asset(name="orders", metadata={"mode": "append"})
    def written_elsewhere() -> Any:
        return dg.MaterializeResult()

    result = world.materialize(audited(written_elsewhere, checks=[no_negative]), raises=False)
    failure = result.failure_data_for_node("orders")
    assert not result.success and failure is not None
    assert "The audit had no rows to check" in str(failure.user_failure_data.description)


@pytest.mark.requirements("WAP-3", "WAP-4")
@pytest.mark.parametrize(
    "selection",
    [dg.AssetSelection.assets("orders").without_checks(), dg.AssetSelection.checks_for_assets("orders")],
    ids=["rows without checks", "checks without rows"],
)
def test_a_selection_cannot_separate_the_rows_of_an_audit_from_its_checks(
    world: World, selection: dg.AssetSelection
) -> None:
    made = audited(orders(world, GOOD), checks=[no_negative])
    job = dg.define_asset_job("some", selection=selection)
    with pytest.raises(dg.DagsterInvalidDefinitionError) as caught:
        dg.Definitions([made], jobs=[job], resources=world.resources).resolve_job_def("some")
    assert isinstance(caught.value.__cause__, dg.DagsterInvalidSubsetError)


@pytest.mark.requirements("WAP-2", "WAP-8")
def test_an_audit_whose_rows_need_an_approval_waits_for_it_with_its_results(world: World) -> None:
    world.materialize(orders(world, GOOD))
    rule = CommitRule(
        scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL, contact="ada"
    )
    world.client.commit_rules.set_commit_rule(rule)
    check, _ = interrupted(lambda: None)
    made = audited(orders(world, [(5, 5.0)], metadata={}), checks=[check])
    result = world.materialize(made, raises=False)
    (waiting,) = world.client.holds.holds()
    evaluation = evaluations(result)["counted"]
    assert evaluation.passed and values(evaluation)["cm_delta/outcome"] == "held"
    assert values(evaluation)["cm_delta/hold_id"] == waiting.hold_id
    failure = result.failure_data_for_node("orders").user_failure_data
    assert failure.metadata["cm_delta/approval_id"].value == waiting.hold_id
    assert world.rows(TABLE) == GOOD
    approve_hold(world.client, waiting.hold_id)
    assert world.rows(TABLE) == [(5, 5.0)]
    assert world.client.feed.feed(after=0, limit=100)[-1].summary.tags["cm_delta/audit_checks"] == "counted"


@pytest.mark.requirements("WAP-6")
def test_readers_do_not_see_the_new_columns_of_rows_that_are_discarded(world: World) -> None:
    world.materialize(orders(world, GOOD))

    @dg.asset(name="orders", metadata={"mode": "append", "schema_mode": "merge"})
    def wider() -> DataFrame:
        return world.frame([(3, -3.0, "x")], f"{COLUMNS}, note string")

    assert not world.materialize(audited(wider, checks=[no_negative]), raises=False).success
    assert world.client.table(TABLE).snapshot().schema.names == ("id", "amount")
    assert world.rows(TABLE) == GOOD


@pytest.mark.requirements("WAP-4")
def test_the_sensor_does_not_report_the_version_of_an_audit_again(world: World) -> None:
    made = audited(orders(world, GOOD), checks=[no_negative])
    world.materialize(made)
    world.materialize(audited(orders(world, [(3, -3.0)]), checks=[no_negative]), raises=False)
    sensor = ratified_commit_sensor(name="commits", assets=[made], first_tick=FirstTick.FROM_BEGINNING)
    with dg.build_sensor_context(instance=world.instance, resources={"catalog": world.catalog}) as context:
        events = sensor.evaluate_tick(context).asset_events
    assert [event for event in events if values(event)["cm_delta/commit_version"] == 1] == []
    assert len(world.events("orders")) == 1
