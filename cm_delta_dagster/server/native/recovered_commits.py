"""Checks commits that recovery, adoption and repair record: each is in the log of its table, and is what the caller says.

These operations record what storage has, whatever the order and the mode of the commits, so that nothing but the files proves them.
"""

import hashlib
from collections.abc import Sequence

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.recovery import CommitHistory
from cm_delta_dagster.errors import CommitRejectedError, CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, encode_action
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.server.commit_files import read_commit_file
from cm_delta_dagster.server.storage_access import StorageAccess


def check_history(storage: StorageAccess, location: str, history: CommitHistory, *, published: int) -> None:
    """Check the commits of a table at ``location``, their definition, and that the log has them up to the published version.

    Args:
        published: up to this version the catalog knows that the log has every one.

    Raises:
        CommitRejectedError: a file is missing, or says something else.
        OperationRefusedError: a file is outside of the storage roots.
    """
    _check_definition(history, [check_commit(storage, location, proposal) for proposal in history.proposals])
    version = history.published_version
    if version <= published:
        return
    name = f"{log_files.log_directory(location)}/{log_files.commit_file_name(version)}"
    try:
        storage.store_for(name, below=location).stat(name)
    except ObjectNotFoundError as error:
        raise _contradicted(version, "as published, and the log has no such version") from error


def check_commit(storage: StorageAccess, location: str, proposal: CommitProposal) -> bytes:
    """The bytes of the file of a commit. Raises as :func:`check_history`."""
    version, name = proposal.version, proposal.file_name

    def contradicted(what: str) -> CommitRejectedError:
        return _contradicted(version, f"as the file {name} {what}")

    parsed = log_files.parse_log_file(name)
    if isinstance(parsed, log_files.StagedCommitFile) and parsed.version == version:
        directory = log_files.staged_commits_directory("")
    elif version >= 0 and name == log_files.commit_file_name(version):
        directory = log_files.log_directory("")
    else:
        raise contradicted("which is the name of no commit of this version")
    path = f"{directory[1:]}/{name}"
    data = read_commit_file(storage, location, path, size=proposal.file_size, contradicted=contradicted)
    if proposal.content not in (None, data):
        raise contradicted("with other content than it has")
    if proposal.sha256 not in (None, hashlib.sha256(data).hexdigest()):
        raise contradicted("with another SHA-256 than it has")
    return data


def _check_definition(history: CommitHistory, files: Sequence[bytes]) -> None:
    """Check the txnId and time of each commit, and the newest metaData and protocol among them."""
    stated, metadata, protocol = history.definition, None, None
    for proposal, data in zip(history.proposals, files, strict=True):
        try:
            commit = decode_commit(data, version=proposal.version)
        except CorruptLogError as error:
            raise _contradicted(proposal.version, f"and its file is not valid ({error.message})") from error
        info, summary = commit.commit_info, proposal.summary
        if info is None or (info.txn_id, info.in_commit_timestamp) != (summary.txn_id, summary.in_commit_timestamp):
            raise _contradicted(proposal.version, "with another txnId or in-commit timestamp than its file has")
        metadata, protocol = commit.metadata or metadata, commit.protocol or protocol
    last = history.proposals[-1].version
    if metadata is not None and encode_action(metadata) != encode_action(stated.metadata):
        raise _contradicted(last, "with another metaData than the commits have")
    if protocol is not None and encode_action(protocol) != encode_action(stated.protocol):
        raise _contradicted(last, "with another protocol than the commits have")


def _contradicted(version: int, what: str) -> CommitRejectedError:
    return CommitRejectedError(
        f"Version {version} was to be recorded {what}. Nothing was changed. Make a new plan, or run doctor again."
    )
