"""What a recovery plan says of the tables that it is for. Values only; making a plan changes nothing."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cm_delta_dagster.catalog.tables import TableIdentifier


class KeptHistory(StrEnum):
    """Which of two histories of a table is kept. The commits of the other one are set aside; no file is lost."""

    CATALOG = "catalog"
    STORAGE = "storage"


def utc_text(epoch_ms: int) -> str:
    """``2026-01-31 12:00:00 UTC``; the number itself where no calendar has that moment."""
    try:
        return f"{datetime.datetime.fromtimestamp(epoch_ms / 1000, tz=datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{epoch_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCommit:
    """One commit, with what helps a human to recognise it.

    Attributes:
        timestamp_ms: in-commit timestamp, epoch milliseconds.
        made_by: user, engine and run, as far as the commit names them.
        num_rows: rows of the files that it adds; None if the files do not tell.
    """

    version: int
    txn_id: str
    timestamp_ms: int
    operation: str
    made_by: str
    num_added_files: int
    num_removed_files: int
    num_rows: int | None

    def __str__(self) -> str:
        rows = "an unknown number of" if self.num_rows is None else f"{self.num_rows}"
        return (
            f"version {self.version}, {self.operation or 'unnamed operation'} at {utc_text(self.timestamp_ms)}"
            f"{f' by {self.made_by}' if self.made_by else ''}: {rows} rows in {self.num_added_files} added files, "
            f"{self.num_removed_files} files removed, txnId {self.txn_id}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCommit:
    """A published file that cannot be a commit of the table, and why."""

    version: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCandidate:
    """A staged file above the last published commit. It may have been acknowledged to its writer, or have lost a race.

    Attributes:
        name: bare name in ``_staged_commits``.
        evidence: what speaks for an acknowledgement; empty if nothing does.
        problem: why the file cannot follow the chain; None if it can.
        is_taken: whether the plan takes it in.
    """

    name: str
    version: int
    commit: FoundCommit | None
    evidence: str = ""
    problem: str | None = None
    is_taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCommit:
    """A version that existed and of which no copy is left; ``known_from`` names the file that tells of it."""

    version: int
    known_from: str
    txn_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertakenCommit:
    """A staged commit that a version checksum proves to have been ratified, and whose version is another commit by now.

    Attributes:
        name: bare name in ``_staged_commits``.
        known_from: the version checksum that names its ``txnId``.
    """

    name: str
    known_from: str
    commit: FoundCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecoveryPlan:
    """What recovery does to one table that the catalog knows.

    Attributes:
        catalog_version: the catalog's latest version.
        common_version: newest version of which catalog and storage hold the same commit.
        removed: versions after ``common_version`` that are not recorded: log cleanup has removed their commits, or those that
            led to them. The chain begins with the checkpoint above them. Empty if the chain follows ``common_version``.
        in_storage: commits in ``_delta_log`` after ``common_version`` that form a chain of this table.
        in_catalog: commits of the catalog after ``common_version``; with a published file above ``common_version`` that is another
            commit, the history has forked.
        is_forked: whether ``_delta_log`` and catalog hold different commits of one version.
        rejected: published files above ``common_version`` that do not belong to the chain.
        staged: files that need a decision.
        lost: versions of which no copy is left.
        overtaken: commits up to ``common_version`` that a restored catalog has ratified others in place of; they are set aside.
        missing_files: data files that the newest version needs and that are not there, as paths of the log.
        keep: which history is kept; None if nobody has said.
        problem: why the table could not be examined; then nothing is done to it.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    catalog_version: int
    common_version: int
    removed: range = range(0)
    in_storage: tuple[FoundCommit, ...] = ()
    in_catalog: tuple[FoundCommit, ...] = ()
    is_forked: bool = False
    rejected: tuple[RejectedCommit, ...] = ()
    staged: tuple[StagedCandidate, ...] = ()
    lost: tuple[LostCommit, ...] = ()
    overtaken: tuple[OvertakenCommit, ...] = ()
    missing_files: tuple[str, ...] = ()
    keep: KeptHistory | None = None
    problem: str | None = None

    @property
    def taken(self) -> tuple[FoundCommit, ...]:
        """Commits that the catalog takes in, ascending: the storage's, and staged ones that were chosen."""
        if self.problem is not None or self.keep is KeptHistory.CATALOG or (self.is_forked and self.keep is None):
            return ()
        chosen = [one.commit for one in self.staged if one.is_taken and one.commit is not None]
        return (*self.in_storage, *chosen)

    @property
    def sets_aside(self) -> bool:
        """Whether files of ``_delta_log`` or commits of the catalog are set aside."""
        if self.problem is not None or self.keep is None:
            return False
        return self.is_forked or bool(self.rejected) or (self.keep is KeptHistory.CATALOG and bool(self.in_storage))

    @property
    def needs_decision(self) -> bool:
        """Whether the histories have forked and nobody has said which one is kept."""
        return self.problem is None and self.is_forked and self.keep is None

    @property
    def changes_anything(self) -> bool:
        return bool(self.taken) or self.sets_aside or bool(self.overtaken)

    @property
    def is_sound(self) -> bool:
        """Whether catalog and storage agree and nothing is open."""
        return not (self.problem or self.in_storage or self.is_forked or self.rejected or self.lost or self.overtaken)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What :func:`~cm_delta_dagster.operations.recovery.recover.recover` would do now, by table.

    Attributes:
        take_staged: names of staged files that are taken in.
    """

    tables: tuple[TableRecoveryPlan, ...]
    keep: KeptHistory | None = None
    take_staged: tuple[str, ...] = ()

    @property
    def num_commits(self) -> int:
        return sum(len(table.taken) for table in self.tables)

    @property
    def undecided(self) -> tuple[TableRecoveryPlan, ...]:
        return tuple(table for table in self.tables if table.needs_decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredTable:
    """What was done to one table. ``set_aside`` is the directory of the commits that are not kept, None if there are none."""

    identifier: TableIdentifier
    taken: tuple[int, ...]
    latest_version: int
    set_aside: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """What was done."""

    tables: tuple[RecoveredTable, ...] = field(default=())

    @property
    def num_commits(self) -> int:
        return sum(len(table.taken) for table in self.tables)


def explain(plan: TableRecoveryPlan) -> tuple[str, ...]:
    """The plan of one table in sentences, for the command line and for errors."""
    lines: list[str] = []
    if plan.problem is not None:
        return (f"{plan.identifier} could not be examined: {plan.problem}",)
    if plan.removed:
        lines.append(
            f"{plan.identifier}: log cleanup has removed the commits that lead from version {plan.common_version}, the last one "
            f"that the catalog shares with storage, to the checkpoint from which storage goes on. {_versions(plan.removed)} cannot "
            "be read any more and get no record; the table continues with the commits listed below."
        )
    if plan.is_forked:
        other = (
            "the catalog and storage hold different commits after it"
            if plan.removed
            else f"version {plan.common_version + 1} is one commit in the catalog and another one in _delta_log"
        )
        lines.append(
            f"The history of {plan.identifier} forked after version {plan.common_version}: {other}. Probably the catalog was "
            "restored from a backup and written to afterwards."
        )
        lines += _listed("Only the catalog has", plan.in_catalog)
        lines += _listed("Only storage has", plan.in_storage)
        if plan.keep is None:
            lines.append(
                "Nothing is done until you say which history is kept (--keep catalog or --keep storage). The commits of the "
                "other one are set aside and their data files stay."
            )
    elif plan.in_storage:
        lines.append(
            f"{plan.identifier}: the catalog's latest version is {plan.catalog_version}, and _delta_log holds "
            f"{len(plan.in_storage)} commits of this table above it."
        )
        lines += _listed("Set aside" if plan.keep is KeptHistory.CATALOG else "Take in", plan.in_storage)
    for rejected in plan.rejected:
        fate = " It is set aside." if plan.keep is not None else " It is left where it is."
        lines.append(f"Not a commit of this table: {rejected.name}: {rejected.reason}{fate}")
    if plan.missing_files:
        lines.append(
            f"{len(plan.missing_files)} data files that these commits need are not there, {plan.missing_files[0]} among them: "
            "bring them back from a backup of the storage, or the newest version cannot be read."
        )
    for staged in plan.staged:
        lines.append(staged_line(staged))
    for lost in plan.lost:
        lines.append(
            f"Lost: version {lost.version} existed, as {lost.known_from} tells"
            f"{f' (txnId {lost.txn_id})' if lost.txn_id else ''}, and no copy of its commit is left."
        )
    for overtaken in plan.overtaken:
        lines.append(
            f"Lost by a fork: {overtaken.commit}. It was ratified, as {overtaken.known_from} tells, and never published; then the "
            f"catalog was restored and ratified another commit as version {overtaken.commit.version}. Readers do not see its rows. "
            f"--apply sets its staged file {overtaken.name} aside, and vacuum keeps its data files, so that they can be appended."
        )
    return tuple(lines) or (f"{plan.identifier}: catalog and storage agree up to version {plan.catalog_version}.",)


def _versions(versions: range) -> str:
    if len(versions) == 1:
        return f"Version {versions.start}"
    return f"The versions {versions.start} to {versions.stop - 1}"


def _listed(what: str, commits: Iterable[FoundCommit]) -> list[str]:
    return [f"{what}: {commit}." for commit in commits]


def staged_line(staged: StagedCandidate) -> str:
    """One staged file in a sentence."""
    what = f"{staged.name}{'' if staged.commit is None else f' ({staged.commit})'}"
    if staged.is_taken:
        return f"Take in the staged file {what}."
    if staged.problem is not None:
        return f"Staged and not usable: {what}: {staged.problem}"
    return (
        f"Staged and never published: {what}. {staged.evidence or 'Nothing tells whether its writer was told of a success.'} "
        f"Decide: --take-staged {staged.name} takes it in."
    )
