"""Post-commit hook that publishes commits and reports the published version to the catalog.

A staged commit is published before the commit returns, since readers by path expect it. Inline commits are published together
after a delay. The catalog gets the published version with the next proposal or after a longer delay, whichever comes first.
Failed publications are retried with exponential backoff; the retries do not keep a process from exiting.
"""

import logging
import threading
from dataclasses import replace

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.post_commit.hook_services import DERIVED_FILE_DELAYS, HookServices, RatifiedWrite
from cm_delta_dagster.client.post_commit.publisher import publish_commits, publish_one
from cm_delta_dagster.client.post_commit.scheduler import log_failures, register_fork_reset
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.snapshots.storage_check import CatalogBehind
from cm_delta_dagster.errors import CatalogBehindStorageError, TableNotFoundError

_log = logging.getLogger(__name__)

_PUBLICATION_TRIES = 20


class PublicationHook:
    """Publishes the commits of one table. Safe to share between threads."""

    def __init__(self, services: HookServices) -> None:
        self._services = services
        self.reset_after_fork()
        # Guarded by the lock: the newest version known to be in _delta_log, the newest one that the catalog knows to be
        # there, and the newest one whose publication failed; contents of unpublished inline commits; table id and location.
        self._published, self._reported, self._failed = -1, -1, -1
        self._unpublished: dict[int, bytes] = {}
        self._table: tuple[str, str] = ("", "")
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the locks, which a thread of the parent process may hold."""
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()

    def run(self, commit: RatifiedWrite) -> int:
        """Publish what is pending up to ``commit``, or schedule it; a failure is logged and retried.

        Returns the newest version that is known to be published.
        """
        snapshot = commit.snapshot
        try:
            return self._publish(commit)
        except Exception as error:  # The commit is ratified; the next writer publishes it too.
            if isinstance(error, CatalogBehindStorageError):
                self._note_behind(snapshot.table_id, error)
            _log.warning("Publishing version %d of %s failed", snapshot.version, snapshot.identifier, exc_info=True)
            self._schedule_retry(snapshot)
            return commit.outcome.published_version

    @property
    def published_version(self) -> int:
        """The newest version that is known to be in ``_delta_log``; -1 if none is."""
        with self._lock:
            return self._published

    def unreported_published_version(self, version: int) -> int | None:
        """The newest published version up to ``version``; None if the catalog knows it already."""
        with self._lock:
            published = min(self._published, version)
            return published if published > self._reported else None

    def note_published(self, version: int, *, reported: bool = False) -> None:
        """Record that ``_delta_log`` holds every commit up to ``version``.

        Args:
            reported: whether the catalog knows it.
        """
        with self._lock:
            self._published = max(self._published, version)
            if reported:
                self._reported = max(self._reported, version)
            for done in [known for known in self._unpublished if known <= version]:
                del self._unpublished[done]

    def flush(self) -> None:
        """Publish the delayed commits now and report to the catalog; a failure is logged and left to the next commit."""
        with self._lock:
            pending = self._has_pending() or self._published > self._reported
        if pending:
            log_failures("Delayed publication", self._flush)

    def report(self) -> None:
        """Report the published version to the catalog if it does not know it; a failure is logged."""
        with self._lock:
            unreported = self._published > self._reported
        if unreported:
            log_failures("Reporting the published version to the catalog", self._report)

    def _publish(self, commit: RatifiedWrite) -> int:
        snapshot, outcome = commit.snapshot, commit.outcome
        delays = self._services.delays
        with self._lock:
            self._table = (snapshot.table_id, snapshot.location)
            self._reported = max(self._reported, outcome.published_version)
            self._published = known = max(self._published, outcome.published_version)
            if known >= snapshot.version:
                return known
            if delays and commit.mode is CommitMode.INLINE:
                self._unpublished[snapshot.version] = commit.data
        if delays and commit.mode is CommitMode.INLINE:
            self._schedule_flush(snapshot)
            return known
        try:
            return self._publish_after(known, commit)
        finally:
            if delays:
                self._schedule_flush(snapshot, DERIVED_FILE_DELAYS)
            else:
                self._report()

    def _publish_after(self, known: int, commit: RatifiedWrite) -> int:
        """Publish ``commit`` and the commits between the published version ``known`` and it."""
        snapshot, winners = commit.snapshot, commit.winners
        if known < snapshot.version - 1:
            pending = [_without_copy(winners[v]) for v in range(known + 1, snapshot.version) if v in winners]
            if len(pending) < snapshot.version - 1 - known:
                return self._publish_pending(snapshot.table_id, snapshot.location, {snapshot.version: commit.data})
            publish_commits(
                self._reader(snapshot.table_id, snapshot.location), commits=pending, reached=self.note_published
            )
        publish_one(self._services.store, snapshot.location, version=snapshot.version, data=commit.data)
        self.note_published(snapshot.version)
        return snapshot.version

    def _publish_pending(self, table_id: str, location: str, contents: dict[int, bytes]) -> int:
        """Publish every commit of the table that is ratified and unpublished, those of other clients included."""
        pending = self._services.coordinator.get_ratified_commits(table_id)
        self.note_published(pending.published_version, reported=True)
        published = publish_commits(
            self._reader(table_id, location),
            commits=pending.unpublished,
            reached=self.note_published,
            contents=contents,
        )
        return published[-1] if published else pending.published_version

    def _reader(self, table_id: str, location: str) -> CommitReader:
        return CommitReader(
            self._services.store, location, records=CatalogRecords(self._services.coordinator, table_id)
        )

    def _note_behind(self, table_id: str, error: CatalogBehindStorageError) -> None:
        """Have later writes of this process compare storage with the catalog before they propose a commit."""
        behind = CatalogBehind(
            latest_version=error.latest_version,
            first_version=error.storage_version,
            last_version=error.storage_version,
            since_ms=self._services.now_ms(),
            is_forked=True,
        )
        self._services.tables_behind.note(table_id, behind)

    def _schedule_retry(self, snapshot: Snapshot) -> None:
        if not self._services.delays:
            return
        with self._lock:
            self._failed = max(self._failed, snapshot.version)
        try:
            self._schedule_flush(snapshot)
        except Exception:  # No thread can be started: the next commit publishes this one.
            _log.warning(
                "The publication of version %d of %s is left to the next commit",
                snapshot.version,
                snapshot.identifier,
                exc_info=True,
            )

    def _schedule_flush(self, snapshot: Snapshot, delays: int = 1) -> None:
        what = f"Publication of {snapshot.identifier} up to version {snapshot.version}"
        seconds, key = delays * self._services.delay_seconds, (id(self), delays)
        self._services.background.schedule(
            snapshot.table_id, key, what, self._flush, seconds=seconds, tries=_PUBLICATION_TRIES
        )

    def _has_pending(self) -> bool:
        """Whether commits of this handle wait for their publication. The caller holds the lock."""
        return bool(self._unpublished) or self._failed > self._published

    def _flush(self) -> None:
        with self._flush_lock:
            with self._lock:
                (table_id, location), contents = self._table, dict(self._unpublished)
                pending = self._has_pending()
            try:
                try:
                    if pending:
                        self._publish_pending(table_id, location, contents)
                finally:
                    self._report()
            except CatalogBehindStorageError as error:
                self._note_behind(table_id, error)
                raise
            except TableNotFoundError:  # If the table is restored, its next writer publishes them.
                _log.info("Table %s was dropped before its last commits were published", table_id)

    def _report(self) -> None:
        with self._lock:
            table_id, published = self._table[0], self._published
            is_reported = published <= self._reported
        if not is_reported:
            self._services.coordinator.set_published_version(table_id, published)
            self.note_published(published, reported=True)


def _without_copy(commit: RatifiedCommit) -> RatifiedCommit:
    """``commit`` without the catalog's copy, if it is staged: its staged file is what is published."""
    return commit if commit.mode is CommitMode.INLINE else replace(commit, content=None)
