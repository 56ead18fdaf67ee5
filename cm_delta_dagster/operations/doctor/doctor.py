"""DOCTOR: compares the catalog's records of a table with its storage, and repairs what is provably safe.

A repair writes ratified bytes or a file that a proven state determines, advances the published version over commits that are in
the log, or removes a file that the protocol makes optional. :mod:`~cm_delta_dagster.operations.doctor.repairs` keeps a copy of
every file that it replaces. The exception is a commit that no reader can use: with the consent of an owner of the table,
:mod:`~cm_delta_dagster.operations.doctor.take_back` replaces it by another one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import ReportProgress
from cm_delta_dagster.operations.doctor.check_table import CheckedTable, check_table
from cm_delta_dagster.operations.doctor.findings import Depth, Finding, Repair, Severity, text_of
from cm_delta_dagster.operations.doctor.repair_plan import DoctorReport, RepairPlan, RepairStep, make_plan
from cm_delta_dagster.operations.doctor.repairs import Repairs

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def doctor(table: Table, *, depth: Depth = Depth.LISTING, progress: ReportProgress | None = None) -> DoctorReport:
    """Check a table; changes nothing.

    The check reads every commit and rebuilds every version, so its time grows with the length of the log. It also works on a
    table that cannot be loaded and needs no permission. Other clients can read and write meanwhile.

    Args:
        depth: whether footers and deletion vectors of the data files are read.
        progress: called with the number of data files read and the total, while they are read.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogError: a request to storage or catalog failed.
    """
    check = check_table(table, depth=depth, progress=progress)
    return _report(table, check, make_plan(table, check))


def repair_table(
    table: Table,
    *,
    take_back: Collection[int] = (),
    depth: Depth = Depth.LISTING,
    progress: ReportProgress | None = None,
    on_plan: Callable[[RepairPlan], None] | None = None,
) -> DoctorReport:
    """Check a table, carry out the plan of repairs, and check again.

    A repair needs permission to write the kind of file that it writes.

    Args:
        take_back: versions whose commits no reader can use, and that an owner of the table consents to take back. Their finding
            says what is taken back. Other findings are never repaired in this way.
        on_plan: called with the plan before the first repair.

    Raises:
        InvalidArgumentError: ``take_back`` names a version that has no such finding.
        CmDeltaError: as :func:`doctor`.
    """
    check = check_table(table, depth=depth, progress=progress)
    plan = make_plan(table, check, take_back=take_back)
    _check_consent(table, plan, take_back)
    if on_plan is not None:
        on_plan(plan)
    return _repaired(table, check, plan, depth=depth, progress=progress)


def apply_repair(table: Table, plan: RepairPlan) -> DoctorReport:
    """Carry out the steps of ``plan`` whose finding is still there, and check again. Raises as :func:`repair_table`.

    A commit that is taken back is followed by the repair of what is derived from the commits, as the plan cannot know it before.
    """
    check = check_table(table, depth=Depth.LISTING)
    now = make_plan(table, check, take_back=plan.taken_back)
    return _repaired(table, check, replace(now, steps=tuple(step for step in now.steps if step in plan.steps)))


def _repaired(
    table: Table,
    check: CheckedTable,
    plan: RepairPlan,
    *,
    depth: Depth = Depth.LISTING,
    progress: ReportProgress | None = None,
) -> DoctorReport:
    if not plan.steps:
        return _report(table, check, plan)
    repaired: list[Finding] = []
    failed: list[str] = []
    taken_back = [step for step in plan.steps if step.repair is Repair.TAKE_BACK]
    _carry_out(table, check, taken_back, repaired, failed)
    if repaired:
        # What is derived from the commits can be proven now.
        check = check_table(table, depth=depth, progress=progress)
        plan = make_plan(table, check)
    others = [step for step in plan.steps if step.repair is not Repair.TAKE_BACK]
    _carry_out(table, check, others, repaired, failed)
    # Repairs do not change data files, so the result of reading them still holds.
    after = check_table(table, depth=Depth.LISTING)
    if check.deep is not None:
        after = replace(after, deep=check.deep, findings=(*after.findings, *check.deep.findings))
    report = _report(table, after, make_plan(table, after))
    return replace(report, repaired=tuple(repaired), failed=tuple(failed))


def _carry_out(
    table: Table, check: CheckedTable, steps: Sequence[RepairStep], repaired: list[Finding], failed: list[str]
) -> None:
    repairs = Repairs(table, check)
    for step in steps:
        try:
            repairs.carry_out(step)
            repaired.append(step.finding)
        except CmDeltaError as error:
            failed.append(f"{step.finding.where}: {text_of(error, table.identifier)}")


def _check_consent(table: Table, plan: RepairPlan, take_back: Collection[int]) -> None:
    """Refuse a consent that does not match a finding."""
    wrong = sorted(version for version in take_back if version not in plan.taken_back)
    if wrong:
        raise InvalidArgumentError(
            f"The commit of version {wrong[0]} of {table.identifier} cannot be taken back: that is only for a commit that no "
            "reader can use, which a finding of doctor says. Nothing was changed. To undo another commit, restore an older version."
        )


def plan_repair(table: Table, *, take_back: Collection[int] = ()) -> RepairPlan:
    """Return the repairs that :func:`repair_table` would carry out; changes nothing. Raises the same errors."""
    plan = make_plan(table, check_table(table, depth=Depth.LISTING), take_back=take_back)
    _check_consent(table, plan, take_back)
    return plan


def _report(table: Table, check: CheckedTable, plan: RepairPlan) -> DoctorReport:
    deep = check.deep
    return DoctorReport(
        identifier=str(table.identifier),
        table_id=table.table_id,
        location=table.location,
        version=check.seen.latest,
        published_version=check.seen.published,
        num_commits=check.num_commits,
        num_files=check.num_files,
        findings=tuple(sorted(check.findings, key=lambda finding: _RANK[finding.severity])),
        plan=plan,
        num_files_read=0 if deep is None else deep.num_files,
        num_files_without_row_count=0 if deep is None else deep.num_without_row_count,
    )
