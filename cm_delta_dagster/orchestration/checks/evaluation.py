"""The checks. Each reads the catalog and the log, and no data file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pyarrow.compute as pc

from cm_delta_dagster.advice import EntryPoint, advice
from cm_delta_dagster.catalog.holds import WaitsFor
from cm_delta_dagster.client.snapshots.log_reader import hinted_version
from cm_delta_dagster.operations.doctor.doctor import doctor
from cm_delta_dagster.operations.doctor.findings import Severity
from cm_delta_dagster.operations.maintenance.clean_log import plan_clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.optimize import plan_optimize
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.orchestration.checks.observation import ObservedTable
from cm_delta_dagster.orchestration.checks.settings import TableCheck
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import MaintenancePolicy, MaintenanceTask, due_tasks
from cm_delta_dagster.orchestration.metadata.metadata import PARTITION_ROW_COUNT, stored_figures
from cm_delta_dagster.orchestration.metadata.partitions import keys_text, partition_slice
from cm_delta_dagster.orchestration.metadata.schema_changes import (
    SCHEMA_CHANGES,
    KnownColumn,
    change_table,
    changes,
    columns_of,
    declared_columns,
    decoded,
    encoded,
)
from cm_delta_dagster.orchestration.runs.refusals import APPROVAL_ID, APPROVE_COMMAND, approve_command
from cm_delta_dagster.protocol.features.constraints import check_constraints
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import AddConstraint, CheckTable, DecideApproval

EXPECTED_SCHEMA = "cm_delta/expected_schema"

_LOG_CLEANUPS = (MaintenanceTask.CLEAN_LOG, MaintenanceTask.CLEAN_STAGED_COMMITS)
"""Tasks that stay due in the log after they were done, so that it does not show whether they are overdue."""
_MAX_FINDINGS = 50
_HISTORY = 20
"""Earlier executions of the check among which the last result is looked for; a planned one has no result yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one check. ``is_error``: a failure is an error, not a warning."""

    passed: bool
    text: str
    is_error: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def evaluate(check: TableCheck, seen: ObservedTable) -> Outcome:
    """Run one check.

    Raises:
        StorageError, CatalogError: a request failed.
        CorruptLogError: the log is damaged, for checks that need a snapshot.
    """
    return _CHECKS[check](seen)


def _limited(number: int, limit: int, what: str, *, advice: str, metadata: Mapping[str, Any]) -> Outcome:
    """The outcome of a number that has an upper limit."""
    passed = number <= limit
    text = f"{what}: {number:,}; the limit is {limit:,}." + ("" if passed else f" {advice}")
    return Outcome(passed=passed, text=text, metadata=metadata)


def _health(seen: ObservedTable) -> Outcome:
    report = doctor(seen.table)
    entries: dict[str, Any] = {
        "cm_delta/checked_commits": report.num_commits,
        "cm_delta/checked_files": report.num_files,
        "cm_delta/findings": len(report.findings),
    }
    if report.findings:
        names = ("severity", "problem", "where", "message")
        entries["cm_delta/finding_list"] = dg.MetadataValue.table(
            records=[
                dg.TableRecord({name: str(getattr(finding, name)) for name in names})
                for finding in report.findings[:_MAX_FINDINGS]
            ],
            schema=dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in names]),
        )
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    warnings = [finding for finding in report.findings if finding.severity is Severity.WARNING]
    if not errors and not warnings:
        text = f"Doctor found no problem in {report.num_commits:,} commits and {report.num_files:,} files."
        return Outcome(passed=True, text=text, metadata=entries)
    first = (errors or warnings)[0]
    text = (
        f"Doctor found {_counted(len(errors), 'error')} and {_counted(len(warnings), 'warning')}, first: {first.where}: "
        f"{first.message} {advice(CheckTable(table=str(report.identifier)))}"
    )
    return Outcome(passed=False, is_error=bool(errors), text=text, metadata=entries)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _unpublished_commits(seen: ObservedTable) -> Outcome:
    number = seen.snapshot.version - seen.snapshot.published_version
    return _limited(
        number,
        seen.settings.max_unpublished_commits,
        "Ratified commits that are not published in _delta_log",
        advice="Run the maintenance task publish.",
        metadata={
            "cm_delta/unpublished_commits": number,
            "cm_delta/commit_version": seen.snapshot.version,
            "cm_delta/published_version": seen.snapshot.published_version,
        },
    )


def _staged_commits(seen: ObservedTable) -> Outcome:
    plan = plan_clean_staged_commits(seen.table)
    outcome = _limited(
        len(seen.staged),
        seen.settings.max_staged_commits,
        "Files in _staged_commits",
        advice="Run the maintenance task clean_staged_commits.",
        metadata={
            "cm_delta/staged_files": len(seen.staged),
            "cm_delta/staged_bytes": sum(status.size for status in seen.staged),
            "cm_delta/deletable_files": plan.num_files,
        },
    )
    return replace(outcome, text=f"{outcome.text} Of them, {plan.num_files:,} can be deleted.")


def _small_files(seen: ObservedTable) -> Outcome:
    policy, snapshot = seen.settings.policy, seen.snapshot
    plan = plan_optimize(seen.table, target_size=policy.target_file_bytes, min_size=policy.small_file_bytes)
    share = plan.num_files / snapshot.num_files if snapshot.num_files else 0.0
    small = pc.sum(pc.less(snapshot.files["size"], policy.small_file_bytes)).as_py() or 0
    passed = plan.num_files < policy.min_small_files or share < policy.min_small_file_ratio
    text = (
        f"Compaction would join {plan.num_files:,} of {snapshot.num_files:,} files ({share:.0%}); the limits are "
        f"{policy.min_small_files:,} files and {policy.min_small_file_ratio:.0%}."
    )
    entries = {
        "cm_delta/files": snapshot.num_files,
        "cm_delta/small_files": small,
        "cm_delta/joinable_files": plan.num_files,
        "cm_delta/mean_file_bytes": snapshot.size_bytes // max(snapshot.num_files, 1),
    }
    return Outcome(
        passed=passed, text=text + ("" if passed else " Run the maintenance task compact."), metadata=entries
    )


def _log_size(seen: ObservedTable) -> Outcome:
    settings = seen.settings
    size = sum(status.size for status in seen.log)
    passed = len(seen.log) <= settings.max_log_files and size <= settings.max_log_bytes
    text = (
        f"The log has {len(seen.log):,} files and {size_text(size)}; the limits are {settings.max_log_files:,} files and "
        f"{size_text(settings.max_log_bytes)}."
    )
    entries = {"cm_delta/log_files": len(seen.log), "cm_delta/log_bytes": size}
    return Outcome(
        passed=passed, text=text + ("" if passed else " Run the maintenance task clean_log."), metadata=entries
    )


def _checkpoint_lag(seen: ObservedTable) -> Outcome:
    newest = hinted_version(seen.table.store, seen.table.location)
    behind = seen.snapshot.version - newest
    entries = {"cm_delta/commits_since_checkpoint": behind}
    if newest >= 0:
        entries["cm_delta/checkpoint_version"] = newest
    return _limited(
        behind,
        seen.settings.max_commits_since_checkpoint,
        "Commits since the newest checkpoint" if newest >= 0 else "Commits, without a checkpoint",
        advice="Run the maintenance task checkpoint.",
        metadata=entries,
    )


def _freshness(seen: ObservedTable) -> Outcome:
    assert seen.settings.max_age is not None
    changed_ms, is_exact = seen.data_changed_ms
    age_s = max(0.0, (seen.table.services.now_ms() - changed_ms) / 1000)
    limit_s = seen.settings.max_age.total_seconds()
    old = "" if is_exact else "more than "
    text = f"The data changed {old}{_age_text(age_s)} ago; the limit is {_age_text(limit_s)}."
    return Outcome(
        passed=age_s <= limit_s,
        is_error=True,
        text=text,
        metadata={
            "cm_delta/data_version": seen.snapshot.data_version,
            "cm_delta/changed_at": dg.MetadataValue.timestamp(changed_ms / 1000),
            "cm_delta/age_seconds": round(age_s, 3),
        },
    )


def _age_text(seconds: float) -> str:
    for length, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {name}"
    return f"{seconds:.0f} seconds"


def _row_count(seen: ObservedTable) -> Outcome:
    settings, rows = seen.settings, seen.snapshot.num_rows
    if rows is None:
        bounded = (settings.min_rows, settings.max_rows, settings.max_row_change) != (None, None, None)
        text = "The number of rows is unknown, because some files have no row count in the log."
        return Outcome(passed=not bounded, is_error=bounded, text=text)
    entries: dict[str, Any] = {"dagster/row_count": rows}
    wrong = _bounds_text(rows, settings.min_rows, settings.max_rows)
    text = f"The table has {rows:,} rows{wrong}."
    before = seen.rows_before_change()
    if before is not None:
        change = rows - before
        entries |= {"cm_delta/row_change": change}
        text += f" Version {seen.snapshot.data_version} changed their number by {change:+,}"
        if before:
            entries |= {"cm_delta/row_change_ratio": round(change / before, 6)}
            text += f" ({change / before:+.1%})"
        limit = settings.max_row_change
        is_too_large = limit is not None and before > 0 and abs(change) > limit * before
        text += f", which exceeds the limit of {limit:.1%}." if is_too_large and limit is not None else "."
        wrong += "x" if is_too_large else ""
    return Outcome(passed=not wrong, is_error=True, text=text, metadata=entries)


def _bounds_text(rows: int, least: int | None, most: int | None) -> str:
    if least is not None and rows < least:
        return f", fewer than the minimum of {least:,}"
    if most is not None and rows > most:
        return f", more than the maximum of {most:,}"
    return ""


def _partition_row_count(seen: ObservedTable) -> Outcome:
    keys, settings = seen.materialized_partitions(), seen.settings
    if seen.asset.partitions is None or not keys:
        return Outcome(passed=True, text="No partition is materialized.")
    part = partition_slice(
        seen.asset.partitions, keys=keys, partition_expr=seen.asset.partition_expr, schema=seen.snapshot.schema
    )
    figures = stored_figures(seen.snapshot, part)
    counts = {
        key: figures_of_key[PARTITION_ROW_COUNT]
        for key, figures_of_key in figures.items()
        if PARTITION_ROW_COUNT in figures_of_key
    }
    wrong = {
        key: rows
        for key, rows in counts.items()
        if _bounds_text(rows, settings.min_rows_per_partition, settings.max_rows_per_partition)
    }
    entries: dict[str, Any] = {"cm_delta/counted_partitions": len(counts), "cm_delta/wrong_partitions": len(wrong)}
    if not counts:
        text = "The log does not show the rows of a partition: files have rows of several partitions, or no row counts."
        return Outcome(passed=False, is_error=True, text=text, metadata=entries)
    entries |= {"cm_delta/least_rows": min(counts.values()), "cm_delta/most_rows": max(counts.values())}
    if not wrong:
        text = f"{len(counts):,} partitions have {min(counts.values()):,} to {max(counts.values()):,} rows."
        return Outcome(passed=True, text=text, metadata=entries)
    entries["cm_delta/partitions"] = dg.MetadataValue.table(
        records=[dg.TableRecord({"partition": key, "rows": rows}) for key, rows in list(wrong.items())[:_MAX_FINDINGS]],
        schema=dg.TableSchema(columns=[dg.TableColumn("partition", "string"), dg.TableColumn("rows", "int")]),
    )
    text = f"{len(wrong):,} of {len(counts):,} partitions have too few or too many rows: {keys_text(list(wrong))}."
    return Outcome(passed=False, is_error=True, text=text, metadata=entries)


def _schema_change(seen: ObservedTable) -> Outcome:
    columns = columns_of(seen.snapshot.schema)
    declared = seen.asset.column_schema
    accepted = None if declared is not None else _accepted(seen)
    expected = declared_columns(declared) if declared is not None else accepted
    if expected is None or (seen.accepts_schema and declared is None):
        text = f"The schema of version {seen.snapshot.version} is the accepted one from now on."
        return Outcome(passed=True, text=text, metadata={EXPECTED_SCHEMA: encoded(columns)})
    differences = changes(expected, columns)
    breaking = [change for change in differences if change.is_breaking or not seen.settings.allow_new_columns]
    entries: dict[str, Any] = {"cm_delta/changed_columns": len(differences)}
    if differences:
        entries[SCHEMA_CHANGES] = change_table(differences)
    if declared is None:
        entries[EXPECTED_SCHEMA] = encoded(expected if breaking else columns)
    baseline = "the declared schema" if declared is not None else "the accepted schema"
    if not differences:
        return Outcome(passed=True, text=f"The columns are those of {baseline}.", metadata=entries)
    listed = ", ".join(f"{difference.column} {difference.change}" for difference in differences)
    if not breaking:
        return Outcome(passed=True, text=f"New columns since {baseline}: {listed}.", metadata=entries)
    remedy = (
        "Correct the table, or declare the new schema."
        if declared is not None
        else "Correct the table, or run the check with the tag cm_delta_checks/accept_schema=true to accept it."
    )
    text = f"The schema differs from {baseline}: {listed}. {remedy}"
    return Outcome(passed=False, is_error=True, text=text, metadata=entries)


def _accepted(seen: ObservedTable) -> tuple[KnownColumn, ...] | None:
    """The schema that the last result of this check has as accepted."""
    key = dg.AssetCheckKey(seen.asset.key, TableCheck.SCHEMA_CHANGE.value)
    for record in seen.instance.event_log_storage.get_asset_check_execution_history(key, limit=_HISTORY):
        event = None if record.event is None else record.event.dagster_event
        known = getattr(None if event is None else event.event_specific_data, "metadata", {}).get(EXPECTED_SCHEMA)
        if known is not None:
            return decoded(known.value)
    return None


def _constraints(seen: ObservedTable) -> Outcome:
    stored = {
        constraint.name.lower(): constraint.expression
        for constraint in check_constraints(seen.snapshot.metadata.configuration)
    }
    declared = seen.settings.constraints
    missing = [name for name in declared if name.lower() not in stored]
    different = [
        name
        for name, expression in declared.items()
        if name not in missing and _plain(stored[name.lower()]) != _plain(expression)
    ]
    entries = {"cm_delta/constraints": dg.MetadataValue.json(stored)}
    if not missing and not different:
        text = f"The table has the {len(declared)} declared constraints, and every write is checked by them."
        return Outcome(passed=True, text=text, metadata=entries)
    problems = [f"{name} is missing" for name in missing]
    problems += [f"{name} is ({stored[name.lower()]}) and not ({declared[name]})" for name in different]
    text = f"Rows that violate a declared constraint can be written: {'; '.join(problems)}. {advice(AddConstraint())}"
    return Outcome(passed=False, is_error=True, text=text, metadata=entries)


def _plain(expression: str) -> str:
    return "".join(expression.split()).lower()


def _approvals(seen: ObservedTable) -> Outcome:
    holds = seen.table.services.holds.holds(table_id=seen.table.table_id)
    waiting = [hold for hold in holds if hold.waits_for is WaitsFor.APPROVAL]
    entries: dict[str, Any] = {"cm_delta/waiting_commits": len(waiting)}
    if not waiting:
        return Outcome(passed=True, text="No commit waits for an approval.", metadata=entries)
    oldest = waiting[0]
    entries |= {APPROVAL_ID: oldest.hold_id, APPROVE_COMMAND: approve_command(oldest.hold_id)}
    names = ("approval_id", "operation", "what", "ask", "until")
    records = [
        dict(
            zip(
                names,
                (
                    hold.hold_id,
                    ", ".join(table.operation for table in hold.tables),
                    "; ".join(hold.what),
                    ", ".join(hold.contacts),
                    utc_text(hold.expires_ms),
                ),
                strict=True,
            )
        )
        for hold in waiting[:_MAX_FINDINGS]
    ]
    entries["cm_delta/approvals"] = dg.MetadataValue.table(
        records=[dg.TableRecord(record) for record in records],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in names]),
    )
    text = (
        f"{_counted(len(waiting), 'commit')} of {seen.table.identifier} wait for an approval, first: {'; '.join(oldest.what)}. "
        f"Ask {' or '.join(oldest.contacts)} to decide. {advice(DecideApproval(approval_id=oldest.hold_id), EntryPoint.SHELL)}"
    )
    return Outcome(passed=False, is_error=True, text=text, metadata=entries)


def _maintenance(seen: ObservedTable) -> Outcome:
    policy = seen.settings.policy
    due = due_tasks(seen.table, policy)
    denied: dict[str, str] = {}
    for item in due:
        kind = item.task.permission
        decision = None if kind is None else seen.table.maintenance_decision(kind)
        if decision is not None and not decision.allowed and _has_work(seen, item.task):
            denied[item.task.value] = (
                f"{item.task.value} is due ({item.reason}) and denied: {decision.reason or 'no reason given'} (decided by "
                f"{decision.decided_by})"
            )
    late = due_tasks(seen.table, _scaled(policy, seen.settings.overdue_factor)) if due else ()
    overdue = {
        item.task.value: f"{item.task.value} is overdue ({item.reason})"
        for item in late
        if item.task not in _LOG_CLEANUPS
    }
    problems = {**overdue, **denied}
    entries = {
        "cm_delta/due_tasks": len(due),
        "cm_delta/denied_tasks": len(denied),
        "cm_delta/overdue_tasks": len(problems) - len(denied),
    }
    if problems:
        text = f"{'; '.join(problems.values())}."
        return Outcome(passed=False, text=text[0].upper() + text[1:], metadata=entries)
    waiting = ", ".join(f"{item.task.value} ({item.reason})" for item in due)
    text = f"Due and permitted: {waiting}." if due else "No maintenance task is due."
    return Outcome(passed=True, text=text, metadata=entries)


def _has_work(seen: ObservedTable, task: MaintenanceTask) -> bool:
    """Whether a due task would do anything. Log cleanups are due after a number of commits, also if nothing has expired."""
    if task is MaintenanceTask.CLEAN_LOG:
        plan = plan_clean_log(seen.table)
        return bool(plan.log_names or plan.staged_names or plan.sidecar_names)
    return task is not MaintenanceTask.CLEAN_STAGED_COMMITS or plan_clean_staged_commits(seen.table).num_files > 0


def _scaled(policy: MaintenancePolicy, factor: float) -> MaintenancePolicy:
    """The policy with thresholds that are ``factor`` times as high."""
    return replace(
        policy,
        commits_since_checkpoint=round(policy.commits_since_checkpoint * factor),
        unpublished_commits=round(policy.unpublished_commits * factor),
        min_small_files=round(policy.min_small_files * factor),
        tombstone_bytes=round(policy.tombstone_bytes * factor),
    )


_CHECKS: Mapping[TableCheck, Callable[[ObservedTable], Outcome]] = {
    TableCheck.HEALTH: _health,
    TableCheck.UNPUBLISHED_COMMITS: _unpublished_commits,
    TableCheck.STAGED_COMMITS: _staged_commits,
    TableCheck.SMALL_FILES: _small_files,
    TableCheck.LOG_SIZE: _log_size,
    TableCheck.CHECKPOINT_LAG: _checkpoint_lag,
    TableCheck.FRESHNESS: _freshness,
    TableCheck.ROW_COUNT: _row_count,
    TableCheck.PARTITION_ROW_COUNT: _partition_row_count,
    TableCheck.SCHEMA_CHANGE: _schema_change,
    TableCheck.CONSTRAINTS: _constraints,
    TableCheck.APPROVALS: _approvals,
    TableCheck.MAINTENANCE: _maintenance,
}
