"""Which repairs ``doctor`` carries out, in which order, and for which findings it has none. Values only.

Repairs of commits come first, from proven bytes; then publication; then the files that are derived from the commits, from a
proven state; then the definition in the catalog.
"""

from collections.abc import Collection
from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor.check_table import CheckedTable
from cm_delta_dagster.operations.doctor.findings import Finding, Problem, Repair, Severity
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.protocol.log import log_files

PERMISSIONS = {
    Repair.REMOVE_HINT: MaintenanceKind.CHECKPOINT,
    Repair.REPLACE_CHECKPOINT: MaintenanceKind.CHECKPOINT,
    Repair.REWRITE_CHECKSUM: MaintenanceKind.VERSION_CHECKSUM,
    Repair.SET_ASIDE_COMPACTION: MaintenanceKind.LOG_COMPACTION,
}
"""The maintenance that the catalog must permit for a repair. Other repairs belong to commits and need no permission."""

_SKIPPED_IF_FORKED = {
    Repair.TAKE_BACK,
    Repair.UPDATE_PUBLISHED_VERSION,
    Repair.PUBLISH,
    Repair.REMOVE_HINT,
    Repair.UPDATE_DEFINITION,
}
"""Repairs that are skipped while catalog and log hold two histories, since they would favour one of them."""

_ORDER = {repair: rank for rank, repair in enumerate(Repair)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One repair.

    Attributes:
        writes: locations that are created or replaced; the name of a new checkpoint is chosen when it is written.
        sets_aside: locations that are copied to ``_delta_log/_set_aside`` before they are replaced or removed.
        permission: maintenance that the catalog must permit; None if no permission is needed.
    """

    repair: Repair
    finding: Finding
    writes: tuple[str, ...] = ()
    sets_aside: tuple[str, ...] = ()
    permission: MaintenanceKind | None = None

    @property
    def description(self) -> str:
        """The step in one line, for display."""
        version, writes = self.finding.version, ", ".join(self.writes)
        match self.repair:
            case Repair.TAKE_BACK:
                return f"take back the commit of version {version}: {self.finding.message}"
            case Repair.RESTORE_COMMIT | Repair.REWRITE_STAGED:
                return f"write the ratified bytes of version {version} to {writes}"
            case Repair.UPDATE_PUBLISHED_VERSION:
                return f"set the published version in the catalog to {version}"
            case Repair.PUBLISH:
                return f"publish {self.finding.where}"
            case Repair.REMOVE_HINT:
                return f"remove {self.finding.where}"
            case Repair.REWRITE_CHECKSUM:
                return f"write the checksum of version {version} to {writes}"
            case Repair.REPLACE_CHECKPOINT:
                return f"write a checkpoint of version {version} in place of {self.finding.where}"
            case Repair.SET_ASIDE_COMPACTION:
                return f"remove the compaction {self.finding.where}"
            case Repair.UPDATE_DEFINITION:
                return f"set metadata and protocol in the catalog to those of version {version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan(Plan["DoctorReport"]):
    """The repairs of one table.

    Attributes:
        version: latest version by the catalog when the plan was made.
        steps: repairs, in the order in which they are carried out.
        untouched: errors and warnings without a repair; their messages say why.
    """

    identifier: str
    version: int
    steps: tuple[RepairStep, ...]
    untouched: tuple[Finding, ...]

    @property
    def taken_back(self) -> frozenset[int | None]:
        """Versions whose commits are taken back."""
        return frozenset(step.finding.version for step in self.steps if step.repair is Repair.TAKE_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """The result of one check; after repairs, of the check that follows them.

    Attributes:
        version: latest version in the catalog.
        num_commits: commits whose bytes were compared with the catalog's record.
        num_files: data files and deletion vectors of the latest version whose existence was checked.
        num_files_read: data files whose footer was read.
        num_files_without_row_count: of these, files without a row count in the log.
        findings: by severity, errors first.
        plan: the repairs for the findings.
        repaired: findings that were repaired.
        failed: repairs that failed, and why.
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
    num_files_without_row_count: int = 0
    repaired: tuple[Finding, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether there is no finding of severity ERROR."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    @property
    def repairable(self) -> tuple[Finding, ...]:
        """Findings that have a step in the plan."""
        return tuple(step.finding for step in self.plan.steps)


def make_plan(table: Table, check: CheckedTable, *, take_back: Collection[int | None] = ()) -> RepairPlan:
    """Derive the plan from the findings. Does no I/O.

    Args:
        take_back: versions whose commits an owner consents to take back.
    """
    findings = check.findings
    has_two_histories = any(f.problem in (Problem.COMMIT_FORKED, Problem.CATALOG_BEHIND) for f in findings)
    chosen = [
        f
        for f in findings
        if f.repair is not None
        and not (has_two_histories and f.repair in _SKIPPED_IF_FORKED)
        and (f.repair is not Repair.TAKE_BACK or f.version in take_back)
    ]
    steps = [_step(table, check, finding) for finding in chosen]
    return RepairPlan(
        identifier=str(table.identifier),
        version=check.seen.latest,
        steps=tuple(sorted(steps, key=lambda step: _ORDER[step.repair])),
        untouched=tuple(f for f in findings if f not in chosen and f.severity is not Severity.NOTE),
    )


def _step(table: Table, check: CheckedTable, finding: Finding) -> RepairStep:
    assert finding.repair is not None
    directory = log_files.log_directory(table.location)
    locations = tuple(f"{directory}/{name}" for name in finding.files)
    seen = check.seen
    known = {*seen.log, *(f"_staged_commits/{name}" for name in seen.staged)}
    writes: tuple[str, ...] = locations
    if finding.repair in (Repair.REMOVE_HINT, Repair.SET_ASIDE_COMPACTION, Repair.REPLACE_CHECKPOINT):
        writes = ()
    elif finding.repair is Repair.REWRITE_CHECKSUM:
        writes = locations[:1]
    return RepairStep(
        repair=finding.repair,
        finding=finding,
        writes=writes,
        sets_aside=tuple(at for at, name in zip(locations, finding.files, strict=True) if name in known),
        permission=PERMISSIONS.get(finding.repair),
    )
