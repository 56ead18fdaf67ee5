"""Checks of tables: each passes on a table in order and fails on one that is not. From log and catalog, no Spark."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ApprovalRequiredError, InvalidArgumentError
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.orchestration import (
    CatalogResource,
    CheckSettings,
    ClientSettingsConfig,
    MaintenancePolicy,
    TableCheck,
    table_checks,
)
from cm_delta_dagster.orchestration.checks.evaluation import Outcome, evaluate
from cm_delta_dagster.orchestration.checks.observation import ObservedTable
from cm_delta_dagster.orchestration.checks.table_checks import _checked_assets
from cm_delta_dagster.orchestration.metadata.write_contract import NamingDefaults
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.log import log_files
from tests.orchestration.log_tables import commit, make_table

NAME = "main.s.t"
SPEC = dg.AssetSpec(["s", "t"])
POLICY = MaintenancePolicy(
    tables=(NAME,), min_small_files=3, min_small_file_ratio=0.1, unpublished_commits=1000, commits_since_checkpoint=1000
)


def run(
    catalog: CatalogResource,
    instance: dg.DagsterInstance,
    *,
    spec: dg.AssetSpec = SPEC,
    checks: Sequence[TableCheck] | None = None,
    tags: Mapping[str, str] | None = None,
    **settings: Any,
) -> dict[str, dg.AssetCheckEvaluation]:
    """The evaluations by name."""
    definitions = table_checks(spec, checks=checks, settings=CheckSettings(**settings))
    result = dg.Definitions(
        assets=[spec], asset_checks=definitions, resources={"catalog": catalog}
    ).resolve_implicit_global_asset_job_def()
    done = result.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    return {one.check_name: one for one in done.get_asset_check_evaluations()}


def check_of(
    catalog: CatalogResource,
    instance: dg.DagsterInstance,
    check: TableCheck,
    *,
    spec: dg.AssetSpec = SPEC,
    **settings: Any,
) -> Outcome:
    """The outcome of one check, without a run."""
    ((asset, name),) = _checked_assets(spec, table=None, names=NamingDefaults())
    table = catalog.client.table(name)
    return evaluate(
        check, ObservedTable(asset=asset, table=table, settings=CheckSettings(**settings), instance=instance)
    )


def run_one(
    catalog: CatalogResource, instance: dg.DagsterInstance, check: TableCheck, **arguments: Any
) -> dg.AssetCheckEvaluation:
    return run(catalog, instance, checks=[check], **arguments)[check.value]


def test_all_default_checks_of_a_small_table_pass(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    commit(make_table(catalog.client, NAME))
    found = run(catalog, instance)
    assert {name for name, one in found.items() if not one.passed} == set()
    assert set(found) == {
        *("unpublished_commits", "staged_commits", "small_files", "log_size", "checkpoint_lag"),
        *("row_count", "schema_change", "approvals"),
    }


def test_checks_of_one_asset_may_be_several_ops(catalog: CatalogResource) -> None:
    constraints = CheckSettings(constraints={"positive": "x > 0"})
    ops = [
        *table_checks(SPEC),
        *table_checks(SPEC, checks=[TableCheck.CONSTRAINTS], settings=constraints),
        *table_checks(SPEC, checks=[TableCheck.HEALTH]),
    ]
    dg.Definitions.validate_loadable(dg.Definitions([SPEC], asset_checks=ops, resources={"catalog": catalog}))


def test_a_table_that_does_not_exist_yet_is_a_warning(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    found = run(catalog, instance)
    assert {(one.passed, one.severity.value) for one in found.values()} == {(False, "WARN")}
    assert "The table main.s.t does not exist yet" in found["row_count"].description


def test_a_backlog_of_unpublished_commits_fails_until_they_are_published(
    catalog: CatalogResource, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    settings = ClientSettingsConfig(publish_delay="600 seconds")
    writer = CatalogResource(
        url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse", settings=settings
    )
    with closing(writer):
        commit(make_table(writer.client, NAME))
        evaluation = check_of(catalog, instance, TableCheck.UNPUBLISHED_COMMITS, max_unpublished_commits=0)
        assert not evaluation.passed and evaluation.metadata["cm_delta/unpublished_commits"] == 1
        text = (
            "Ratified commits that are not published in _delta_log: 1; the limit is 0. Run the maintenance task publish"
        )
        assert evaluation.text.startswith(text)
    assert check_of(catalog, instance, TableCheck.UNPUBLISHED_COMMITS, max_unpublished_commits=0).passed


def test_a_warning_is_an_error_if_the_settings_say_so(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    check = TableCheck.CHECKPOINT_LAG
    commit(make_table(catalog.client, NAME))
    warned = run_one(catalog, instance, check, max_commits_since_checkpoint=0)
    failed = run_one(catalog, instance, check, max_commits_since_checkpoint=0, errors={check})
    assert (warned.passed, warned.severity.value) == (False, "WARN")
    assert (failed.passed, failed.severity.value) == (False, "ERROR")


def test_a_backlog_of_staged_files_fails(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    directory = log_files.staged_commits_directory(table.location)
    for number in range(3):
        name = f"{1:020d}.00000000-0000-0000-0000-00000000000{number}.json"
        table.store.write(f"{directory.rstrip('/')}/{name}", b"{}")
    evaluation = check_of(catalog, instance, TableCheck.STAGED_COMMITS, max_staged_commits=2)
    assert not evaluation.passed and not evaluation.is_error
    assert evaluation.metadata["cm_delta/staged_files"] == 3
    assert check_of(catalog, instance, TableCheck.STAGED_COMMITS, max_staged_commits=3).passed


def test_small_files_that_compaction_would_join_fail(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, partitions=[{}] * 2)
    assert check_of(catalog, instance, TableCheck.SMALL_FILES, maintenance=POLICY).passed
    commit(table, partitions=[{}] * 2)
    evaluation = check_of(catalog, instance, TableCheck.SMALL_FILES, maintenance=POLICY)
    assert not evaluation.passed and evaluation.metadata["cm_delta/joinable_files"] == 4
    assert "4 of 4 files (100%)" in evaluation.text


def test_a_large_log_and_an_old_checkpoint_fail(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    for _ in range(3):
        commit(table)
    large = check_of(catalog, instance, TableCheck.LOG_SIZE, max_log_files=2)
    assert not large.passed and large.metadata["cm_delta/log_files"] > 2
    assert not check_of(catalog, instance, TableCheck.LOG_SIZE, max_log_bytes=100).passed
    old = check_of(catalog, instance, TableCheck.CHECKPOINT_LAG, max_commits_since_checkpoint=2)
    assert not old.passed and "without a checkpoint: 4" in old.text


def test_freshness_is_the_age_of_the_newest_commit_that_changed_data(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    client = catalog.client
    table = make_table(client, NAME)
    commit(table)
    changed = table.snapshot().timestamp_ms
    commit(table, data_change=False)
    client.now_ms = lambda: changed + 7_200_000

    def outcome(hours: float) -> Outcome:
        return check_of(catalog, instance, TableCheck.FRESHNESS, max_age=timedelta(hours=hours))

    late = outcome(1)
    assert (late.passed, late.is_error, late.metadata["cm_delta/age_seconds"]) == (False, True, 7200)
    assert late.text == "The data changed 2 hours ago; the limit is 60 minutes."
    assert outcome(3).passed


def test_the_row_count_and_its_change_have_bounds(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, partitions=[{}] * 4)
    assert check_of(catalog, instance, TableCheck.ROW_COUNT, max_row_change=0.5).passed
    commit(table, partitions=[{}] * 4)
    evaluation = check_of(catalog, instance, TableCheck.ROW_COUNT, max_row_change=0.5)
    assert not evaluation.passed
    assert "Version 2 changed their number by +4 (+100.0%), which exceeds the limit of 50.0%." in evaluation.text
    assert evaluation.metadata["cm_delta/row_change"] == 4
    assert check_of(catalog, instance, TableCheck.ROW_COUNT, max_row_change=1.0).passed
    too_few = check_of(catalog, instance, TableCheck.ROW_COUNT, min_rows=100)
    assert not too_few.passed and "fewer than the minimum of 100" in too_few.text
    assert not check_of(catalog, instance, TableCheck.ROW_COUNT, max_rows=5).passed


def test_rows_of_each_materialized_partition_have_bounds(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME, by={"day": "date"})
    commit(table, partitions=[{"day": "2026-01-01"}, {"day": "2026-01-01"}, {"day": "2026-01-02"}])
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
    spec = dg.AssetSpec(["s", "t"], partitions_def=days, metadata={"partition_expr": "day"})
    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        instance.report_runless_asset_event(dg.AssetMaterialization(spec.key, partition=day))
    check = TableCheck.PARTITION_ROW_COUNT
    evaluation = check_of(catalog, instance, check, spec=spec, min_rows_per_partition=1, max_rows_per_partition=1)
    assert not evaluation.passed
    assert "2 of 3 partitions have too few or too many rows: 2026-01-01,2026-01-03." in evaluation.text
    assert check_of(catalog, instance, check, spec=spec, min_rows_per_partition=0, max_rows_per_partition=2).passed


def test_a_changed_schema_fails_until_a_run_accepts_it(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    check = TableCheck.SCHEMA_CHANGE
    assert run_one(catalog, instance, check).passed
    catalog.client.registry.drop_table(table.identifier)
    make_table(catalog.client, NAME, by={"part": "string"})
    added = run_one(catalog, instance, check)
    assert added.passed and "part added" in added.description
    catalog.client.registry.drop_table(catalog.client.table(NAME).identifier)
    make_table(catalog.client, NAME)
    for _ in range(2):
        dropped = run_one(catalog, instance, check)
        assert not dropped.passed and dropped.severity is dg.AssetCheckSeverity.ERROR
        (record,) = dropped.metadata["cm_delta/schema_changes"].records
        assert record.data == {"column": "part", "change": "dropped", "before": "string", "after": ""}
    assert run_one(catalog, instance, check, tags={"cm_delta_checks/accept_schema": "true"}).passed
    assert run_one(catalog, instance, check).passed


def test_new_columns_can_be_forbidden_and_a_declared_schema_has_priority(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    make_table(catalog.client, NAME, by={"part": "string"})
    declared = dg.TableSchema(columns=[dg.TableColumn("id", "long")])
    spec = dg.AssetSpec(["s", "t"], metadata={"dagster/column_schema": declared})
    check = TableCheck.SCHEMA_CHANGE
    assert not check_of(catalog, instance, check, spec=spec, allow_new_columns=False).passed
    wrong = dg.TableSchema(columns=[dg.TableColumn("id", "string"), dg.TableColumn("part", "string")])
    spec = dg.AssetSpec(["s", "t"], metadata={"dagster/column_schema": wrong})
    evaluation = check_of(catalog, instance, check, spec=spec)
    assert not evaluation.passed and "id type changed" in evaluation.text


@pytest.mark.slow
def test_a_schema_change_stops_downstream_assets_of_the_run(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    make_table(catalog.client, NAME, by={"part": "string"})
    ran = []

    @dg.asset(key=["s", "t"], metadata={"dagster/column_schema": dg.TableSchema(columns=[dg.TableColumn("id", "int")])})
    def t() -> None: ...

    @dg.asset(deps=[t])
    def down() -> None:
        ran.append(1)

    defs = dg.Definitions(assets=[t, down], asset_checks=table_checks(t), resources={"catalog": catalog})
    done = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance, raise_on_error=False)
    assert not done.success and ran == []


def test_a_missing_or_different_constraint_fails(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    check, wanted = TableCheck.CONSTRAINTS, {"positive": "id > 0"}
    assert "positive is missing" in check_of(catalog, instance, check, constraints=wanted).text
    _set_constraint(table, "positive", "id > -1")
    assert "(id > -1) and not (id > 0)" in check_of(catalog, instance, check, constraints=wanted).text
    assert check_of(catalog, instance, check, constraints={"Positive": "id  >  -1"}).passed


def _set_constraint(table: Table, name: str, expression: str) -> None:
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="ADD CONSTRAINT")
    configuration = {**snapshot.metadata.configuration, f"delta.constraints.{name}": expression}
    transaction.set_metadata(replace(snapshot.metadata, configuration=configuration))
    transaction.set_protocol(with_features(snapshot.protocol, ["checkConstraints"]))
    transaction.commit()


def test_due_maintenance_fails_if_it_is_denied_or_overdue(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, partitions=[{}] * 3)
    denied = check_of(catalog, instance, TableCheck.MAINTENANCE, maintenance=POLICY)
    assert not denied.passed and denied.metadata["cm_delta/denied_tasks"] == 1
    assert denied.text.startswith("Compact is due (3 of 3 files are small) and denied: ")
    rule = MaintenanceRule(scope="main.s", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    catalog.client.maintenance_policies.set_maintenance_rule(rule)
    due = check_of(catalog, instance, TableCheck.MAINTENANCE, maintenance=POLICY)
    assert due.passed and due.text == "Due and permitted: compact (3 of 3 files are small)."
    commit(table, partitions=[{}] * 3)
    overdue = check_of(catalog, instance, TableCheck.MAINTENANCE, maintenance=POLICY)
    assert not overdue.passed and overdue.text == "Compact is overdue (6 of 6 files are small)."


def test_a_commit_that_waits_for_an_approval_fails_until_it_is_decided(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    rule = CommitRule(
        scope="main",
        name="keep",
        kind=CommitRuleKind.APPEND_ONLY,
        on_violation=OnViolation.APPROVAL,
        contact="the data team",
    )
    catalog.client.commit_rules.set_commit_rule(rule)
    assert run_one(catalog, instance, TableCheck.APPROVALS).passed
    with pytest.raises(ApprovalRequiredError) as caught:
        commit(table, replace=True)
    waiting = run_one(catalog, instance, TableCheck.APPROVALS)
    assert (waiting.passed, waiting.severity.value) == (False, "ERROR")
    command = f"cm-delta rules approve {caught.value.approval_id}"
    assert waiting.metadata["cm_delta/approve_command"].value == command
    assert command in waiting.description and "the data team" in waiting.description
    catalog.client.holds.reject_hold(caught.value.approval_id, reason="a mistake")
    assert run_one(catalog, instance, TableCheck.APPROVALS).passed


def test_the_health_check_shows_what_doctor_finds(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, size=4)
    publish(table)
    assert check_of(catalog, instance, TableCheck.HEALTH).passed
    table.store.delete(f"{table.location}/part-1-0.parquet")
    broken = check_of(catalog, instance, TableCheck.HEALTH)
    assert not broken.passed and broken.is_error
    assert broken.metadata["cm_delta/findings"] >= 1 and "part-1-0.parquet" in broken.text


@pytest.mark.slow
def test_a_damaged_log_fails_the_checks_that_read_it(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    publish(table)
    catalog.client.wait_for_background()
    for status in table.store.list_recursive(log_files.log_directory(table.location)):
        table.store.delete(status.location)
    catalog.client.forget(table.table_id)
    evaluation = run_one(catalog, instance, TableCheck.ROW_COUNT)
    assert not evaluation.passed and evaluation.description.startswith("The check could not be computed: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checks": [TableCheck.FRESHNESS]}, "needs the setting max_age"),
        ({"checks": [TableCheck.MAINTENANCE]}, "needs the setting maintenance"),
        ({"checks": []}, "No check is chosen"),
        ({"checks": ["row_counts"]}, r"no check 'row_counts'\. The checks are health, .*row_count,"),
        ({"checks": "row_count"}, r"checks is the text 'row_count'; give a list"),
    ],
)
def test_checks_without_their_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table_checks(SPEC, **arguments)


def test_checks_of_what_is_no_asset_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="give an asset, an AssetSpec or an AssetKey"):
        table_checks("sales/orders")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_staged_commits": -1}, "max_staged_commits"),
        ({"min_rows": 2, "max_rows": 1}, "above max_rows"),
        ({"max_age": timedelta(0)}, "positive duration"),
        ({"max_age": 26}, "max_age is 26, which has no unit"),
        ({"overdue_factor": 0.5}, "at least 1"),
    ],
)
def test_impossible_limits_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        CheckSettings(**settings)
