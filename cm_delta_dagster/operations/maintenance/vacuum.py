"""VACUUM: delete data files that no version within the retention needs (protocol heading "VACUUM Protocol Check").

``protocol.log.cleanup`` decides which files may be deleted. This module lists the table, makes the plan from a snapshot taken
after the listing, and deletes the files. It never deletes log files or staged commits. It keeps the files that shallow clones of
the table name, also through links. Symbolic links in the table are not followed, and stay with what they lead to.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.durations import milliseconds_of
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.client.post_commit.checkpoint_writer import refuse_contradiction
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import RetentionTooShortError
from cm_delta_dagster.operations.arguments import check_milliseconds
from cm_delta_dagster.operations.maintenance.authorization import (
    MaintenanceLease,
    check_retention,
    check_size,
    maintenance_lease,
    require_permission,
)
from cm_delta_dagster.operations.maintenance.clone_files import files_of_clones
from cm_delta_dagster.operations.maintenance.held_commits import files_of_held
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.recovery.set_aside import files_set_aside
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.paths import file_keys, normalise_location
from cm_delta_dagster.protocol.features.deletion_vectors import vector_files
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import cleanup, log_files
from cm_delta_dagster.remedies import IgnoreRetention
from cm_delta_dagster.storage.other_names import named_otherwise
from cm_delta_dagster.storage.store import Store, StoreRegistry

_log = logging.getLogger(__name__)

_DAY_MS = 24 * 60 * 60 * 1000
_COMMITS_PER_BATCH = 64
_DELETES_PER_BATCH = 1000
_DELETE_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPlan(Plan["VacuumResult"]):
    """What :func:`vacuum` would delete.

    Attributes:
        version: the version whose files and tombstones are kept.
        retention: files that are younger, or were removed within this time, are kept.
        paths: decoded paths relative to the table root, in order. One that ends with a slash is an empty object that stands for
            the directory of a write, as Spark's clients of object stores leave it.
        num_bytes: total size of the files in bytes.
        is_forced: whether the retention may be shorter than that of the table.
    """

    version: int
    retention: timedelta
    paths: tuple[str, ...]
    num_bytes: int
    is_forced: bool = False

    @property
    def num_files(self) -> int:
        return len(self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    """What was deleted. ``num_bytes`` is that of the plan; ``num_files`` excludes files that a later commit added again."""

    version: int
    retention: timedelta
    num_files: int
    num_bytes: int


def plan_vacuum(table: Table, *, retention_ms: int | None = None, force: bool = False) -> VacuumPlan:
    """List the files that no version within the retention needs: the dry run of :func:`vacuum`. It needs no permission.

    Args:
        retention_ms: milliseconds for which removed files are kept; by default the table property
            ``delta.deletedFileRetentionDuration``.
        force: allow a retention shorter than that of the table. Dangerous: vacuum then deletes files that running readers and
            writers use.

    Raises:
        RetentionTooShortError: the retention is shorter than that of the table.
        InvalidArgumentError: the retention is negative or not a whole number.
        UnsupportedFeatureError: the table needs a writer feature that this client does not support.
        CorruptLogError: the state of the table contradicts the checksum of its version.
        VacuumRefusedError: a shallow clone of the table cannot be loaded, so that its files are not known.
    """
    return _drafted(table, retention_ms, force).plan


def vacuum(table: Table, *, retention_ms: int | None = None, force: bool = False) -> VacuumResult:
    """Delete the files that no version within the retention needs. Arguments and errors as in :func:`plan_vacuum`.

    Raises:
        CatalogBehindStorageError: storage holds commits that the catalog does not know; nothing was deleted.
        MaintenanceNotPermittedError: the policy does not allow DATA_CLEANUP, or not for that many files; nothing was deleted.
        RetentionTooShortError: also if the rules of the catalog demand a longer retention.
        MaintenanceInProgressError: another maintenance run holds a lease on the table.
        StorageError: a file could not be deleted; run vacuum again to continue.
    """
    return _vacuum(table, None, retention_ms=retention_ms, force=force)


def apply_vacuum(table: Table, plan: VacuumPlan) -> VacuumResult:
    """Delete the files of ``plan``, without those that have become needed: by a commit, a clone, a longer retention.

    The table is listed again for that; other files than those of the plan are never deleted. Raises as :func:`vacuum`.
    """
    return _vacuum(table, plan, retention_ms=milliseconds_of(plan.retention), force=plan.is_forced)


def _vacuum(table: Table, planned: VacuumPlan | None, *, retention_ms: int | None, force: bool) -> VacuumResult:
    table.refuse_if_behind()
    decision = require_permission(table, MaintenanceKind.DATA_CLEANUP)
    check_retention(table, decision, _retention(_checked_snapshot(table), retention_ms, force))
    with maintenance_lease(table, MaintenanceKind.DATA_CLEANUP) as lease:
        # Who creates a clone holds the lease until it is registered: a clone that is still reserved now has failed.
        table.services.registry.abandon_clones(table.table_id)
        draft = _drafted(table, retention_ms, force)
        if planned is not None:
            draft = replace(draft, plan=_still_unneeded(planned, draft.plan))
        plan = draft.plan
        check_retention(table, decision, milliseconds_of(plan.retention))
        check_size(table, decision, num_files=plan.num_files, num_bytes=plan.num_bytes)
        deleted = _delete(table, draft, lease)
    return VacuumResult(version=plan.version, retention=plan.retention, num_files=deleted, num_bytes=plan.num_bytes)


def _still_unneeded(planned: VacuumPlan, now: VacuumPlan) -> VacuumPlan:
    """The plan ``now``, limited to the files that were planned."""
    unneeded = frozenset(now.paths)
    return replace(now, paths=tuple(path for path in planned.paths if path in unneeded), num_bytes=planned.num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DraftPlan:
    """A plan, and the keys of all files that it keeps because a log names them."""

    plan: VacuumPlan
    needed: pa.Array


def _drafted(table: Table, retention_ms: int | None, force: bool) -> _DraftPlan:
    # Checked before the listing and again after it: the listing takes long, and the protocol may change meanwhile.
    kept_ms = _retention(_checked_snapshot(table), retention_ms, force)
    if kept_ms == 0:
        _log.warning(
            "VACUUM of %s has a retention of 0: it deletes files that running readers and time travel still need, and files that "
            "running writers have not committed yet. Run it only while no client uses the table, or set "
            "delta.deletedFileRetentionDuration to longer than the longest query and write, e.g. 'interval 7 days'.",
            table.identifier,
        )
    now_ms = table.services.now_ms()
    files, linked = _list_files(table)
    # This snapshot includes the commits made during the listing, so their files are kept.
    draft = _compared(table, files, linked, kept_ms, force=force, now_ms=now_ms)
    if not draft.plan.paths:
        return draft  # Without anything to delete the held commits are not read.
    held_files = files_of_held(table)
    if not held_files and table.latest_version() == draft.plan.version:
        return draft  # No hold was ratified between the two.
    return _compared(table, files, linked | held_files, kept_ms, force=force, now_ms=now_ms)


def _compared(
    table: Table, files: pa.Table, kept: set[str] | frozenset[str], kept_ms: int, *, force: bool, now_ms: int
) -> _DraftPlan:
    """The plan for the files of a listing that the latest version does not need, without those at the locations ``kept``."""
    snapshot = _checked_snapshot(table)
    refuse_contradiction(table.store, snapshot)
    _retention(snapshot, kept_ms, force)
    removes = _protecting_removes(table, snapshot, now_ms=now_ms, retention_ms=kept_ms)
    unexpired = cleanup.unexpired_tombstones(removes, now_ms=now_ms, retention_ms=kept_ms)
    needed = cleanup.needed_files(
        table.location,
        adds=snapshot.files,
        tombstones=unexpired,
        deletion_vector_files=vector_files(table.location, snapshot.files)
        | vector_files(table.location, unexpired)
        | files_set_aside(table)
        | files_of_clones(table, now_ms=now_ms)
        | kept,
    )
    unreferenced = _unreferenced(snapshot, table.services.stores, files, needed, now_ms=now_ms, retention_ms=kept_ms)
    plan = VacuumPlan(
        version=snapshot.version,
        retention=timedelta(milliseconds=kept_ms),
        paths=unreferenced.paths,
        num_bytes=unreferenced.size_bytes,
        is_forced=force,
    )
    return _DraftPlan(plan=plan, needed=needed)


def _unreferenced(
    snapshot: Snapshot, stores: StoreRegistry, files: pa.Table, needed: pa.Array, *, now_ms: int, retention_ms: int
) -> cleanup.UnreferencedFiles:
    """The listed files that may be deleted; what a log names by another location than the listing stays."""
    select = partial(
        cleanup.unreferenced_files,
        files,
        location=snapshot.location,
        needed=needed,
        partition_columns=snapshot.partition_columns,
        now_ms=now_ms,
        retention_ms=retention_ms,
    )
    plan = select()
    others = cleanup.unlisted_files(needed, files, location=snapshot.location)
    kept = named_otherwise(stores, snapshot.location, plan.paths, others)
    return select(kept=kept) if kept else plan


def _checked_snapshot(table: Table) -> Snapshot:
    snapshot = table.snapshot()
    check_writable(snapshot.protocol, snapshot.identifier)
    return snapshot


def _retention(snapshot: Snapshot, requested_ms: int | None, force: bool) -> int:
    of_table_ms = snapshot.properties.deleted_file_retention_ms
    if requested_ms is None:
        return of_table_ms
    check_milliseconds(requested_ms, name="retention_ms")
    if requested_ms < of_table_ms and not force:
        raise RetentionTooShortError(
            f"VACUUM of {snapshot.identifier} with a retention of {requested_ms / _DAY_MS:g} days was refused: the table "
            f"keeps removed files for {of_table_ms / _DAY_MS:g} days (delta.deletedFileRetentionDuration), and a shorter "
            "retention may break running readers and writers and time travel. Nothing was deleted. Use at least that "
            "retention, or change the table property."
        ).with_remedy(IgnoreRetention(table=str(snapshot.identifier)))
    return requested_ms


def _list_files(table: Table) -> tuple[pa.Table, set[str]]:
    """The files below the table root, as ``cleanup.FILES_SCHEMA``, and the locations of the files that links there lead to.

    The links themselves are left out, and so are the files of the log, and those of Delta tables below this one, which an adopted
    table may have.
    """
    root = table.location.rstrip("/") + "/"
    log = log_files.log_directory(table.location).rstrip("/") + "/"
    paths, sizes, times = [], [], []
    other_tables: set[str] = set()
    linked: set[str] = set()
    for status in table.store.list_recursive(table.location, with_directories=True):
        if not status.location.startswith(root) or status.location.startswith(log):
            continue
        other_tables |= _table_of_log(status.location[len(root) :])
        if status.is_link:
            linked.add(table.store.resolve(status.location))
            continue
        paths.append(status.location[len(root) :])
        sizes.append(status.size)
        times.append(status.modification_time)
    for link in table.store.unlisted_links(
        table.location
    ):  # The log of such a table, or a part of it, may be elsewhere.
        other_tables |= _table_of_log(link.removeprefix(root))
    files = pa.table([paths, sizes, times], schema=cleanup.FILES_SCHEMA)
    for other in sorted(other_tables):
        _log.warning("VACUUM of %s leaves out %s, which is a Delta table of its own.", table.identifier, other)
        files = files.filter(pc.invert(pc.starts_with(files["path"], other)))
    return files, linked


def _table_of_log(path: str) -> set[str]:
    """The directory, with a slash at its end, of the Delta table below this one whose log is at ``path`` or has it; or nothing."""
    other, is_log, _ = f"{path}/".partition("/_delta_log/")
    return {f"{other}/"} if is_log else set()


def _protecting_removes(table: Table, snapshot: Snapshot, *, now_ms: int, retention_ms: int) -> pa.Table:
    """Return the tombstones of the snapshot and of the commits within the retention; their files are kept.

    A checkpoint drops tombstones by the retention that the table had when the checkpoint was written. If that was shorter
    than ``retention_ms``, only the commits show which files the versions within the retention had.
    """
    tables = [snapshot.tombstones]
    for commit in _recent_commits(table, snapshot, since_ms=now_ms - retention_ms):
        if commit.removes.num_rows:
            # Use the present as deletion time: the file belongs to a version that must stay readable.
            position = commit.removes.schema.get_field_index("deletionTimestamp")
            field = commit.removes.schema.field(position)
            times = pa.repeat(pa.scalar(now_ms, pa.int64()), commit.removes.num_rows)
            tables.append(commit.removes.set_column(position, field, times))
    return pa.concat_tables(tables)


def _recent_commits(table: Table, snapshot: Snapshot, *, since_ms: int) -> Iterator[CommitActions]:
    """Yield the commits up to the snapshot made at or after ``since_ms``, newest first, as far as the log still has them."""
    ratified: RatifiedCommits = table.ratified()
    first = table.commit_log().first
    end = snapshot.version
    while end >= first:
        start = max(first, end - _COMMITS_PER_BATCH + 1)
        sources = commit_sources(table.location, start=start, end=end, ratified=ratified.commits)
        for commit in reversed(table.reader.decode_all(sources)):
            info = commit.commit_info
            # A commit without a time counts as recent, so that its files are kept.
            if info is not None and info.in_commit_timestamp is not None and info.in_commit_timestamp < since_ms:
                return
            yield commit
        end = start - 1


def _delete(table: Table, draft: _DraftPlan, lease: MaintenanceLease) -> int:
    root = table.location.rstrip("/")
    paths = draft.plan.paths
    directories = [path for path in paths if path.endswith("/")]
    # The deepest directories last but before those that hold them: a store may keep a directory that is not empty.
    remaining = (*(path for path in paths if not path.endswith("/")), *directories[::-1])
    checked_version = draft.plan.version
    deleted = 0
    with ThreadPoolExecutor(max_workers=_DELETE_THREADS, thread_name_prefix="cm-delta-vacuum") as pool:
        while remaining:
            lease.check()
            snapshot = table.snapshot()
            if snapshot.version != checked_version:
                # A commit may have added an old file again, as RESTORE does.
                remaining = _not_live(table, remaining, snapshot, draft.needed)
                checked_version = snapshot.version
            batch, remaining = remaining[:_DELETES_PER_BATCH], remaining[_DELETES_PER_BATCH:]
            for _ in pool.map(lambda path: _delete_file(table.store, f"{root}/{path}", lease), _inside(table, batch)):
                deleted += 1
    return deleted


def _inside(table: Table, paths: Sequence[str]) -> list[str]:
    """``paths`` without those whose directory has become a link since the listing, and whose files are elsewhere."""
    root, real = table.location.rstrip("/"), table.store.resolve(table.location).rstrip("/")
    places: dict[str, bool] = {}
    for directory in {path.rstrip("/").rpartition("/")[0] for path in paths}:
        is_inside = table.store.resolve(f"{root}/{directory}").rstrip("/") == f"{real}/{directory}".rstrip("/")
        places[directory] = is_inside
        if not is_inside:
            _log.warning("VACUUM of %s leaves out %s: it is a link now.", table.identifier, f"{root}/{directory}")
    return [path for path in paths if places[path.rstrip("/").rpartition("/")[0]]]


def _delete_file(store: Store, location: str, lease: MaintenanceLease) -> None:
    lease.check()
    store.delete(location)
    if location.startswith("file:"):
        # Hadoop's local file system writes a hidden checksum file next to each file, which is not listed as a data file.
        parent, _, name = location.rpartition("/")
        store.delete(f"{parent}/.{name}.crc")


def _not_live(table: Table, paths: Sequence[str], snapshot: Snapshot, known: pa.Array) -> tuple[str, ...]:
    """``paths`` without those that ``snapshot`` has. ``known``: keys that the plan has considered."""
    vectors = [normalise_location(file) for file in vector_files(snapshot.location, snapshot.files)]
    live = pa.concat_arrays([file_keys(snapshot.location, snapshot.files["path"]), pa.array(vectors, pa.string())])
    new = live.filter(pc.invert(pc.is_in(live, value_set=known)))
    root = normalise_location(snapshot.location)
    keys = set(new.to_pylist())
    remaining = tuple(path for path in paths if f"{root}/{path}" not in keys)
    kept = named_otherwise(table.services.stores, snapshot.location, remaining, new)
    return tuple(path for path in remaining if path not in kept)
