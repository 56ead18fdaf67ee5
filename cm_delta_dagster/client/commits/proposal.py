"""Prepares one attempt of a commit: its bytes, its staged file, and the proposal to the catalog.

Protocol heading "Commit Protocol".
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary
from cm_delta_dagster.client.commits.changed_partitions import feed_tags
from cm_delta_dagster.client.commits.context import ENGINE_INFO
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.actions import Action, Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import encode_checked
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """One attempt: the bytes of the commit, and what is proposed to the catalog."""

    data: bytes
    proposal: CommitProposal

    @property
    def version(self) -> int:
        return self.proposal.version


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRules:
    """How an attempt is prepared.

    Attributes:
        mode: commit mode; None to have the table's policy choose by size.
        now_ms: the client's clock, epoch milliseconds.
        published_version: newest published version that the catalog does not know yet, reported along.
        copied_content_bytes: size up to which a commit is also copied to the catalog.
    """

    mode: CommitMode | None
    now_ms: int
    published_version: int | None
    copied_content_bytes: int


def prepare_commit(transaction: Transaction, base: Snapshot, *, store: Store, rules: ProposalRules) -> PreparedCommit:
    """The commit of ``transaction`` as the version after ``base``. In staged mode its file is written.

    Raises:
        IllegalCommitError: the commit would be invalid; nothing was written.
    """
    version = base.version + 1
    timestamp = next_in_commit_timestamp(rules.now_ms, base.timestamp_ms)
    actions = transaction.actions(base, in_commit_timestamp=timestamp)
    data = encode_checked(actions)
    metadata, protocol = _changed_definition(actions, base)
    mode = base.commit_policy.mode_for(len(data)) if rules.mode is None else rules.mode
    file_name = log_files.commit_file_name(version)
    if mode is not CommitMode.PUT_IF_ABSENT:
        file_name = log_files.staged_commit_file_name(version, str(uuid.uuid4()))
    modified = timestamp
    if mode is CommitMode.STAGED:
        modified = _stage(store, base.location, file_name, data) or timestamp
    proposal = CommitProposal(
        version=version,
        file_name=file_name,
        file_size=len(data),
        file_modification_time=modified,
        summary=summary_of(transaction, base, timestamp),
        mode=mode,
        content=data if mode is CommitMode.INLINE or len(data) <= rules.copied_content_bytes else None,
        metadata=metadata,
        protocol=protocol,
        sha256=digest_of(data),
        hold_id=transaction.hold_id,
        lease_token=transaction.lease_token,
        content_to_check=data,
        published_version=rules.published_version if mode is not CommitMode.PUT_IF_ABSENT else None,
    )
    return PreparedCommit(data=data, proposal=proposal)


def _stage(store: Store, location: str, file_name: str, data: bytes) -> int | None:
    """Write a staged commit file; its modification time in epoch milliseconds, if the store returns it with the write."""
    target = f"{log_files.staged_commits_directory(location)}/{file_name}"
    written = store.write_if_absent(target, data, may_show_unfinished=True, within=log_files.log_directory(location))
    return None if written is None else written.modification_time


def _changed_definition(actions: Sequence[Action], base: Snapshot) -> tuple[Metadata | None, Protocol | None]:
    """Metadata and protocol after a commit that changes at least one of them; they follow commitInfo."""
    metadata = next((action for action in actions[1:3] if isinstance(action, Metadata)), None)
    protocol = next((action for action in actions[1:3] if isinstance(action, Protocol)), None)
    if metadata is None and protocol is None:
        return None, None
    return metadata or base.metadata, protocol or base.protocol


def summary_of(transaction: Transaction, base: Snapshot, in_commit_timestamp: int) -> CommitSummary:
    """The entry of the catalog's feed for ``transaction`` on ``base``, with the changed partitions where they are known and few."""
    tags = dict(transaction.tags)
    partitions = transaction.changed_partitions()
    if partitions is not None:
        tags |= feed_tags(partitions)
    return CommitSummary(
        txn_id=transaction.txn_id,
        in_commit_timestamp=in_commit_timestamp,
        operation=transaction.operation,
        data_change=transaction.data_change,
        metrics=dict(transaction.metrics),
        tags=tags,
        engine_info=ENGINE_INFO,
        user_metadata=transaction.context.user_metadata,
        counts=transaction.counts_after(base),
    )
