"""Delete staged commit files that no client needs (protocol heading "Metadata Cleanup").

A commit leaves its staged file behind, and each lost commit attempt leaves another. A staged file of a published version is a
copy or a lost attempt. A staged file of a later version may still be ratified and is never deleted, nor is that of a held
commit.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta

from cm_delta_dagster.catalog.durations import milliseconds_of
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, published_source
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.maintenance.authorization import check_size, maintenance_lease, require_permission
from cm_delta_dagster.operations.maintenance.held_commits import staged_files_of_held
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.cleanup import orphaned_staged_commits
from cm_delta_dagster.protocol.log.log_files import CommitFile, parse_log_file

SAFETY_AGE_MS = 24 * 60 * 60 * 1000
"""Milliseconds for which a staged file is kept, for readers and publishers that use an older answer of the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStagedCommitsPlan(Plan["CleanStagedCommitsResult"]):
    """The staged files that :func:`clean_staged_commits` would delete: names in ``_staged_commits``, and their total size."""

    names: tuple[str, ...]
    num_bytes: int
    safety_age: timedelta = timedelta(milliseconds=SAFETY_AGE_MS)

    @property
    def num_files(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStagedCommitsResult:
    """What was deleted."""

    num_files: int
    num_bytes: int


def plan_clean_staged_commits(table: Table, *, safety_age_ms: int = SAFETY_AGE_MS) -> CleanStagedCommitsPlan:
    """Find the staged files of published versions that the catalog no longer returns: the dry run.

    Args:
        safety_age_ms: keep files younger than this many milliseconds.

    Raises:
        InvalidArgumentError: ``safety_age_ms`` is negative.
        UnsupportedFeatureError: the table needs a writer feature that this client does not support.
    """
    if safety_age_ms < 0:
        raise InvalidArgumentError(
            f"safety_age_ms is {safety_age_ms}; give the milliseconds to keep files, at least 0."
        )
    snapshot = table.snapshot()
    check_writable(snapshot.protocol, snapshot.identifier)
    # Call the catalog after the listing: a file that is staged later was not listed.
    staged = table.store.list_from(log_files.staged_commits_directory(table.location))
    ratified = table.ratified()
    names = orphaned_staged_commits(
        [(status.name, status.modification_time) for status in staged],
        ratified_names={commit.file_name for commit in ratified.commits} | staged_files_of_held(table),
        published_version=ratified.published_version,
        now_ms=table.services.now_ms(),
        safety_age_ms=safety_age_ms,
    )
    names = _with_published_copy(table, names)
    sizes = {status.name: status.size for status in staged}
    return CleanStagedCommitsPlan(
        names=names, num_bytes=sum(sizes[name] for name in names), safety_age=timedelta(milliseconds=safety_age_ms)
    )


def clean_staged_commits(table: Table, *, safety_age_ms: int = SAFETY_AGE_MS) -> CleanStagedCommitsResult:
    """Delete the staged files of published versions that the catalog no longer returns.

    Arguments and errors as in :func:`plan_clean_staged_commits`, and:

    Raises:
        CatalogBehindStorageError: storage holds commits that the catalog does not know; nothing was deleted.
        MaintenanceNotPermittedError: the policy does not allow METADATA_CLEANUP; nothing was deleted.
        MaintenanceInProgressError: another maintenance run holds a lease on the table.
    """
    return _clean(table, None, safety_age_ms=safety_age_ms)


def apply_clean_staged_commits(table: Table, plan: CleanStagedCommitsPlan) -> CleanStagedCommitsResult:
    """Delete the files of ``plan`` that may still be deleted. Raises as :func:`clean_staged_commits`."""
    return _clean(table, plan, safety_age_ms=milliseconds_of(plan.safety_age))


def _clean(table: Table, planned: CleanStagedCommitsPlan | None, *, safety_age_ms: int) -> CleanStagedCommitsResult:
    table.refuse_if_behind()
    decision = require_permission(table, MaintenanceKind.METADATA_CLEANUP)
    with maintenance_lease(table, MaintenanceKind.METADATA_CLEANUP) as lease:
        plan = plan_clean_staged_commits(table, safety_age_ms=safety_age_ms)
        if planned is not None:
            names = frozenset(planned.names)
            plan = replace(plan, names=tuple(name for name in plan.names if name in names), num_bytes=planned.num_bytes)
        check_size(table, decision, num_files=plan.num_files, num_bytes=plan.num_bytes)
        directory = log_files.staged_commits_directory(table.location)
        for name in plan.names:
            lease.check()
            table.store.delete(f"{directory}/{name}")
    return CleanStagedCommitsResult(num_files=plan.num_files, num_bytes=plan.num_bytes)


def _with_published_copy(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files whose version is intact in ``_delta_log``, or was deleted from it by log cleanup.

    A staged file may be the last intact copy of its commit. Therefore the published file of each ratified commit is read and
    compared with what the catalog ratified. Files of lost commit attempts need no copy.
    """
    if not names:
        return ()
    listed = table.store.list_from(log_files.log_directory(table.location))
    published = {file.version for status in listed if isinstance(file := parse_log_file(status.name), CommitFile)}
    if not published:
        return ()
    oldest = min(published)
    # The name of a staged commit starts with its version.
    versions = {name: int(name.partition(".")[0]) for name in names}
    ends = {"start": min(versions.values()), "end": max(versions.values())}
    accepted = {
        commit.file_name: commit for commit in table.services.coordinator.commit_records(table.table_id, **ends)
    }
    compared = [accepted[name] for name, version in versions.items() if version in published and name in accepted]
    with ThreadPoolExecutor(max_workers=table.reader.threads) as pool:
        intact = pool.map(lambda commit: _is_published(table, commit), compared)
        altered = {commit.file_name for commit, is_intact in zip(compared, intact, strict=True) if not is_intact}
    return tuple(
        name for name, version in versions.items() if version < oldest or (version in published and name not in altered)
    )


def _is_published(table: Table, commit: RatifiedCommit) -> bool:
    """Whether the published file has the ratified content."""
    try:
        data = table.store.read(published_source(table.location, commit.version).location)
    except ObjectNotFoundError:
        return False
    return is_ratified(commit, data)
