"""Plans to adopt the tables of a lost catalog, and their text. Values only."""

from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.catalog.recovery import AdoptedState
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.recovery.plan import (
    LostCommit,
    RejectedCommit,
    StagedCandidate,
    TransactionPart,
    staged_line,
    transaction_lines,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    """One table of the warehouse, as it would be adopted.

    Attributes:
        identifier: its name; None if it is not known.
        name_from: source of the name: ``--name``, ``marker`` or ``directory``.
        first_version, latest_version: of the commits to record.
        transactions: its newest commits that are parts of transactions over several tables, if the plan records staged files for
            them or they are incomplete.
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
    transactions: tuple[TransactionPart, ...] = ()
    conflict: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLog:
    """A log in the warehouse that is skipped, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehousePlan(Plan["AdoptionResult"]):
    """The adoption of a warehouse by :func:`recover_warehouse`.

    Attributes:
        former_catalog_id: the catalog that the marker names; None without a marker.
        catalog_id: the catalog that adopts the warehouse.
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
    """The adopted tables, including dropped ones."""

    tables: tuple[AdoptionPlan, ...]


def explain_adoption(plan: WarehousePlan) -> Iterator[str]:
    """Yield the lines of text that show the plan to a user."""
    former = plan.former_catalog_id
    if former not in (None, plan.catalog_id):
        yield (
            f"The warehouse {plan.warehouse} belongs to the catalog {former}; the adoption assigns it to the catalog "
            "of this connection. Continue only if the former catalog is lost: two catalogs on one warehouse lose commits."
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
            yield f"  Not recorded: {rejected.name}: {rejected.reason}"
        for staged in table.staged:
            yield f"  {staged_line(staged)}"
        for line in transaction_lines(table.transactions):
            yield f"  {line}"
        for lost in table.lost:
            yield f"  Lost: version {lost.version} was committed, as {lost.known_from} proves, and no copy of its commit exists."
        if table.missing_files:
            yield f"  {counted(len(table.missing_files), 'data file')} missing, {table.missing_files[0]} among them."
    for log in plan.skipped:
        yield f"Skip: {log.location}: {log.reason}"
