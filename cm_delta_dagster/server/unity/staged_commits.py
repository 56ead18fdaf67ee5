"""Staged commits of other clients: read, compared with what their writer says, and made a proposal."""

from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry
from cm_delta_dagster.client.commits.put_if_absent import proposal_of
from cm_delta_dagster.errors import CommitRejectedError, CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.server.commit_files import read_commit_file
from cm_delta_dagster.server.storage_access import StorageAccess
from cm_delta_dagster.server.unity.models import StagedFile
from cm_delta_dagster.server.unity.updates import CommittedDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommit:
    """A staged commit as read, and what is proposed to the catalog."""

    actions: CommitActions
    proposal: CommitProposal
    definition: CommittedDefinition


def check_file_name(file: StagedFile) -> None:
    """Refuse a file name that is not that of a staged commit of the version, such as one with a path.

    Raises:
        CommitRejectedError: it is not ``<20 digits of the version>.<uuid>.json``.
    """
    parsed = log_files.parse_log_file(file.file_name)
    if not isinstance(parsed, log_files.StagedCommitFile) or parsed.version != file.version:
        raise CommitRejectedError(
            f"Version {file.version} was proposed with the file name {file.file_name!r}; it must be "
            f"{file.version:020d}.<uuid>.json, a bare name inside _delta_log/_staged_commits. Nothing was committed."
        )


def read_staged(
    storage: StorageAccess, entry: TableEntry, file: StagedFile, *, definition: RecordedDefinition
) -> ReadCommit:
    """Read a staged commit, which must be what ``file`` says.

    Args:
        definition: of the table before the commit.

    Raises:
        CommitRejectedError: there is no such file, or it has another size or in-commit timestamp.
        IllegalCommitError: it is not a commit of a catalog-managed table.
        OperationRefusedError: the table is outside of the storage roots.
    """
    path = f"{log_files.staged_commits_directory('')[1:]}/{file.file_name}"
    data = read_commit_file(
        storage, entry.location, path, size=file.file_size, contradicted=lambda what: _contradicted(file, what)
    )
    try:
        commit = commit_json.decode_commit(data, version=file.version)
        proposal = proposal_of(commit, data)
    except CorruptLogError as error:
        raise IllegalCommitError(
            f"The staged commit {file.file_name} is not valid. {error.message} Nothing was committed."
        ) from error
    timestamp = proposal.summary.in_commit_timestamp
    if timestamp != file.timestamp:
        raise _contradicted(file, f"with the timestamp {file.timestamp}, and its in-commit timestamp is {timestamp}")
    metadata, protocol = commit.metadata or definition.metadata, commit.protocol or definition.protocol
    changed = commit.metadata is not None or commit.protocol is not None
    return ReadCommit(
        actions=commit,
        proposal=replace(
            proposal,
            file_name=file.file_name,
            mode=CommitMode.STAGED,
            file_modification_time=file.file_modification_timestamp,
            metadata=metadata if changed else None,
            protocol=protocol if changed else None,
        ),
        definition=CommittedDefinition(
            metadata=metadata, protocol=protocol, domains={action.domain: action for action in commit.domains}
        ),
    )


def _contradicted(file: StagedFile, what: str) -> CommitRejectedError:
    return CommitRejectedError(
        f"Version {file.version} was proposed as the staged commit {file.file_name} {what}. Nothing was committed. Stage the "
        "commit and propose it with its own values."
    )
