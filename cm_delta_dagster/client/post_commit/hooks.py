"""Runs the post-commit hooks of a table in order: publication, checksum, checkpoint, compaction.

No hook can fail the write, which is already durable: a failure is logged with its cause, and the next commit or a maintenance
run repeats the work.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.client.post_commit.checkpoint_hook import CheckpointHook
from cm_delta_dagster.client.post_commit.checksum_hook import ChecksumHook
from cm_delta_dagster.client.post_commit.compaction_hook import CompactionHook
from cm_delta_dagster.client.post_commit.hook_services import HookServices, RatifiedWrite
from cm_delta_dagster.client.post_commit.publication_hook import PublicationHook
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions

_log = logging.getLogger(__name__)


class PostCommitHooks:
    """The hooks of one table.

    Args:
        remember: caches the snapshot after a commit.
    """

    def __init__(self, services: HookServices, *, remember: Callable[[Snapshot], None]) -> None:
        self.publication = PublicationHook(services)
        self._checksum = ChecksumHook(services)
        self._checkpoint = CheckpointHook(services, publication=self.publication)
        self._compaction = CompactionHook(services)
        self._remember = remember

    def run(self, commit: RatifiedWrite) -> Snapshot:
        """Run every hook for ``commit``; the snapshot with the published version that is known then."""
        published = self.publication.run(commit)
        snapshot = commit.snapshot
        current = replace(snapshot, published_version=max(min(published, snapshot.version), snapshot.published_version))
        self._remember(current)
        try:
            self._checksum.run(current, commit.actions, contended=commit.contended)
            self._checkpoint.run(current)
            self._compaction.run(current, commit.actions)
        except Exception:  # A client being closed, an unreadable property: the commit is ratified all the same.
            _log.warning(
                "No checksum, checkpoint or compaction of version %d of %s",
                current.version,
                current.identifier,
                exc_info=True,
            )
        return current

    def after_creation(self, snapshot: Snapshot, *, data: bytes) -> None:
        """Schedule the checksum of version 0, which is published by its creation and needs no checkpoint."""
        self._remember(snapshot)
        try:
            self._checksum.run(snapshot, commit_json.decode_commit(data, version=0), contended=False)
        except Exception:  # A client being closed: the table exists all the same.
            _log.warning("No checksum of version 0 of %s", snapshot.identifier, exc_info=True)

    def note_winners(self, commits: Sequence[CommitActions], *, published_version: int) -> None:
        """Record commits of other writers, oldest first, and the published version that the catalog returned with them."""
        if commits:
            self._checkpoint.note_version(commits[-1].version)
            self._checksum.note_winners(commits)
        self.publication.note_published(published_version, reported=True)
