"""Checks the commits of a table one by one, for ``doctor``. Changes nothing.

Compares the catalog's record of each commit with every copy of it. The result is findings, and the proven bytes of each version
(:mod:`~cm_delta_dagster.operations.doctor.commit_copies`), if there are any.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.doctor.commit_copies import (
    CommitCopies,
    CopyState,
    foreign_transaction,
    matches_record,
    read_copies,
    read_or_none,
)
from cm_delta_dagster.operations.doctor.findings import Findings, Problem, Repair, Severity
from cm_delta_dagster.operations.doctor.observation import Observation
from cm_delta_dagster.operations.doctor.take_back import plan_take_back, take_back_advice
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.cleanup import cut_off_timestamp
from cm_delta_dagster.protocol.log.log_files import CommitFile
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import ChooseHistory

_BACKUP = "No intact copy of it was found: restore the file from a backup."
_CONTESTED = "The catalog has no digest of this commit, so the ratified copy is not known; none is changed."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCommit:
    """One version, its record (None if the catalog has none) and its proven bytes (None if no copy is proven)."""

    version: int
    record: RatifiedCommit | None
    data: bytes | None


def add_unusable(findings: Findings, table: Table, commit: CheckedCommit, message: str, problem: Problem) -> None:
    """Report a commit that clients cannot use. It can be taken back if it is what the catalog ratified."""
    version, record = commit.version, commit.record
    repair = None
    if record is not None and commit.data is not None:
        superseding = plan_take_back(commit.data, record)
        message += take_back_advice(table.identifier, version, superseding)
        repair = None if superseding is None else Repair.TAKE_BACK
    findings.add(Severity.ERROR, problem, f"version {version}", message, version, repair)


class CommitCheck:
    """Checks the versions once, oldest first, and adds to ``findings``.

    Attributes:
        compared: commits of which a file was compared with the catalog's record.
        first_fork: lowest unpublished version whose file in the log is a commit of another history; None if there is none.
    """

    def __init__(self, table: Table, seen: Observation, findings: Findings) -> None:
        self.compared = 0
        self.first_fork: int | None = None
        self._table, self._seen, self._add = table, seen, findings.add
        self._listed = seen.versions(CommitFile)
        self._checkpoints = seen.checkpoints()
        self._served = {commit.version: commit for commit in seen.ratified.commits}
        self._own_transactions = {record.txn_id for record in seen.records.values()}
        self._is_interrupted = False
        self._follows_published = True
        self._is_whole = False

    def check(self) -> Iterator[CheckedCommit]:
        """Check every version that readers may need, and yield it, in ascending order."""
        seen = self._seen
        self._exclude_stray_commits()
        oldest = self._oldest()
        # The catalog has no records of what was committed before it adopted the table.
        first_recorded = min(seen.records, default=0)
        for version in range(oldest, seen.latest + 1):
            record = seen.records.get(version)
            # A recovered history may begin with a checkpoint whose commit cleanup has removed: that version has no record.
            is_expected = version >= first_recorded and (version != oldest or version == 0 or version in self._listed)
            if record is None and is_expected:
                where, message = f"version {version}", "the catalog has no record of it."
                self._add(Severity.ERROR, Problem.NO_RECORD, where, message, version)
            yield CheckedCommit(
                version=version, record=record, data=None if record is None else self._check_version(record)
            )
        if seen.latest > seen.published and not self._is_interrupted:
            self._add(
                Severity.WARNING,
                Problem.UNPUBLISHED,
                f"versions {seen.published + 1} to {seen.latest}",
                f"{counted(seen.latest - seen.published, 'ratified commit')} not published; writers and `publish` publish them.",
                repair=Repair.PUBLISH,
            )

    def _oldest(self) -> int:
        """The oldest version that readers may need: log cleanup leaves a checkpoint and usually nothing below it."""
        latest = self._seen.latest
        oldest_checkpoint = min((v for v in self._checkpoints if v <= latest), default=None)
        listed = min((v for v in self._listed if v <= latest), default=None)
        if oldest_checkpoint is None or listed == 0:
            return 0
        if listed is not None and listed < oldest_checkpoint and not self._may_be_cleaned(0):
            self._is_whole = True
            return 0
        return oldest_checkpoint if listed is None else min(listed, oldest_checkpoint)

    def _may_be_cleaned(self, version: int) -> bool:
        """Whether log cleanup may have removed a version, by the retention in the catalog's definition."""
        record = self._seen.records.get(version)
        definition = self._table.services.registry.load_table_by_id(self._table.table_id).definition
        if record is None or definition is None:
            return True
        try:
            retention_ms = TableProperties(definition.metadata.configuration).log_retention_ms
        except CmDeltaError:
            return True
        return record.in_commit_timestamp <= cut_off_timestamp(self._table.services.now_ms(), retention_ms)

    def _exclude_stray_commits(self) -> None:
        """Report and ignore files with the names of commits that log cleanup removed: writers created them too late."""
        kept = min((version for version in self._checkpoints if version <= self._seen.latest), default=0)
        if 0 in self._listed:
            return
        directory = log_files.log_directory(self._table.location)
        for version in sorted(version for version in self._listed if version < kept):
            name = log_files.commit_file_name(version)
            record, data = self._seen.records.get(version), read_or_none(self._table, f"{directory}/{name}")
            if record is None or data is None or matches_record(record, data):
                continue
            self._listed -= {version}
            self._add(
                Severity.WARNING,
                Problem.STRAY_COMMIT,
                name,
                f"it is not the ratified commit, which log cleanup removed with all versions below {kept}. A writer created "
                "it too late; no reader uses it, and log cleanup deletes it.",
                version,
            )

    def _check_version(self, record: RatifiedCommit) -> bytes | None:
        copies = read_copies(
            self._table, record, staged_names=self._seen.staged, served=self._served.get(record.version)
        )
        self.compared += copies.exists
        self._check_content(copies)
        self._check_published(copies)
        if record.version > self._seen.published:
            self._check_unpublished(copies)
        return copies.proven

    def _check_content(self, copies: CommitCopies) -> None:
        version = copies.record.version
        if copies.content.state is CopyState.ALTERED:
            self._add(
                Severity.WARNING,
                Problem.COPY_DIFFERS,
                f"version {version}",
                "the copy of the commit in the catalog is not what was ratified. "
                + (
                    "That is harmless: readers detect it and read the file, and the catalog deletes the copy later."
                    if copies.proven is not None
                    else "No intact copy was found elsewhere."
                ),
                version,
            )

    def _check_published(self, copies: CommitCopies) -> None:
        """Check the file of the version in ``_delta_log``, whether or not the catalog has the version as published."""
        version = copies.record.version
        if copies.published.state is CopyState.ALTERED:
            self._add_altered(copies)
        elif copies.is_contested:
            self._is_interrupted = True
            self._add(
                Severity.ERROR,
                Problem.COMMIT_DIFFERS,
                f"version {version}",
                "its published file, its staged file or the catalog's copy differ from each other, and more than one of them "
                f"agrees with the catalog in size, txnId and time. {_CONTESTED}",
                version,
            )
        elif copies.published.data is None and version <= self._seen.published and self._is_reachable(version):
            self._add_published(
                copies, Problem.COMMIT_MISSING, "the catalog says that it is published, and the file does not exist. "
            )
        elif copies.staged.state is CopyState.ALTERED and version <= self._seen.published:
            self._add(
                Severity.NOTE,
                Problem.STAGED_DAMAGED,
                copies.record.file_name,
                f"it is not what was ratified. That is harmless: version {version} is published, and its published file is intact.",
                version,
            )

    def _add_altered(self, copies: CommitCopies) -> None:
        """Report a published file that is not the ratified commit: another history, or damage."""
        record, version = copies.record, copies.record.version
        foreign = foreign_transaction(copies.published.data, record, known=self._own_transactions)
        if foreign is not None and version > self._seen.published:
            self._is_interrupted = True
            self.first_fork = version if self.first_fork is None else self.first_fork
            self._add(
                Severity.ERROR,
                Problem.COMMIT_FORKED,
                log_files.commit_file_name(version),
                f"it is another commit (txnId {foreign}) than the one that the catalog ratified as version {version} "
                f"(txnId {record.txn_id}): the table has two histories, as after the catalog was restored from a backup. "
                f"Readers of the catalog see the ratified one. "
                f"{advice(ChooseHistory(table=str(self._table.identifier)))}",
                version,
            )
            return
        self._is_interrupted |= copies.proven is None
        cause = "it was altered or truncated. " if foreign is None else f"it is another commit, of txnId {foreign}. "
        self._add_published(
            copies,
            Problem.COMMIT_DIFFERS,
            f"it is not the commit that was ratified (txnId {record.txn_id}, {record.file_size} bytes, "
            f"{utc_text(record.in_commit_timestamp)}): {cause}",
        )

    def _add_published(self, copies: CommitCopies, problem: Problem, message: str) -> None:
        """Report a published file that can be restored if an intact copy exists."""
        version, is_proven = copies.record.version, copies.proven is not None
        name = log_files.commit_file_name(version)
        message += "There is an intact copy, which readers of the catalog use." if is_proven else _BACKUP
        repair = Repair.RESTORE_COMMIT if is_proven else None
        self._add(Severity.ERROR, problem, name, message, version, repair, (name,))

    def _check_unpublished(self, copies: CommitCopies) -> None:
        """Check the copies from which readers take a commit that is not published."""
        record = copies.record
        version = record.version
        self._follows_published &= copies.published.state is CopyState.FITS
        if copies.is_contested or version == self.first_fork:
            return
        if copies.proven is None:
            self._is_interrupted = True
            superseding = None if copies.exists else plan_take_back(None, record)
            self._add(
                Severity.ERROR,
                Problem.COMMIT_LOST,
                f"version {version}",
                f"neither {record.file_name} nor another intact copy of the ratified commit exists; restore that file to "
                "_delta_log/_staged_commits from a backup."
                + ("" if superseding is None else take_back_advice(self._table.identifier, version, superseding)),
                version,
                None if superseding is None else Repair.TAKE_BACK,
            )
        elif record.mode is not CommitMode.STAGED or copies.staged.state is CopyState.FITS:
            return
        elif self._follows_published and not self._is_interrupted:
            self._add(
                Severity.ERROR,
                Problem.PUBLISHED_VERSION_BEHIND,
                f"version {version}",
                f"the catalog directs readers to {record.file_name}, which is missing or damaged; the published copy is intact.",
                version,
                Repair.UPDATE_PUBLISHED_VERSION,
            )
        else:
            self._add(
                Severity.ERROR,
                Problem.STAGED_DAMAGED,
                record.file_name,
                "the catalog directs readers to it, and it is missing or not what was ratified; there is another intact copy.",
                version,
                Repair.REWRITE_STAGED,
                files=(f"_staged_commits/{record.file_name}",),
            )

    def _is_reachable(self, version: int) -> bool:
        """Whether readers may still need the commit: after log cleanup, the log begins with a commit or a checkpoint."""
        if self._is_whole or any(other < version for other in self._listed):
            return True
        return not any(checkpoint >= version for checkpoint in self._checkpoints)
