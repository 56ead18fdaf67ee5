"""Acts of a client after the harm."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.operations.doctor import DoctorReport, Finding, Severity, doctor, repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.recovery.plan import StagedCandidate
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from tests.disasters.place import NAME, OLD_VERSION, ROWS_PER_FILE, append_rows
from tests.disasters.vocabulary import Act

NEW_ID = 500
NEW_IDS = frozenset(range(NEW_ID, NEW_ID + ROWS_PER_FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of an act: rows read, problems found, findings repaired, whether commits were recovered, and lost versions."""

    ids: tuple[int, ...] | None = None
    problems: frozenset[str] | None = None
    repaired: frozenset[str] = frozenset()
    recovered: bool | None = None
    lost: frozenset[int] = frozenset()


def read_ids(client: DeltaClient, version: int | None = None) -> tuple[int, ...]:
    """Ids of all rows, sorted, with duplicates."""
    return tuple(sorted(read_arrow(open_scan(client.table(NAME), version=version))["id"].to_pylist()))


def perform(act: Act, client: DeltaClient, *, warehouse: str, spark: SparkSession | None = None) -> Answer:
    """Carry out an act. Errors of the package propagate."""
    if act is Act.OPTIMIZE:
        assert spark is not None
        optimize(client.table(NAME), spark=spark)
        return Answer()
    if act is Act.RECOVER:
        return _recover(client, warehouse)
    return _ACTS[act](client)


def _append(client: DeltaClient) -> Answer:
    append_rows(client.table(NAME), first_id=NEW_ID)
    return Answer()


def _doctor(client: DeltaClient) -> Answer:
    return Answer(problems=problems(doctor(client.table(NAME))))


def _repair(client: DeltaClient) -> Answer:
    report = repair_table(client.table(NAME))
    return Answer(problems=problems(report), repaired=_named(report.repaired))


def problems(report: DoctorReport) -> frozenset[str]:
    """The problems of a report, without notes."""
    return _named(finding for finding in report.findings if finding.severity is not Severity.NOTE)


def _named(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(f"{finding.problem.value} {finding.where}" for finding in findings)


def _recover(client: DeltaClient, warehouse: str) -> Answer:
    """Make a plan, choose every staged file that can follow, and carry it out; without a table, from the warehouse."""
    try:
        client.table(NAME)
    except TableNotFoundError:
        found = plan_warehouse_recovery(client, warehouse=warehouse)
        chosen = _that_follow(staged for table in found.tables for staged in table.staged)
        adopted = recover_warehouse(client, plan_warehouse_recovery(client, warehouse=warehouse, take_staged=chosen))
        lost = frozenset(one.version for table in adopted.tables for one in table.lost)
        return Answer(recovered=bool(adopted.tables), lost=lost)
    plan = plan_recovery(client, tables=[NAME])
    chosen = _that_follow(staged for table in plan.tables for staged in table.staged)
    taken = recover(client, plan_recovery(client, tables=[NAME], take_staged=chosen) if chosen else plan)
    lost = frozenset(one.version for table in plan.tables for one in table.lost)
    return Answer(recovered=bool(taken.num_commits), lost=lost)


def _that_follow(candidates: Iterable[StagedCandidate]) -> list[str]:
    return [staged.name for staged in candidates if staged.problem is None]


def _without_answer(verb: Callable[[Any], object]) -> Callable[[DeltaClient], Answer]:
    def act(client: DeltaClient) -> Answer:
        verb(client.table(NAME))
        return Answer()

    return act


_ACTS: dict[Act, Callable[[DeltaClient], Answer]] = {
    Act.READ_LATEST: lambda client: Answer(ids=read_ids(client)),
    Act.READ_OLD: lambda client: Answer(ids=read_ids(client, OLD_VERSION)),
    Act.APPEND: _append,
    Act.PUBLISH: _without_answer(publish),
    Act.CHECKPOINT: _without_answer(checkpoint),
    Act.VACUUM: _without_answer(vacuum),
    Act.CLEAN_LOG: _without_answer(clean_log),
    Act.CLEAN_STAGED: _without_answer(clean_staged_commits),
    Act.DOCTOR: _doctor,
    Act.REPAIR: _repair,
}
