"""Recovery plans and their text. Values only."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.protocol.actions.actions import TransactionGroup
from cm_delta_dagster.protocol.predicates.timestamps import utc_text


class KeptHistory(StrEnum):
    """Which of two histories of a table to keep. The commits of the other history are set aside."""

    CATALOG = "catalog"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCommit:
    """One commit, with what identifies it to users.

    Attributes:
        timestamp_ms: in-commit timestamp, epoch milliseconds.
        made_by: user, engine and run, as far as the commit names them.
        num_rows: rows of the files that it adds; None if their statistics do not say.
        group: the transaction over several tables that it is a part of; None if it is none.
    """

    version: int
    txn_id: str
    timestamp_ms: int
    operation: str
    made_by: str
    num_added_files: int
    num_removed_files: int
    num_rows: int | None
    group: TransactionGroup | None = None

    def __str__(self) -> str:
        rows = "an unknown number of rows" if self.num_rows is None else counted(self.num_rows, "row")
        return (
            f"version {self.version}, {self.operation or 'unnamed operation'} at {utc_text(self.timestamp_ms)}"
            f"{f' by {self.made_by}' if self.made_by else ''}: {rows} in {counted(self.num_added_files, 'added file')}, "
            f"{counted(self.num_removed_files, 'removed file')}, txnId {self.txn_id}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCommit:
    """A published file that is not a commit of the table, and why."""

    version: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCandidate:
    """A staged file above the last published commit. It was ratified, or it is an unsuccessful commit attempt.

    Attributes:
        name: bare name in ``_staged_commits``.
        evidence: the file that indicates that it was ratified; empty if there is none.
        problem: why the file cannot follow the chain; None if it can.
        is_taken: whether the plan records it in the catalog.
    """

    name: str
    version: int
    commit: FoundCommit | None
    evidence: str = ""
    problem: str | None = None
    is_taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCommit:
    """A version of which no copy exists; ``known_from`` names the file that proves that it was committed."""

    version: int
    known_from: str
    txn_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertakenCommit:
    """A staged commit that was ratified, as a version checksum proves, and whose version is now another commit.

    Attributes:
        name: bare name in ``_staged_commits``.
        known_from: the version checksum that names its ``txnId``.
    """

    name: str
    known_from: str
    commit: FoundCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPart:
    """A commit that a plan records as a part of a transaction over several tables.

    Attributes:
        staged_file: the staged file of the commit, if it is recorded because another commit of the transaction was ratified.
        ratified_with: that other commit, in words.
        missing: the other commits of the transaction that neither the catalog has nor the plan records, each with the reason.
    """

    version: int
    transaction_id: str
    staged_file: str = ""
    ratified_with: str = ""
    missing: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecoveryPlan:
    """The recovery of one table of the catalog.

    Attributes:
        catalog_version: the catalog's latest version.
        common_version: newest version for which catalog and storage hold the same commit.
        removed: versions after ``common_version`` that log cleanup has removed and that get no record. The chain begins with the
            checkpoint above them. Empty if the chain follows ``common_version``.
        in_storage: commits in ``_delta_log`` after ``common_version`` that form a chain of this table.
        in_catalog: commits of the catalog after ``common_version``, if the history has forked.
        is_forked: whether ``_delta_log`` and catalog hold different commits of one version.
        rejected: published files above ``common_version`` that do not belong to the chain.
        staged: files that need a decision.
        lost: versions of which no copy is left.
        overtaken: commits up to ``common_version`` whose versions a restored catalog ratified again with other commits; they are
            set aside.
        missing_files: data files that the newest version needs and that do not exist, as paths in the log.
        transactions: commits to record that are parts of transactions over several tables.
        keep: the history to keep; None if not chosen.
        problem: why the table could not be checked; it is then not changed.
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
    transactions: tuple[TransactionPart, ...] = ()
    keep: KeptHistory | None = None
    problem: str | None = None

    @property
    def taken(self) -> tuple[FoundCommit, ...]:
        """Commits to record in the catalog, ascending: those in storage and the chosen staged commits."""
        if self.problem is not None or self.keep is KeptHistory.CATALOG or (self.is_forked and self.keep is None):
            return ()
        chosen = [file.commit for file in self.staged if file.is_taken and file.commit is not None]
        return (*self.in_storage, *chosen)

    @property
    def sets_aside(self) -> bool:
        """Whether files of ``_delta_log`` or commits of the catalog are set aside."""
        if self.problem is not None or self.keep is None:
            return False
        return self.is_forked or bool(self.rejected) or (self.keep is KeptHistory.CATALOG and bool(self.in_storage))

    @property
    def needs_decision(self) -> bool:
        """Whether the histories have forked and ``keep`` is not chosen."""
        return self.problem is None and self.is_forked and self.keep is None

    @property
    def changes_anything(self) -> bool:
        return bool(self.taken) or self.sets_aside or bool(self.overtaken)

    @property
    def is_sound(self) -> bool:
        """Whether catalog and storage agree and no decision is needed."""
        return not (self.problem or self.in_storage or self.is_forked or self.rejected or self.lost or self.overtaken)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan(Plan["RecoveryResult"]):
    """What :func:`~cm_delta_dagster.operations.recovery.recover.recover` would do now, by table.

    Attributes:
        take_staged: names of staged files to record in the catalog, also those that belong to a transaction of which another commit
            is recorded.
    """

    tables: tuple[TableRecoveryPlan, ...]
    keep: KeptHistory | None = None
    take_staged: tuple[str, ...] = ()

    @property
    def num_commits(self) -> int:
        return _num_taken(self.tables)

    @property
    def undecided(self) -> tuple[TableRecoveryPlan, ...]:
        return tuple(table for table in self.tables if table.needs_decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredTable:
    """The result for one table. ``set_aside`` is the directory of the commits that are not kept, None if there are none."""

    identifier: TableIdentifier
    taken: tuple[int, ...]
    latest_version: int
    set_aside: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """The result of carrying out a plan."""

    tables: tuple[RecoveredTable, ...] = field(default=())

    @property
    def num_commits(self) -> int:
        return _num_taken(self.tables)


def _num_taken(tables: Iterable[TableRecoveryPlan | RecoveredTable]) -> int:
    return sum(len(table.taken) for table in tables)


def explain(plan: TableRecoveryPlan) -> tuple[str, ...]:
    """Return the plan of one table as sentences, for the command line and for errors."""
    lines: list[str] = []
    if plan.problem is not None:
        return (f"{plan.identifier} could not be checked: {plan.problem}",)
    if plan.removed:
        lines.append(
            f"{plan.identifier}: log cleanup has removed the commits that lead from version {plan.common_version}, the last one "
            f"that the catalog shares with storage, to the checkpoint with which storage continues. {_versions(plan.removed)} "
            "cannot be read and get no record; the table continues with the commits listed below."
        )
    if plan.is_forked:
        lines += _explain_fork(plan)
    elif plan.in_storage:
        lines.append(
            f"{plan.identifier}: the catalog's latest version is {plan.catalog_version}, and _delta_log holds "
            f"{counted(len(plan.in_storage), 'commit')} of this table above it."
        )
        lines += _listed("Set aside" if plan.keep is KeptHistory.CATALOG else "Record", plan.in_storage)
    for rejected in plan.rejected:
        outcome = " It is set aside." if plan.keep is not None else " It is not moved."
        lines.append(f"Not a commit of this table: {rejected.name}: {rejected.reason}{outcome}")
    if plan.missing_files:
        lines.append(
            f"{counted(len(plan.missing_files), 'data file')} of these commits missing, {plan.missing_files[0]} among them: "
            "restore from a backup of the storage, or the newest version cannot be read."
        )
    for staged in plan.staged:
        lines.append(staged_line(staged))
    lines += transaction_lines(plan.transactions)
    for lost in plan.lost:
        lines.append(
            f"Lost: version {lost.version} was committed, as {lost.known_from} proves"
            f"{f' (txnId {lost.txn_id})' if lost.txn_id else ''}, and no copy of its commit exists."
        )
    for overtaken in plan.overtaken:
        lines.append(
            f"Lost by a fork: {overtaken.commit}. It was ratified, as {overtaken.known_from} proves, and never published; then the "
            f"catalog was restored and ratified another commit as version {overtaken.commit.version}. Readers do not see its rows. "
            f"The recovery sets its staged file {overtaken.name} aside, and vacuum keeps its data files, so that they can be "
            "appended."
        )
    return tuple(lines) or (f"{plan.identifier}: catalog and storage agree up to version {plan.catalog_version}.",)


def transaction_lines(parts: Iterable[TransactionPart]) -> list[str]:
    """What a plan does with transactions over several tables, as sentences: what it records for them, and what they lack."""
    lines = [
        f"The staged file {part.staged_file} is recorded because it was ratified together with {part.ratified_with} (transaction "
        f"{part.transaction_id})."
        for part in parts
        if part.staged_file
    ]
    return lines + [
        f"Incomplete: the transaction {part.transaction_id}, of which version {part.version} is recorded, also has "
        f"{' and '.join(part.missing)}."
        for part in parts
        if part.missing
    ]


def _explain_fork(plan: TableRecoveryPlan) -> list[str]:
    other = (
        "the catalog and storage hold different commits after it"
        if plan.removed
        else f"version {plan.common_version + 1} is one commit in the catalog and another commit in _delta_log"
    )
    lines = [
        f"The history of {plan.identifier} forked after version {plan.common_version}: {other}. Probable cause: the catalog "
        "was restored from a backup and then written to."
    ]
    lines += _listed("Only the catalog has", plan.in_catalog)
    lines += _listed("Only storage has", plan.in_storage)
    if plan.keep is None:
        lines.append(
            "Nothing is changed until you choose the history to keep, that of the catalog or that of the storage. The commits of "
            "the other history are set aside and their data files are kept."
        )
    return lines


def _versions(versions: range) -> str:
    if len(versions) == 1:
        return f"Version {versions.start}"
    return f"The versions {versions.start} to {versions.stop - 1}"


def _listed(what: str, commits: Iterable[FoundCommit]) -> list[str]:
    return [f"{what}: {commit}." for commit in commits]


def staged_line(staged: StagedCandidate) -> str:
    """Return one staged file as a sentence."""
    what = f"{staged.name}{'' if staged.commit is None else f' ({staged.commit})'}"
    if staged.is_taken:
        return f"Record the staged file {what}."
    if staged.problem is not None:
        return f"Staged and not usable: {what}: {staged.problem}"
    return (
        f"Staged and never published: {what}. {staged.evidence or 'It is not known whether it was ratified.'} "
        "It is recorded if you give its name to the recovery."
    )
