"""Takes back a commit that no reader can use, with the consent of the owner of its table.

The content of the version is replaced by :func:`~cm_delta_dagster.protocol.commits.superseding.superseding_commit`. The original
is set aside first; later commits stay as they are. The catalog gets the new content when its staged file exists, and the
published file is written last: in between, readers find a published file that is not the recorded one, and read the staged file.
"""

import uuid
from collections.abc import Mapping

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CACHED_CONTENT_BYTES, CommitProposal, CommitSummary, RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_sources import digest_of, published_source
from cm_delta_dagster.client.snapshots.log_reader import load_state
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, RecoveryError
from cm_delta_dagster.operations.doctor.commit_copies import CommitCopies, read_or_none
from cm_delta_dagster.operations.recovery.set_aside import copy_aside
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.commits.superseding import CommitIdentity, SupersedingCommit, superseding_commit
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import replay
from cm_delta_dagster.remedies import TakeBackCommit

ORIGINAL_SUFFIX = ".original"
"""Suffix of a taken-back commit that is set aside and of which no line can be understood, so that it protects no data files."""


def plan_take_back(data: bytes | None, record: RatifiedCommit) -> SupersedingCommit | None:
    """What takes the place of the commit of ``record``; None if nothing can, because it creates the table.

    Args:
        data: its ratified bytes; None if no copy of them exists.
    """
    if record.version == 0:
        return None
    identity = CommitIdentity(
        version=record.version, txn_id=record.txn_id, in_commit_timestamp=record.in_commit_timestamp
    )
    try:
        return superseding_commit(data, identity)
    except (CorruptLogError, IllegalCommitError):
        return None


def take_back_advice(table: object, version: int, commit: SupersedingCommit | None) -> str:
    """What an owner can do, for the message of a finding; begins with a space."""
    if commit is None:
        return " Restore the table from a backup."
    return (
        f" Versions below {version} can be read. If the commit is taken back, its file is set aside, and its version gets another "
        f"commit, which leaves out or changes: {commit.summary}. {commit.num_kept} of its other actions stay. "
        f"{advice(TakeBackCommit(table=str(table), version=version))}"
    )


def take_back(table: Table, copies: CommitCopies, *, aside: str) -> None:
    """Replace the content of one version.

    Args:
        copies: of the commit, read again immediately before.
        aside: directory for the original.

    Raises:
        RecoveryError: the commit has changed since the check, or nothing can take its place. Nothing was changed.
        PermissionDeniedError: the caller does not own the table. The original was set aside and nothing else changed.
        CorruptLogError: the version cannot be built with the new content either. Nothing was changed.
    """
    record = copies.record
    commit = plan_take_back(copies.proven, record)
    if commit is None or (copies.proven is None and copies.exists):
        raise RecoveryError(
            f"Version {record.version} of {table.identifier} cannot be taken back: nothing can take the place of its commit, or a "
            "file of it exists that is not what was ratified. Nothing was changed. Run doctor again."
        )
    _check(table, record, commit)
    copy_aside(table.store, aside, _originals(copies, commit))
    name = log_files.staged_commit_file_name(record.version, str(uuid.uuid4()))
    directory = log_files.log_directory(table.location)
    table.store.write_if_absent(
        f"{log_files.staged_commits_directory(table.location)}/{name}", commit.data, within=directory
    )
    table.services.recovery.replace_commit(
        table.table_id,
        _proposal(record, name, commit, now_ms=table.services.now_ms()),
        replaces=record,
        data_change=commit.data_change,
        reason=f"took back {commit.summary}",
    )
    published = published_source(table.location, record.version).location
    if read_or_none(table, published) is not None:
        table.store.write(published, commit.data, within=directory)
    table.services.forget(table.table_id)


def _check(table: Table, record: RatifiedCommit, commit: SupersedingCommit) -> None:
    """Build the version with the new content from the versions before it."""
    ratified = table.services.coordinator.get_ratified_commits(table.table_id)
    before = load_state(table.reader, version=record.version - 1, ratified=ratified.commits).state
    state = replay(before, (commit_json.decode_commit(commit.data, version=record.version),), location=table.location)
    _ = state.files.num_files  # Reconciles the files.


def _originals(copies: CommitCopies, commit: SupersedingCommit) -> Mapping[str, bytes]:
    """The ratified bytes under the name of the commit, so that VACUUM keeps the data files that it adds."""
    data = copies.proven
    name = log_files.commit_file_name(copies.record.version)
    return {} if data is None else {name + (ORIGINAL_SUFFIX if commit.has_unknown_lines else ""): data}


def _proposal(record: RatifiedCommit, name: str, commit: SupersedingCommit, *, now_ms: int) -> CommitProposal:
    info = commit_json.decode_commit_info(commit.data)
    return CommitProposal(
        version=record.version,
        file_name=name,
        file_size=len(commit.data),
        file_modification_time=now_ms,
        mode=CommitMode.STAGED,
        content=commit.data if len(commit.data) <= CACHED_CONTENT_BYTES else None,
        sha256=digest_of(commit.data),
        summary=CommitSummary(
            txn_id=record.txn_id,
            in_commit_timestamp=record.in_commit_timestamp,
            operation="" if info is None else info.operation or "",
            data_change=commit.data_change,
        ),
    )
