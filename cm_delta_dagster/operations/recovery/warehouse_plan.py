"""What a plan says of the tables of a lost catalog. Values only; making a plan changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.catalog.recovery import AdoptedState
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.recovery.plan import LostCommit, RejectedCommit, StagedCandidate, staged_line


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    """One table of the warehouse, as it would be adopted.

    Attributes:
        identifier: its name; None if nothing tells it.
        name_from: what tells the name: ``--name``, ``marker`` or ``directory``.
        first_version, latest_version: of the commits that are taken in.
        conflict: why the table cannot be adopted as planned; None if it can.
    """

    location: str
    table_id: str
    identifier: TableIdentifier | None
    name_from: str
    state: AdoptedState
    first_version: int
    latest_version: int
    rejected: tuple[RejectedCommit, ...] = ()
    staged: tuple[StagedCandidate, ...] = ()
    lost: tuple[LostCommit, ...] = ()
    missing_files: tuple[str, ...] = ()
    conflict: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLog:
    """A log in the warehouse that is not adopted, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehousePlan:
    """What :func:`recover_warehouse` would do.

    Attributes:
        former_catalog_id: whom the marker names; None without a marker.
        catalog_id: this catalog, to which the warehouse would belong.
    """

    warehouse: str
    former_catalog_id: str | None
    catalog_id: str
    tables: tuple[AdoptionPlan, ...]
    skipped: tuple[SkippedLog, ...]
    names: tuple[tuple[str, str], ...] = ()
    take_staged: tuple[str, ...] = ()

    @property
    def conflicts(self) -> tuple[AdoptionPlan, ...]:
        return tuple(table for table in self.tables if table.conflict is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionResult:
    """The tables that were adopted, by name; dropped ones among them."""

    tables: tuple[AdoptionPlan, ...]


def explain_adoption(plan: WarehousePlan) -> Iterator[str]:
    """The plan in sentences."""
    former = plan.former_catalog_id
    if former not in (None, plan.catalog_id):
        yield (
            f"The warehouse {plan.warehouse} belongs to the catalog {former} and would be handed over to {plan.catalog_id}, "
            "this one. Go on only if the former catalog is lost: two catalogs on one warehouse lose commits."
        )
    for table in plan.tables:
        kept = "" if table.state is AdoptedState.ACTIVE else ", dropped (undrop brings it back)"
        yield (
            f"{'Adopt' if table.conflict is None else 'Undecided'}: {table.identifier or '(no name)'}{kept}: versions "
            f"{table.first_version} to {table.latest_version}, name from {table.name_from}, table id {table.table_id}, at "
            f"{table.location}"
        )
        if table.conflict is not None:
            yield f"  {table.conflict}"
        for rejected in table.rejected:
            yield f"  Not taken in: {rejected.name}: {rejected.reason}"
        for staged in table.staged:
            yield f"  {staged_line(staged)}"
        for lost in table.lost:
            yield f"  Lost: version {lost.version} existed, as {lost.known_from} tells, and no copy of its commit is left."
        if table.missing_files:
            yield f"  {len(table.missing_files)} data files are not there, {table.missing_files[0]} among them."
    for log in plan.skipped:
        yield f"Skip: {log.location}: {log.reason}"
