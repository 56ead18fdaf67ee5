"""Delete the log files whose retention has expired (protocol heading "Metadata Cleanup").

``protocol.log.cleanup`` decides which files may be deleted. This module lists the log, reads the checkpoint that will be the
oldest completely before it deletes anything, and deletes files in ascending order of version. If no checkpoint with a classic name
stays, the oldest one gets a copy under such a name first, so that clients without V2 checkpoints find the protocol and refuse
the table by its features (protocol heading "V2 Checkpoint Table Feature").
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.log_reader import proven_checkpoint
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectAlreadyExistsError, ObjectNotFoundError
from cm_delta_dagster.operations.maintenance.authorization import (
    MaintenanceLease,
    check_retention,
    check_size,
    maintenance_lease,
    require_permission,
)
from cm_delta_dagster.operations.maintenance.held_commits import held_versions, staged_files_of_held
from cm_delta_dagster.operations.maintenance.log_obstacles import (
    NOTHING_KEPT,
    KeptLog,
    kept_by_checkpoints,
    kept_by_earlier_runs,
    kept_by_protection,
    kept_by_retention,
)
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.features.table_features import check_writable, supports
from cm_delta_dagster.protocol.log import checkpoint_reading, log_files
from cm_delta_dagster.protocol.log.checkpoint_content import CheckpointContent
from cm_delta_dagster.protocol.log.cleanup import (
    LogCleanupPlan,
    cut_off_timestamp,
    log_cleanup_plan,
    sidecar_cleanup_plan,
)
from cm_delta_dagster.protocol.log.log_files import (
    ClassicCheckpointFile,
    CommitFile,
    MultiPartCheckpointFile,
    V2CheckpointFile,
    parse_log_file,
)
from cm_delta_dagster.storage.parquet import decode_parquet
from cm_delta_dagster.storage.store import ObjectStatus, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanLogPlan(Plan["CleanLogResult"]):
    """What :func:`clean_log` would delete.

    Attributes:
        oldest_version: version of the checkpoint that becomes the oldest readable version; None if nothing may be deleted,
            because no commit has expired or no checkpoint is old enough.
        log_names: names in ``_delta_log``, in the order of deletion.
        staged_names: names in ``_delta_log/_staged_commits``.
        sidecar_names: names in ``_delta_log/_sidecars``.
        num_bytes: total size of these files in bytes.
        copied_checkpoint: name of the checkpoint of ``oldest_version`` that gets a copy under its classic name; None if a
            checkpoint with a classic name stays.
        kept: why no file is deleted, as a value and as a text for people; None and empty if files are deleted.
    """

    oldest_version: int | None
    log_names: tuple[str, ...] = ()
    staged_names: tuple[str, ...] = ()
    sidecar_names: tuple[str, ...] = ()
    num_bytes: int = 0
    copied_checkpoint: str | None = None
    kept: KeptLog = NOTHING_KEPT

    @property
    def num_files(self) -> int:
        return len(self.log_names) + len(self.staged_names) + len(self.sidecar_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanLogResult:
    """What was deleted; fields as in :class:`CleanLogPlan`."""

    oldest_version: int | None
    num_log_files: int
    num_staged_commits: int
    num_sidecars: int
    num_bytes: int
    kept: KeptLog = NOTHING_KEPT

    @property
    def num_files(self) -> int:
        return self.num_log_files + self.num_staged_commits + self.num_sidecars


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The files in ``_delta_log``, ``_staged_commits`` and ``_sidecars``."""

    log: Sequence[ObjectStatus]
    staged: Sequence[ObjectStatus]
    sidecars: Sequence[ObjectStatus]

    @property
    def names(self) -> list[str]:
        return [status.name for status in self.log]


def plan_clean_log(table: Table) -> CleanLogPlan:
    """Find the log files older than ``delta.logRetentionDuration``: the dry run of :func:`clean_log`.

    Raises:
        UnsupportedFeatureError: the table needs a writer feature that this client does not support.
        StorageError: the log could not be listed or read.
    """
    snapshot = table.snapshot()
    check_writable(snapshot.protocol, snapshot.identifier)
    now_ms = table.services.now_ms()
    listing = _list(table)
    ratified = table.ratified()
    # The catalog may still return a staged commit of a published version. Readers then read the staged file.
    served = {commit.file_name for commit in ratified.commits} | staged_files_of_held(table)
    retention_ms = snapshot.properties.log_retention_ms
    limit = cut_off_timestamp(now_ms, retention_ms)
    needed_from = min(held_versions(table.services, table.table_id), default=ratified.published_version)
    published = _published(listing.names, ratified.published_version)
    # The version on which a held commit was made stays readable, so that what follows it cannot be the oldest version.
    commits = [version for version in published if version <= needed_from]
    expired = _newest_expired(table, commits, limit)
    if not expired:
        oldest = None if not commits else (commits[0], _commit_timestamp(table, commits[0]))
        return CleanLogPlan(oldest_version=None, kept=kept_by_retention(oldest, retention_ms=retention_ms))
    unusable: frozenset[str] = frozenset()
    while True:
        plan = log_cleanup_plan(
            listing.names,
            staged_names=[status.name for status in listing.staged if status.name not in served],
            commit_timestamps=expired,
            published_version=ratified.published_version,
            now_ms=now_ms,
            retention_ms=retention_ms,
            unusable_checkpoints=unusable,
        )
        if plan.cut_off_version is None:
            return CleanLogPlan(
                oldest_version=None, kept=kept_by_checkpoints(newest_expired=max(expired), unusable=sorted(unusable))
            )
        if plan.cut_off_version < _protected_before(snapshot):
            kept = kept_by_protection(plan.cut_off_version, before=_protected_before(snapshot))
            return CleanLogPlan(oldest_version=None, kept=kept)
        if _is_readable(table, plan.cut_off_version, plan.cut_off_checkpoint):
            return _with_sidecars(table, listing, plan, now_ms=now_ms)
        unusable |= set(plan.cut_off_checkpoint)


def clean_log(table: Table) -> CleanLogResult:
    """Delete commits, checkpoints, checksums, compactions, staged commits and sidecars whose retention has expired.

    The version of the newest expired checkpoint and all later versions stay readable. Without such a checkpoint nothing is
    deleted. Errors as in :func:`plan_clean_log`, and:

    Raises:
        CatalogBehindStorageError: storage holds commits that the catalog does not know; nothing was deleted.
        MaintenanceNotPermittedError: the policy does not allow METADATA_CLEANUP, or not for that many files; nothing was deleted.
        RetentionTooShortError: the rules of the catalog demand a longer retention than the table has; nothing was deleted.
        MaintenanceInProgressError: another maintenance run holds a lease on the table.
    """
    return _clean(table, None)


def apply_clean_log(table: Table, plan: CleanLogPlan) -> CleanLogResult:
    """Delete the files of ``plan`` that may still be deleted. Raises as :func:`clean_log`.

    The plan is compared with one that is made now, so that a longer retention or a damaged checkpoint keeps files.
    """
    return _clean(table, plan)


def _clean(table: Table, planned: CleanLogPlan | None) -> CleanLogResult:
    table.refuse_if_behind()
    decision = require_permission(table, MaintenanceKind.METADATA_CLEANUP)
    check_retention(table, decision, table.snapshot().properties.log_retention_ms)
    with maintenance_lease(table, MaintenanceKind.METADATA_CLEANUP) as lease:
        plan = plan_clean_log(table)
        if planned is not None:
            plan = _limited(plan, planned)
        check_size(table, decision, num_files=plan.num_files, num_bytes=plan.num_bytes)
        _copy_checkpoint(table, plan)
        _delete(table, log_files.log_directory(table.location), plan.log_names, lease)
        _delete(table, log_files.staged_commits_directory(table.location), plan.staged_names, lease)
        # Checkpoints written after the plan was made may refer to sidecars of the plan. Those are kept.
        referenced = _referenced(table.store, table.location, _checkpoint_names(table)) if plan.sidecar_names else None
        sidecars = [name for name in plan.sidecar_names if referenced is not None and name not in referenced]
        _delete(table, log_files.sidecars_directory(table.location), sidecars, lease)
    return CleanLogResult(
        oldest_version=plan.oldest_version,
        num_log_files=len(plan.log_names),
        num_staged_commits=len(plan.staged_names),
        num_sidecars=len(sidecars),
        num_bytes=plan.num_bytes,
        kept=plan.kept,
    )


def _limited(now: CleanLogPlan, planned: CleanLogPlan) -> CleanLogPlan:
    """The plan ``now``, limited to the files of ``planned``. The older of the two oldest versions stays readable."""

    def both(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
        allowed = frozenset(others)
        return tuple(name for name in names if name in allowed)

    if now.oldest_version is None or planned.oldest_version is None:
        return CleanLogPlan(oldest_version=None, kept=now.kept if now.oldest_version is None else planned.kept)
    oldest = min((now, planned), key=lambda plan: plan.oldest_version or 0)
    log_names = both(now.log_names, planned.log_names)
    return replace(
        now,
        oldest_version=oldest.oldest_version,
        log_names=log_names,
        staged_names=both(now.staged_names, planned.staged_names),
        sidecar_names=both(now.sidecar_names, planned.sidecar_names),
        num_bytes=planned.num_bytes,
        copied_checkpoint=oldest.copied_checkpoint if log_names else None,
    )


def _copy_checkpoint(table: Table, plan: CleanLogPlan) -> None:
    if plan.copied_checkpoint is None or plan.oldest_version is None:
        return
    directory = log_files.log_directory(table.location)
    content = table.store.read(f"{directory}/{plan.copied_checkpoint}")
    name = log_files.classic_checkpoint_file_name(plan.oldest_version)
    with suppress(ObjectAlreadyExistsError):  # An earlier run wrote it and failed later.
        table.store.write_if_absent(f"{directory}/{name}", content, within=directory)


def _without_classic_name(plan: LogCleanupPlan) -> str | None:
    """The checkpoint that needs a copy under its classic name, because none with such a name stays."""
    if any(isinstance(parse_log_file(name), ClassicCheckpointFile) for name in plan.kept_checkpoints):
        return None
    v2_names = (name for name in plan.cut_off_checkpoint if isinstance(parse_log_file(name), V2CheckpointFile))
    # A checkpoint in JSON is not copied: a file with a classic name is Parquet.
    return next((name for name in v2_names if plan.log_names and name.endswith(".parquet")), None)


def _protected_before(snapshot: Snapshot) -> int:
    """Versions below it are deleted together or not at all: they may need a feature that the table has dropped since."""
    if not supports(snapshot.protocol, "checkpointProtection"):
        return 0
    return snapshot.properties.checkpoints_protected_before


def _list(table: Table) -> _Listing:
    # List sidecars first: a sidecar is written before the checkpoint that refers to it.
    sidecars = table.store.list_from(log_files.sidecars_directory(table.location))
    staged = table.store.list_from(log_files.staged_commits_directory(table.location))
    log = table.store.list_from(log_files.log_directory(table.location))
    return _Listing(log=log, staged=staged, sidecars=sidecars)


def _published(names: Iterable[str], published_version: int) -> list[int]:
    """The published versions whose commits are in the log, in ascending order."""
    files = [file for name in names if isinstance(file := parse_log_file(name), CommitFile)]
    return sorted(file.version for file in files if file.version <= published_version)


def _newest_expired(table: Table, versions: Sequence[int], limit_ms: int) -> dict[int, int]:
    """Return the newest of ``versions`` whose commit time is at most ``limit_ms``, with that time; empty if none is.

    In-commit timestamps increase with the version, so a binary search reads a few commits instead of all.
    """
    newest: dict[int, int] = {}
    low, high = 0, len(versions) - 1
    while low <= high:
        middle = (low + high) // 2
        timestamp = _commit_timestamp(table, versions[middle])
        if timestamp <= limit_ms:
            newest = {versions[middle]: timestamp}
            low = middle + 1
        else:
            high = middle - 1
    return newest


def _commit_timestamp(table: Table, version: int) -> int:
    (source,) = table.reader.with_digests([published_source(table.location, version)])
    info = commit_json.decode_commit_info(table.reader.read(source))
    if info is None or info.in_commit_timestamp is None:
        raise CorruptLogError(
            f"Version {version} of {table.identifier} has no inCommitTimestamp in its first action, so its age is "
            "unknown. The commit is corrupt. Nothing was deleted."
        )
    return info.in_commit_timestamp


def _is_readable(table: Table, version: int, names: Sequence[str]) -> bool:
    """Whether the checkpoint is complete and does not contradict its checksum. Otherwise the older files are needed."""
    directory = log_files.log_directory(table.location)
    try:
        proven_checkpoint(table.reader, version=version, locations=[f"{directory}/{name}" for name in names])
    except (CorruptLogError, ObjectNotFoundError):
        return False
    return True


def _sidecar_names(contents: Iterable[CheckpointContent]) -> list[str]:
    return [sidecar.path.rpartition("/")[2] for content in contents for sidecar in content.sidecars]


def _with_sidecars(table: Table, listing: _Listing, plan: LogCleanupPlan, *, now_ms: int) -> CleanLogPlan:
    sidecars = sidecar_cleanup_plan(
        [(status.name, status.modification_time) for status in listing.sidecars],
        referenced=_referenced(table.store, table.location, plan.kept_checkpoints),
        now_ms=now_ms,
    )
    statuses = (*listing.log, *listing.staged, *listing.sidecars)
    sizes = {status.location: status.size for status in statuses}
    total = 0
    for directory, names in (
        (log_files.log_directory(table.location), plan.log_names),
        (log_files.staged_commits_directory(table.location), plan.staged_names),
        (log_files.sidecars_directory(table.location), sidecars),
    ):
        total += sum(sizes.get(f"{directory}/{name}", 0) for name in names)
    nothing = not (plan.log_names or plan.staged_names or sidecars)
    return CleanLogPlan(
        oldest_version=plan.cut_off_version,
        log_names=plan.log_names,
        staged_names=plan.staged_names,
        sidecar_names=sidecars,
        num_bytes=total,
        copied_checkpoint=_without_classic_name(plan),
        kept=kept_by_earlier_runs(plan.cut_off_version) if nothing else NOTHING_KEPT,
    )


def _checkpoint_names(table: Table) -> list[str]:
    kinds = ClassicCheckpointFile | MultiPartCheckpointFile | V2CheckpointFile
    statuses = table.store.list_from(log_files.log_directory(table.location))
    return [status.name for status in statuses if isinstance(parse_log_file(status.name), kinds)]


def _referenced(store: Store, location: str, names: Iterable[str]) -> frozenset[str] | None:
    """Return the names of the sidecars that these checkpoints refer to; None if a checkpoint cannot be read."""
    sidecars: set[str] = set()
    for name in names:
        try:
            data = store.read(f"{log_files.log_directory(location)}/{name}")
            if name.endswith(".json"):
                sidecars.update(_sidecar_names([checkpoint_reading.decode_checkpoint_json(data)]))
                continue
            rows = decode_parquet(data, ["sidecar"])
        except (CorruptLogError, ObjectNotFoundError):
            return None
        if "sidecar" in rows.column_names:
            values = rows["sidecar"].to_pylist()
            sidecars.update(value["path"].rpartition("/")[2] for value in values if value and value.get("path"))
    return frozenset(sidecars)


def _delete(table: Table, directory: str, names: Sequence[str], lease: MaintenanceLease) -> None:
    # In order and not in parallel: if the run is interrupted, all later versions stay readable.
    for name in names:
        lease.check()
        table.store.delete(f"{directory}/{name}")
