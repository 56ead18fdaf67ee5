"""Post-commit hook that writes version checksums in the background."""

from collections.abc import Sequence

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.post_commit.checksum_writer import Checksums
from cm_delta_dagster.client.post_commit.hook_services import HookServices
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.commit_json import CommitActions


class ChecksumHook:
    """Writes the checksums of one table. Safe to share between threads."""

    def __init__(self, services: HookServices) -> None:
        self._services = services
        self._checksums = Checksums(services.store)

    def run(self, snapshot: Snapshot, commit: CommitActions, *, contended: bool) -> None:
        """Schedule the checksum of ``snapshot``, which ``commit`` made.

        Args:
            contended: whether other writers committed recently, so that a checksum of the next commit may replace this one.
        """
        self._checksums.request(snapshot, commit, contended=contended and self._services.delays)
        self._services.run_in_background("Checksum", snapshot, self._write, owner=self)

    def note_winners(self, commits: Sequence[CommitActions]) -> None:
        """Record commits of other writers, oldest first."""
        self._checksums.note_winners(commits)

    def _write(self) -> None:
        """Write every requested checksum; the catalog is asked once for permission."""
        newest = self._checksums.newest_requested()
        if newest is None:
            return
        allowed = self._services.is_allowed(newest, MaintenanceKind.VERSION_CHECKSUM)
        requests = self._checksums.take()  # After the catalog's answer: without one they wait for the next commit.
        if allowed:
            self._checksums.write(requests)
