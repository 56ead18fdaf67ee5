"""Replays the commits and compares the states with checkpoints, checksums and compactions, for ``doctor``.

Derived files are compared with, and replaced from, a *proven state* only. The state of a version is proven if

1. the state of the version before is proven (not needed for version 0) and so are the bytes of the version's own commit, see
   :mod:`~cm_delta_dagster.operations.doctor.commit_copies`; and, of a commit without a digest, the version checksum does not
   contradict the outcome, if there is one that can be read and names the same transaction or none; or
2. a complete checkpoint of the version can be read, its version checksum can be read and names the transaction and the time that
   the catalog's record has, and the two agree.

A version without a proven commit ends the proof; it resumes at the next checkpoint with an agreeing checksum. From the first
version at which the log has two histories, derived files are not checked, since they may belong to either history.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.checkpoint_reader import read_checkpoint
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.snapshots.unreadable_versions import flaw_of_time
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.operations.doctor.check_commits import CheckedCommit, add_unusable
from cm_delta_dagster.operations.doctor.commit_copies import read_or_none
from cm_delta_dagster.operations.doctor.findings import Findings, Problem, Repair, Severity
from cm_delta_dagster.operations.doctor.observation import Observation
from cm_delta_dagster.operations.recovery.set_aside import txn_ids_set_aside
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.commits.superseding import flaws_of_rules
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.log import log_files, version_checksum
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay
from cm_delta_dagster.protocol.log.log_files import ChecksumFile, StagedCommitFile
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import RecoverTable


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundCheckpoint:
    """A complete checkpoint; ``state`` is None if reading it failed with ``error``."""

    names: tuple[str, ...]
    state: TableState | None
    error: str = ""


class StateCheck:
    """Takes the versions one by one, oldest first, and adds to ``findings``.

    Attributes:
        state: the proven state of the last version; None if it is not proven.
        checksums: correct checksums by version, where the stored ones are wrong.
        states: proven states of versions whose checkpoint has to be replaced.
        row_id_commit: the last commit with a high-water mark of row ids; None if there is none.
    """

    def __init__(self, table: Table, seen: Observation, findings: Findings) -> None:
        self.state: TableState | None = None
        self.checksums: dict[int, VersionChecksum] = {}
        self.states: dict[int, TableState] = {}
        self.row_id_commit: CheckedCommit | None = None
        self._table, self._findings, self._add = table, findings, findings.add
        self._staged = seen.staged
        self._transactions = {record.txn_id for record in seen.records.values()}
        self._set_aside: frozenset[str] | None = None
        self._stored_checksums = seen.versions(ChecksumFile)
        self._checkpoints = seen.checkpoints()
        self._compactions = seen.compactions()
        self._compaction_bases: dict[str, TableState | None] = {}
        self._previous_time: int | None = None
        self._has_forked = False

    def skip_derived_files(self) -> None:
        """From the next version on the log has two histories: replay the commits, but check no derived file."""
        self._has_forked = True

    def advance(self, commit: CheckedCommit) -> None:
        """Take the next version, whose number is one higher than that of the previous call."""
        try:
            self._advance(commit)
        except CorruptLogError as error:  # Some values are parsed on first use.
            self.state = None
            self._add_unreadable(commit, str(error))

    def _add_unreadable(self, commit: CheckedCommit, message: str, problem: Problem = Problem.UNREADABLE) -> None:
        """Report a commit that clients cannot use. It can be taken back if it is what the catalog ratified."""
        add_unusable(self._findings, self._table, commit, message, problem)

    def _advance(self, commit: CheckedCommit) -> None:
        version, previous = commit.version, self.state
        self._remember_compaction_bases(version, previous)
        actions = self._decoded(commit)
        state = self._replayed(commit, previous, actions)
        stored = self._stored_checksum(version)
        if state is not None and self._contradicts(commit, state, stored):
            state = None
        self.state = state
        if self._has_forked:
            return
        checkpoints = [self._read_checkpoint(version, names) for names in self._checkpoints.get(version, ())]
        if state is None and checkpoints:
            self.state = state = self._proven_by_checksum(commit, checkpoints, stored)
        self._check_checkpoints(version, checkpoints)
        if version in self._stored_checksums and self.state is not None:
            self._check_checksum(commit, self.state, stored)
        self._check_compactions(version)

    def _decoded(self, commit: CheckedCommit) -> CommitActions | None:
        if commit.data is None:
            return None
        version = commit.version
        try:
            actions = commit_json.decode_commit(commit.data, version=version)
        except CorruptLogError as error:
            self._add_unreadable(commit, str(error))
            return None
        self._check_actions(commit, actions)
        time = None if actions.commit_info is None else actions.commit_info.in_commit_timestamp
        if time is not None:
            if self._previous_time is not None and time <= self._previous_time:
                self._add(
                    Severity.ERROR,
                    Problem.TIMESTAMP_ORDER,
                    f"version {version}",
                    f"its in-commit timestamp, {utc_text(time)}, is not later than that of the version before, "
                    f"{utc_text(self._previous_time)}.",
                    version,
                )
            self._previous_time = time
        return actions

    def _check_actions(self, commit: CheckedCommit, actions: CommitActions) -> None:
        """Report what is wrong with a ratified commit that can be decoded. Only the last mark of row ids counts, so it is kept."""
        version, record = commit.version, commit.record
        if any(domain.domain == row_tracking.DOMAIN for domain in actions.domains):
            self.row_id_commit = commit
        if record is None:
            return
        time = None if actions.commit_info is None else actions.commit_info.in_commit_timestamp
        if time is None:
            self._add_unreadable(commit, f"Version {version} {flaw_of_time(actions.commit_info)}.")
        elif time != record.in_commit_timestamp:
            message = (
                f"Version {version} has the in-commit timestamp {time}, and the catalog has ratified {record.in_commit_timestamp}: "
                "its writer proposed another one than it wrote. Later commits must have a later time than it wrote."
            )
            self._add_unreadable(commit, message, Problem.TIMESTAMP_ORDER)
        flaw = next(flaws_of_rules(replace(actions, domains=())), None)
        if flaw is not None and version:
            self._add_unreadable(commit, f"Version {version} cannot be used: {flaw}")

    def _replayed(
        self, commit: CheckedCommit, previous: TableState | None, actions: CommitActions | None
    ) -> TableState | None:
        if actions is None or (previous is None and commit.version):
            return None
        try:
            return replay(previous, (actions,), location=self._table.location)
        except CorruptLogError as error:
            self._add_unreadable(commit, str(error))
            return None

    def _stored_checksum(self, version: int) -> VersionChecksum | None:
        if version not in self._stored_checksums:
            return None
        return read_checksum(self._table.store, self._table.location, version)

    def _contradicts(self, commit: CheckedCommit, state: TableState, stored: VersionChecksum | None) -> bool:
        """Whether the version checksum contradicts a commit without digest, so that the commit is not proven."""
        record = commit.record
        if stored is None or record is None or record.sha256 is not None:
            return False
        if stored.txn_id not in (None, record.txn_id):
            return False
        wrong = version_checksum.differences(stored, state)
        if wrong and not self._has_forked:
            self._add(
                Severity.ERROR,
                Problem.COMMIT_UNPROVEN,
                f"version {commit.version}",
                f"the commits up to it contradict {log_files.checksum_file_name(commit.version)} in {', '.join(wrong)}, and the "
                "catalog has no digest of this commit: the commit or the checksum was altered, and it is not known which. "
                "Neither is changed.",
                commit.version,
            )
        return bool(wrong)

    # Checkpoints

    def _read_checkpoint(self, version: int, names: tuple[str, ...]) -> _FoundCheckpoint:
        directory = log_files.log_directory(self._table.location)
        try:
            locations = [f"{directory}/{name}" for name in names]
            state = read_checkpoint(self._table.reader, version=version, locations=locations)
            # Parses the file actions, which is done on demand, so that damage is found now.
            return _FoundCheckpoint(names=names, state=state if _live_files(state) is not None else None)
        except (CorruptLogError, ObjectNotFoundError) as error:
            return _FoundCheckpoint(names=names, state=None, error=str(error))

    def _proven_by_checksum(
        self, commit: CheckedCommit, checkpoints: Sequence[_FoundCheckpoint], stored: VersionChecksum | None
    ) -> TableState | None:
        """The state of a checkpoint that its checksum confirms."""
        if stored is None or not _is_of(stored, commit.record):
            return None
        return next(
            (
                item.state
                for item in checkpoints
                if item.state is not None and not version_checksum.differences(stored, item.state)
            ),
            None,
        )

    def _check_checkpoints(self, version: int, checkpoints: Sequence[_FoundCheckpoint]) -> None:
        for item in checkpoints:
            if item.state is None:
                problem, message = Problem.CHECKPOINT_UNREADABLE, item.error
                severity = Severity.ERROR if self.state is None else Severity.WARNING
            elif self.state is not None and (wrong := differing_parts(item.state, self.state)):
                problem, severity = Problem.CHECKPOINT_WRONG, Severity.ERROR
                message = f"it differs from the proven state of version {version} in {', '.join(wrong)}."
            elif self.state is None and (contradiction := self._checksum_contradiction(version, item.state)):
                problem, severity, message = Problem.CHECKPOINT_WRONG, Severity.ERROR, contradiction
            else:
                continue
            if self.state is None:
                repair = None
                message += f" The state of version {version} is not proven, so the checkpoint is not replaced."
            else:
                repair = Repair.REPLACE_CHECKPOINT
                self.states[version] = self.state
            self._add(severity, problem, item.names[0], message, version, repair, item.names)

    def _checksum_contradiction(self, version: int, state: TableState) -> str:
        """How the version checksum contradicts a checkpoint of a version without proven state; empty if it does not."""
        stored = self._stored_checksum(version)
        wrong = () if stored is None else version_checksum.differences(stored, state)
        if not wrong:
            return ""
        return (
            f"it contradicts {log_files.checksum_file_name(version)} in {', '.join(wrong)}: one of the two was altered, and it is "
            "not known which."
        )

    # Checksums

    def _check_checksum(self, commit: CheckedCommit, state: TableState, stored: VersionChecksum | None) -> None:
        version, record = commit.version, commit.record
        if stored is None:
            wrong: tuple[str, ...] = ("readability",)
        else:
            wrong = version_checksum.differences(stored, state)
            if record is not None and stored.txn_id not in (None, record.txn_id):
                wrong += ("txnId",)
            if record is not None and stored.in_commit_timestamp not in (None, record.in_commit_timestamp):
                wrong += ("inCommitTimestampOpt",)
        if not wrong:
            return
        if record is not None:
            self.checksums[version] = version_checksum.build_checksum(
                state, txn_id=record.txn_id, in_commit_timestamp=record.in_commit_timestamp
            )
        name = log_files.checksum_file_name(version)
        if stored is not None and self._is_of_second_history(stored):
            self._add_second_history(version, name, stored.txn_id, Repair.REWRITE_CHECKSUM if record else None)
            return
        self._add(
            Severity.WARNING,
            Problem.CHECKSUM_WRONG,
            name,
            f"it differs from the proven state of version {version} in {', '.join(wrong)}.",
            version,
            Repair.REWRITE_CHECKSUM if record is not None else None,
            (name,),
        )

    def _is_of_second_history(self, stored: VersionChecksum) -> bool:
        """Whether a checksum names a transaction that the catalog does not have and that was not set aside."""
        if stored.txn_id is None or stored.txn_id in self._transactions:
            return False
        if self._set_aside is None:
            self._set_aside = txn_ids_set_aside(self._table.store, self._table.location)
        return stored.txn_id not in self._set_aside

    def _add_second_history(self, version: int, name: str, txn_id: str | None, repair: Repair | None) -> None:
        staged = next((other for other in sorted(self._staged) if self._staged_txn_id(other, version) == txn_id), None)
        if staged is None:
            further = (
                "no copy of it is left: write its rows again. A repair keeps this file under _delta_log/_set_aside."
            )
        else:
            further = (
                f"its staged file {staged} exists. A recovery of the table describes the commit and sets it aside, so that vacuum "
                "keeps its data files; a repair of this file does so too. "
                f"{advice(RecoverTable(table=str(self._table.identifier)))}"
            )
        self._add(
            Severity.ERROR,
            Problem.SECOND_HISTORY,
            name,
            f"it is of the transaction {txn_id}, which was committed as version {version}, and the catalog has another commit of "
            f"that version: it was restored from a backup and written to. Readers do not see the commit; {further}",
            version,
            repair,
            (name,) if staged is None else (name, f"_staged_commits/{staged}"),
        )

    def _staged_txn_id(self, name: str, version: int) -> str | None:
        file = log_files.parse_log_file(name)
        if not isinstance(file, StagedCommitFile) or file.version != version:
            return None
        data = read_or_none(self._table, f"{log_files.staged_commits_directory(self._table.location)}/{name}")
        try:
            info = None if data is None else commit_json.decode_commit_info(data)
        except CorruptLogError:
            return None
        return None if info is None else info.txn_id

    # Compactions

    def _remember_compaction_bases(self, version: int, previous: TableState | None) -> None:
        for name, file in self._compactions.items():
            if file.start == version and (previous is not None or not version):
                self._compaction_bases[name] = previous

    def _check_compactions(self, version: int) -> None:
        for name, file in self._compactions.items():
            if file.end != version or name not in self._compaction_bases:
                continue
            base = self._compaction_bases.pop(name)
            if self.state is None:
                continue
            wrong = self._compaction_error(name, version, base, self.state)
            if wrong is not None:
                severity, message = wrong
                repair = Repair.SET_ASIDE_COMPACTION
                self._add(severity, Problem.COMPACTION_WRONG, name, message, version, repair, (name,))

    def _compaction_error(
        self, name: str, version: int, base: TableState | None, state: TableState
    ) -> tuple[Severity, str] | None:
        data = read_or_none(self._table, f"{log_files.log_directory(self._table.location)}/{name}")
        if data is None:
            return None  # Cleaned up since the listing.
        if not data.endswith(b"\n"):
            return Severity.WARNING, "it does not end with a complete line; readers read the commits instead."
        try:
            compacted = commit_json.decode_commit(data, version=version)
            wrong = differing_parts(replay(base, (compacted,), location=self._table.location), state)
        except CorruptLogError as error:
            return Severity.WARNING, f"{error} Readers read the commits instead."
        if not wrong:
            return None
        return Severity.ERROR, f"it gives another {', '.join(wrong)} than the commits that it replaces."


def _is_of(stored: VersionChecksum, record: RatifiedCommit | None) -> bool:
    """Whether a checksum names the transaction that the catalog ratified, and the same timestamp, if it has one."""
    return (
        record is not None
        and stored.txn_id == record.txn_id
        and stored.in_commit_timestamp in (None, record.in_commit_timestamp)
    )


def differing_parts(first: TableState, second: TableState) -> tuple[str, ...]:
    """Return the parts in which two states of one version differ for readers; empty if they agree."""
    parts: tuple[tuple[str, Callable[[TableState], object]], ...] = (
        ("protocol", lambda state: state.protocol),
        ("metadata", lambda state: state.metadata),
        ("set of files", _live_files),
        ("set of transactions", lambda state: dict(state.transactions)),
        ("set of domains", lambda state: {name: d for name, d in state.domains.items() if not d.removed}),
    )
    return tuple(name for name, part in parts if part(first) != part(second))


def _live_files(state: TableState) -> set[tuple[object, ...]]:
    """Path, size, partition values and deletion vector of each live file. Statistics may have another form in checkpoints."""
    adds = state.files.adds
    keys = file_keys(state.files.location, adds["path"]).to_pylist()
    partitions = [tuple(sorted(values or ())) for values in adds["partitionValues"].to_pylist()]
    vectors = [
        "" if vector is None else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector['offset']}"
        for vector in adds["deletionVector"].to_pylist()
    ]
    return set(zip(keys, adds["size"].to_pylist(), partitions, vectors, strict=True))
