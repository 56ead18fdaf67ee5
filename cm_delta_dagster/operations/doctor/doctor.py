"""DOCTOR: compares what the catalog says of a table with what storage holds; repairs what is provably safe.

A repair writes bytes that were ratified, or files that a proven state determines; it moves the published version over what is
there, or takes away a file that the protocol makes optional. Nothing is lost by one: see
:mod:`~cm_delta_dagster.operations.doctor.repairs`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.doctor.examination import Examination, Progress, examine
from cm_delta_dagster.operations.doctor.findings import Depth, Finding, Severity
from cm_delta_dagster.operations.doctor.repair_plan import RepairPlan, make_plan
from cm_delta_dagster.operations.doctor.repairs import Repairs

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """What was found at one moment; after repairs, what is still there.

    Attributes:
        version: latest version, by the catalog.
        num_commits: commits whose bytes were compared with the catalog's record.
        num_files: data files and deletion vectors of the latest version that were looked for.
        num_files_read: data files whose footer was read.
        num_files_unjudged: of these, files of which the log does not say how many rows they have.
        findings: worst first.
        plan: what a repair would do about the findings.
        repaired: findings that were repaired.
        failed: repairs that were not carried out, and why.
    """

    identifier: str
    table_id: str
    location: str
    version: int
    published_version: int
    num_commits: int
    num_files: int
    findings: tuple[Finding, ...]
    plan: RepairPlan
    num_files_read: int = 0
    num_files_unjudged: int = 0
    repaired: tuple[Finding, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing was found that gives wrong answers or errors, now or later."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    @property
    def repairable(self) -> tuple[Finding, ...]:
        """Findings that a repair would deal with."""
        return tuple(step.finding for step in self.plan.steps)


def doctor(
    table: Table,
    *,
    repair: bool = False,
    depth: Depth = Depth.LISTING,
    progress: Progress | None = None,
    on_plan: Callable[[RepairPlan], None] | None = None,
) -> DoctorReport:
    """Look at everything; with ``repair``, repair what is provably safe and look again.

    It reads every commit and rebuilds every version, so it takes as long as the log is. It needs no table that can be loaded, and
    no permission to look; a repair asks for that of the file it writes. Other clients may go on meanwhile.

    Args:
        depth: whether the data files are read as well.
        progress: called with the number of data files read and that of all, while they are read.
        on_plan: called with the plan before the first repair.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogError: storage or catalog cannot be asked; that is no finding.
    """
    examination = examine(table, depth=depth, progress=progress)
    plan = make_plan(table, examination)
    if not repair:
        return _report(table, examination, plan)
    if on_plan is not None:
        on_plan(plan)
    if not plan.steps:
        return _report(table, examination, plan)
    repaired: list[Finding] = []
    failed: list[str] = []
    repairs = Repairs(table, examination)
    for step in plan.steps:
        try:
            repairs.carry_out(step)
            repaired.append(step.finding)
        except CmDeltaError as error:
            failed.append(f"{step.finding.where}: {error}")
    # No repair changes a data file: what reading them gave holds still.
    after = examine(table, depth=Depth.LISTING)
    if examination.deep is not None:
        after = replace(after, deep=examination.deep, findings=(*after.findings, *examination.deep.findings))
    report = _report(table, after, make_plan(table, after))
    return replace(report, repaired=tuple(repaired), failed=tuple(failed))


def plan_repair(table: Table) -> RepairPlan:
    """What :func:`doctor` with ``repair`` would do; changes nothing. Errors as there."""
    return make_plan(table, examine(table, depth=Depth.LISTING))


def _report(table: Table, examination: Examination, plan: RepairPlan) -> DoctorReport:
    deep = examination.deep
    return DoctorReport(
        identifier=str(table.identifier),
        table_id=table.table_id,
        location=table.location,
        version=examination.seen.latest,
        published_version=examination.seen.published,
        num_commits=examination.num_commits,
        num_files=examination.num_files,
        findings=tuple(sorted(examination.findings, key=lambda finding: _RANK[finding.severity])),
        plan=plan,
        num_files_read=0 if deep is None else deep.num_files,
        num_files_unjudged=0 if deep is None else deep.num_unjudged,
    )
