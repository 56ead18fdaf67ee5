"""Transactions over several tables in recovery: as a whole, or named as incomplete (protocol heading "Recovery and Cleanup").

Each commit of such a transaction names the others. If one of them was ratified, all were: a staged file of the same transaction is
then no failed attempt, and recovery records it. Changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from cm_delta_dagster.operations.recovery.plan import FoundCommit, StagedCandidate, TransactionPart
from cm_delta_dagster.protocol.actions.actions import TransactionGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCommit:
    """A commit that the catalog has; ``group`` is None if it is no part of a transaction over several tables."""

    group: TransactionGroup | None


ReadKnownCommit = Callable[[str, int], KnownCommit | None]
"""Returns the commit that the catalog has by table id and version; None if it has none, or its file cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredHistory:
    """What a plan records of one table.

    Attributes:
        name: of the table, for texts.
        known_version: up to this version the catalog has the commits, or log cleanup removed them.
        recorded: the commits that the plan records, by version.
        staged: staged files above the published commits.
        problem: why the plan records nothing; empty if it may.
    """

    table_id: str
    name: str
    known_version: int
    recorded: Mapping[int, FoundCommit]
    staged: tuple[StagedCandidate, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOfPlan:
    """The transactions over several tables of a recovery.

    Attributes:
        histories: by table id.
        known_commit: reads commits that the catalog has.
    """

    histories: Mapping[str, RecoveredHistory]
    known_commit: ReadKnownCommit

    def proven(self) -> frozenset[str]:
        """Names of the staged files that the plan does not record yet, although another commit of their transaction was ratified.

        If several files of one version belong to the same transaction, only the one with evidence of its own counts.
        """
        names: set[str] = set()
        for history in self.histories.values():
            candidates = [file for file in history.staged if self._is_proven(history, file)]
            versions = Counter(file.version for file in candidates)
            evident = Counter(file.version for file in candidates if file.evidence)
            for file in candidates:
                if versions[file.version] == 1 or (file.evidence and evident[file.version] == 1):
                    names.add(file.name)
        return frozenset(names)

    def _is_proven(self, history: RecoveredHistory, file: StagedCandidate) -> bool:
        if file.is_taken or file.problem is not None or file.commit is None:
            return False
        group = group_of(file.commit, history.table_id)
        return group is not None and self._witness(group, history.table_id) is not None

    def _witness(self, group: TransactionGroup, table_id: str) -> str | None:
        """Another commit of the group that was ratified, in words; None if none is known."""
        for other, version in _others(group, table_id):
            history = self.histories.get(other)
            recorded = None if history is None else history.recorded.get(version)
            own = recorded or self.known_commit(other, version)
            if own is not None and _is_of(own.group, group):
                return f"version {version} of {other if history is None else history.name}"
        return None

    def parts(self, table_id: str) -> tuple[TransactionPart, ...]:
        """The commits of the table that the plan records as parts of transactions."""
        history = self.histories[table_id]
        staged = {file.version: file.name for file in history.staged if file.is_taken}
        parts = []
        for version, commit in sorted(history.recorded.items()):
            group = group_of(commit, table_id)
            if group is None:
                continue
            witness = self._witness(group, table_id) if version in staged else None
            parts.append(
                TransactionPart(
                    version=version,
                    transaction_id=group.transaction_id,
                    staged_file=staged.get(version, "") if witness is not None else "",
                    ratified_with=witness or "",
                    missing=tuple(self._missing(group, table_id)),
                )
            )
        return tuple(parts)

    def _missing(self, group: TransactionGroup, table_id: str) -> Iterator[str]:
        """The other commits of the group that neither the catalog has nor the plan records, each with the reason."""
        for other, version in _others(group, table_id):
            history = self.histories.get(other)
            name = f"table {other}" if history is None else history.name
            reason = self._reason(group, other, version)
            if reason:
                yield f"version {version} of {name} ({reason})"

    def _reason(self, group: TransactionGroup, table_id: str, version: int) -> str:
        """Why the history of a table does not have its commit of the group; empty if it has it."""
        history = self.histories.get(table_id)
        if history is None:
            own = self.known_commit(table_id, version)
            return "" if own is not None and _is_of(own.group, group) else "the plan does not include the table"
        if version <= history.known_version:
            own = self.known_commit(table_id, version)
            # Log cleanup may have removed the file of a commit that the catalog has.
            return "" if own is None or _is_of(own.group, group) else "that version is another commit"
        recorded = history.recorded.get(version)
        if recorded is not None:
            return "" if _is_of(recorded.group, group) else "that version is another commit"
        if history.problem:
            return history.problem
        return _reason_of_staged(history, group, version)


def _reason_of_staged(history: RecoveredHistory, group: TransactionGroup, version: int) -> str:
    files = [
        file
        for file in history.staged
        if file.version == version and file.commit is not None and _is_of(file.commit.group, group)
    ]
    if not files:
        return "no copy of the commit exists"
    if len(files) > 1:
        return f"several staged files have it: {', '.join(file.name for file in files)}"
    return f"the staged file {files[0].name} cannot be recorded: {files[0].problem}".rstrip(".")


def group_of(commit: FoundCommit, table_id: str) -> TransactionGroup | None:
    """The transaction over several tables that the commit is a part of; None if it names another version of its table."""
    group = commit.group
    return group if group is not None and group.proposed_version(table_id) == commit.version else None


def _others(group: TransactionGroup, table_id: str) -> Iterator[tuple[str, int]]:
    for part in group.participants:
        if part.table_id != table_id:
            yield part.table_id, part.proposed_version


def _is_of(group: TransactionGroup | None, other: TransactionGroup) -> bool:
    """Whether both are the same attempt of the same transaction: another attempt names other versions."""
    return group is not None and group.transaction_id == other.transaction_id and _versions(group) == _versions(other)


def _versions(group: TransactionGroup) -> Collection[tuple[str, int]]:
    return {(part.table_id, part.proposed_version) for part in group.participants}
