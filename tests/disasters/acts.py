"""What a client does after the harm."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.checkpoint import checkpoint
from cm_delta_dagster.operations.clean_log import clean_log
from cm_delta_dagster.operations.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.doctor import DoctorReport, Finding, Severity, doctor
from cm_delta_dagster.operations.publish import publish
from cm_delta_dagster.operations.read_arrow import read_arrow
from cm_delta_dagster.operations.vacuum import vacuum

from .place import NAME, OLD_VERSION, ROWS_PER_FILE, append_rows
from .vocabulary import Act

NEW_ID = 500
NEW_IDS = frozenset(range(NEW_ID, NEW_ID + ROWS_PER_FILE))

CAN_RECOVER = importlib.util.find_spec("cm_delta_dagster.operations.recovery") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an act gave: rows that were read, problems that were found, whether something was repaired or recovered."""

    ids: tuple[int, ...] | None = None
    problems: frozenset[str] | None = None
    repaired: frozenset[str] = frozenset()
    recovered: bool | None = None


def read_ids(client: DeltaClient, version: int | None = None) -> tuple[int, ...]:
    """The rows, sorted; a row that comes twice comes twice here too."""
    return tuple(sorted(read_arrow(client.table(NAME), version=version)["id"].to_pylist()))


def perform(act: Act, client: DeltaClient, spark: SparkSession | None = None) -> Answer:
    """Do it. Whatever the package raises goes through."""
    if act is Act.OPTIMIZE:
        from cm_delta_dagster.operations.optimize import optimize

        assert spark is not None
        optimize(client.table(NAME), spark=spark)
        return Answer()
    return _ACTS[act](client)


def _append(client: DeltaClient) -> Answer:
    append_rows(client.table(NAME), first_id=NEW_ID)
    return Answer()


def _doctor(client: DeltaClient) -> Answer:
    return Answer(problems=problems(doctor(client.table(NAME))))


def _repair(client: DeltaClient) -> Answer:
    report = doctor(client.table(NAME), repair=True)
    return Answer(problems=problems(report), repaired=_named(report.repaired))


def problems(report: DoctorReport) -> frozenset[str]:
    """Which problems there are, without notes on what may be cleaned up."""
    return _named(finding for finding in report.findings if finding.severity is not Severity.NOTE)


def _named(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(f"{finding.problem.value} {finding.where}" for finding in findings)


def _recover(client: DeltaClient) -> Answer:
    """The one place that knows how recovery is called."""
    recovery = importlib.import_module("cm_delta_dagster.operations.recovery")
    plan: Any = recovery.plan_recover(client.table(NAME))
    done: Any = recovery.recover(client.table(NAME))
    return Answer(recovered=bool(dataclasses.astuple(plan) and done))


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
    Act.RECOVER: _recover,
}
