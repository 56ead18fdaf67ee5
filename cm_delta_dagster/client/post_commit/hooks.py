"""What follows a ratified commit: publication, checksum, checkpoint.

Nothing here can fail the write, which is durable already: every failure is logged with its reason and mended by the next
writer or by a maintenance run. A staged commit is published before the writer goes on, since readers by path expect it. What
nobody waits for is done a moment later, together for all commits until then: the publication of inline commits, and the word
to the catalog of how far ``_delta_log`` reaches, which the next commit brings along if it is faster. What of it fails is tried
again with growing pauses, for some minutes, in which nobody is kept from ending. Checksums and checkpoints are made by one
background thread; of checkpoints that follow each other in no time not every one is made.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import Ratified, RatifiedCommit
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checkpoint
from cm_delta_dagster.client.post_commit.checksum_writer import Checksums
from cm_delta_dagster.client.post_commit.publisher import publish_commits, publish_one
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork, guarded, renewed_after_fork
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.log_reader import hinted_version
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.snapshots.storage_check import CatalogBehind, TablesBehind
from cm_delta_dagster.errors import CatalogBehindStorageError, TableNotFoundError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)

_UNHURRIED = 4
"""What no reader waits for waits so many times longer: checksums, checkpoints, and the word of what is published."""

_MOST_INTERVALS = 10
"""A checkpoint that is due is left to the next one, if that is due already, but not for longer than so many."""

_PUBLICATION_TRIES = 20


class PostCommitHooks:
    """The hooks of one table."""

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        background: BackgroundWork,
        now_ms: Callable[[], int],
        remember: Callable[[Snapshot], None],
        delay_seconds: float,
        tables_behind: TablesBehind,
    ) -> None:
        self.now_ms = now_ms
        self._store = store
        self._catalog = catalog
        self._background = background
        self._remember = remember
        self._delay_seconds = delay_seconds
        self._tables_behind = tables_behind
        self.reset_after_fork()
        # Under the lock: versions up to which _delta_log reaches, up to which the catalog was told, and up to which
        # publication was tried in vain; inline commits of this handle that are not published, where they belong, the version
        # that a checkpoint is due of, and the newest one that is known.
        self._published, self._told, self._failed = -1, -1, -1
        self._unpublished: dict[int, bytes] = {}
        self._table: tuple[str, str] = ("", "")
        self._due: Snapshot | None = None
        self._newest = -1
        self._checksums = Checksums(store)
        renewed_after_fork(self)

    def reset_after_fork(self) -> None:
        """Without the locks of before, which after a fork a thread of the parent may hold for ever."""
        self._lock = threading.Lock()
        self._settling = threading.Lock()

    def ratified(
        self,
        snapshot: Snapshot,
        own: CommitActions,
        *,
        data: bytes,
        mode: CommitMode,
        outcome: Ratified,
        winners: Mapping[int, RatifiedCommit],
        in_a_crowd: bool,
    ) -> Snapshot:
        """Publish what is pending up to ``snapshot`` or see to it, and arrange the rest; the snapshot as it stands then.

        Args:
            own: ``data``, parsed.
            winners: commits before it by version, as far as the catalog has told of them meanwhile.
            in_a_crowd: whether other writers were met lately.
        """
        try:
            published = self._publish(snapshot, data, mode, outcome, winners)
        except Exception as error:  # The commit is ratified; the next writer publishes it too.
            if isinstance(error, CatalogBehindStorageError):
                self._note_behind(snapshot.table_id, error)
            _log.warning("Publishing version %d of %s failed", snapshot.version, snapshot.identifier, exc_info=True)
            published = outcome.published_version
            self._publish_later(snapshot)
        current = replace(snapshot, published_version=max(min(published, snapshot.version), snapshot.published_version))
        self._remember(current)
        try:
            self._arrange(current, own, in_a_crowd)
        except Exception:  # A client being closed, an unreadable property: the commit is ratified all the same.
            _log.warning(
                "No checksum or checkpoint of version %d of %s", current.version, current.identifier, exc_info=True
            )
        return current

    def note(self, commits: Sequence[CommitActions], *, published_version: int) -> None:
        """What others have committed, oldest first, and how far the catalog says that ``_delta_log`` reaches."""
        if commits:
            with self._lock:
                self._newest = max(self._newest, commits[-1].version)
            self._checksums.note(commits)
        self._reached(published_version, told=True)

    def unreported_published_version(self, version: int) -> int | None:
        """How far ``_delta_log`` reaches below a commit that is proposed on ``version``, if the catalog was not told yet."""
        with self._lock:
            mark = min(self._published, version)
            return mark if mark > self._told else None

    def flush(self) -> None:
        """Publish what this handle has put off and tell the catalog; a failure is logged and left to whoever comes next."""
        with self._lock:
            waiting = bool(self._unpublished) or self._failed > self._published or self._published > self._told
        if waiting:
            guarded("Publication of what was put off", self._flush)

    def tell(self) -> None:
        """Tell the catalog how far ``_delta_log`` is known to reach, if it was not yet; a failure is logged as above."""
        with self._lock:
            waiting = self._published > self._told
        if waiting:
            guarded("Telling the catalog what is published", self._tell)

    def created(self, snapshot: Snapshot, *, data: bytes) -> None:
        """Arrange the checksum of version 0, which is published from the start; a checkpoint of it would save nothing."""
        self._remember(snapshot)
        try:
            own = commit_json.decode_commit(data, version=0)
            self._schedule_checksum(snapshot, own, False)
        except Exception:  # A client being closed: the table exists all the same.
            _log.warning("No checksum of version 0 of %s", snapshot.identifier, exc_info=True)

    def _arrange(self, current: Snapshot, own: CommitActions, in_a_crowd: bool) -> None:
        self._schedule_checksum(current, own, in_a_crowd)
        with self._lock:
            self._newest = max(self._newest, current.version)
        if current.version % current.properties.checkpoint_interval:
            return
        if self._delay_seconds <= 0:
            what = f"Checkpoint of {current.identifier} version {current.version}"
            self._background.submit(what, lambda: self._write_checkpoint(current))
            return
        with self._lock:
            self._due = current
        self._unhurried("Checkpoint", current, self._write_due_checkpoint)

    def _schedule_checksum(self, current: Snapshot, own: CommitActions, in_a_crowd: bool) -> None:
        self._checksums.want(current, own, in_a_crowd=in_a_crowd and self._delay_seconds > 0)
        self._unhurried("Checksum", current, self._write_checksums)

    def _unhurried(self, kind: str, current: Snapshot, work: Callable[[], None]) -> None:
        """A writer in a hurry shares the processor with what nobody waits for no more often than it has to."""
        what = f"{kind} of {current.identifier} version {current.version}"
        if self._delay_seconds <= 0:
            self._background.submit(what, work)
            return

        def submit() -> None:
            self._background.submit(what, work)

        self._background.schedule(
            current.table_id, (id(self), kind), what, submit, seconds=_UNHURRIED * self._delay_seconds
        )

    def _publish(
        self,
        snapshot: Snapshot,
        data: bytes,
        mode: CommitMode,
        outcome: Ratified,
        winners: Mapping[int, RatifiedCommit],
    ) -> int:
        """See to the publication of the commit; how far ``_delta_log`` is known to reach now."""
        with self._lock:
            self._table = (snapshot.table_id, snapshot.location)
            self._told = max(self._told, outcome.published_version)
            self._published = known = max(self._published, outcome.published_version)
            if known >= snapshot.version:
                return known
            waits = self._delay_seconds > 0
            if waits and mode is CommitMode.INLINE:
                self._unpublished[snapshot.version] = data
        if waits and mode is CommitMode.INLINE:
            self._schedule_flush(snapshot)
            return known
        try:
            if known == snapshot.version - 1:
                publish_one(self._store, snapshot.location, version=snapshot.version, data=data)
                self._reached(snapshot.version)
                return snapshot.version
            pending = [_from_its_file(winners[v]) for v in range(known + 1, snapshot.version) if v in winners]
            if len(pending) < snapshot.version - 1 - known:
                return self._publish_pending(snapshot.table_id, snapshot.location, {snapshot.version: data})
            publish_commits(self._reader(snapshot.table_id, snapshot.location), commits=pending, reached=self._reached)
            publish_one(self._store, snapshot.location, version=snapshot.version, data=data)
            self._reached(snapshot.version)
            return snapshot.version
        finally:
            if waits:
                self._schedule_flush(snapshot, _UNHURRIED)
            else:
                self._tell()

    def _publish_pending(self, table_id: str, location: str, contents: dict[int, bytes]) -> int:
        """Everything that is ratified and not published, whoever made it."""
        pending = self._catalog.get_ratified_commits(table_id)
        self._reached(pending.published_version, told=True)
        published = publish_commits(
            self._reader(table_id, location), commits=pending.unpublished, reached=self._reached, contents=contents
        )
        return published[-1] if published else pending.published_version

    def _reader(self, table_id: str, location: str) -> CommitReader:
        return CommitReader(self._store, location, records=CatalogRecords(self._catalog, table_id))

    def _reached(self, version: int, *, told: bool = False) -> None:
        with self._lock:
            self._published = max(self._published, version)
            if told:
                self._told = max(self._told, version)
            for done in [known for known in self._unpublished if known <= version]:
                del self._unpublished[done]

    def _note_behind(self, table_id: str, error: CatalogBehindStorageError) -> None:
        """Later writes of this process look at storage before they propose anything."""
        found = CatalogBehind(
            latest_version=error.latest_version,
            first_version=error.storage_version,
            last_version=error.storage_version,
            since_ms=self.now_ms(),
            is_forked=True,
        )
        self._tables_behind.note(table_id, found)

    def _publish_later(self, snapshot: Snapshot) -> None:
        """What could not be published at once, unless each commit is to wait for that."""
        if self._delay_seconds <= 0:
            return
        with self._lock:
            self._failed = max(self._failed, snapshot.version)
        try:
            self._schedule_flush(snapshot)
        except Exception:  # No thread to wait in: whoever commits next sees to it.
            _log.warning("Version %d of %s is left to others", snapshot.version, snapshot.identifier, exc_info=True)

    def _schedule_flush(self, snapshot: Snapshot, delays: int = 1) -> None:
        what = f"Publication of {snapshot.identifier} up to version {snapshot.version}"
        seconds, key = delays * self._delay_seconds, (id(self), delays)
        self._background.schedule(snapshot.table_id, key, what, self._flush, seconds=seconds, tries=_PUBLICATION_TRIES)

    def _flush(self) -> None:
        with self._settling:
            with self._lock:
                (table_id, location), contents = self._table, dict(self._unpublished)
                waiting = bool(contents) or self._failed > self._published
            try:
                try:
                    if waiting:
                        self._publish_pending(table_id, location, contents)
                finally:
                    self._tell()
            except CatalogBehindStorageError as error:
                self._note_behind(table_id, error)
                raise
            except TableNotFoundError:  # Dropped meanwhile; it is published by whoever brings it back and writes to it.
                _log.info("Table %s was dropped before its last commits were published", table_id)

    def _tell(self) -> None:
        with self._lock:
            table_id, mark = self._table[0], self._published
            told = mark <= self._told
        if not told:
            self._catalog.set_published_version(table_id, mark)
            self._reached(mark, told=True)

    def _permitted(self, snapshot: Snapshot, kind: MaintenanceKind) -> bool:
        name = TableIdentifier.parse(snapshot.identifier)
        decision = self._catalog.maintenance_decision(name, kind, table_id=snapshot.table_id)
        return decision.allowed

    def _write_checksums(self) -> None:
        """Of every version that waits for it; the catalog is asked once for all of them."""
        newest = self._checksums.newest_wanted()
        if newest is None:
            return
        permitted = self._permitted(newest, MaintenanceKind.VERSION_CHECKSUM)
        wanted = self._checksums.take()  # Only now: had there been no answer, they would wait for the next commit.
        if permitted:
            self._checksums.write(wanted)

    def _write_due_checkpoint(self) -> None:
        with self._lock:
            snapshot, self._due = self._due, None
        if snapshot is not None and not self._is_left_to_others(snapshot):
            self._write_checkpoint(snapshot)

    def _is_left_to_others(self, snapshot: Snapshot) -> bool:
        """Whether a newer checkpoint is there, or is due at whoever made a later commit and enough are there for now."""
        made = hinted_version(self._store, snapshot.location)
        interval = snapshot.properties.checkpoint_interval
        with self._lock:
            is_followed = self._newest >= snapshot.version + interval
        return made >= snapshot.version or (is_followed and made + _MOST_INTERVALS * interval > snapshot.version)

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        if not self._permitted(snapshot, MaintenanceKind.CHECKPOINT):
            return
        self.flush()
        with self._lock:
            published = self._published
        if published >= snapshot.version:
            current = replace(snapshot, published_version=snapshot.version)
            write_checkpoint(self._store, current, now_ms=self.now_ms())


def _from_its_file(commit: RatifiedCommit) -> RatifiedCommit:
    """What is published of a staged commit is its file, and not a copy of that."""
    return commit if commit.mode is CommitMode.INLINE else replace(commit, content=None)
