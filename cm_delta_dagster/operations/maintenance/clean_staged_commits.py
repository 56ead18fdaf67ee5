"""Deleting staged files that nobody needs any more (headings "Staged commits", "Metadata Cleanup").

Every commit leaves its staged file behind, every lost race another one (CM-P7, CM-W5). Those of published versions are
copies or losers; those of later versions may still be ratified and are never touched.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, published_source
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease, require_permission
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.cleanup import orphaned_staged_commits
from cm_delta_dagster.protocol.log.log_files import CommitFile, parse_log_file

SAFETY_AGE_MS = 24 * 60 * 60 * 1000
"""Age up to which a staged file is kept, for readers and publishers that hold an older answer of the catalog."""

_CHECK_EVERY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStagedCommitsPlan:
    """Staged files that :func:`clean_staged_commits` would delete: names in ``_staged_commits``, and their bytes."""

    names: tuple[str, ...]
    num_bytes: int

    @property
    def num_files(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStagedCommitsResult:
    """What was deleted."""

    num_files: int
    num_bytes: int


def plan_clean_staged_commits(table: Table, *, safety_age_ms: int = SAFETY_AGE_MS) -> CleanStagedCommitsPlan:
    """Find staged files of published versions that the catalog does not serve: the dry run, which deletes nothing.

    Args:
        safety_age_ms: younger files are kept; milliseconds.

    Raises:
        InvalidArgumentError: a negative age.
        UnsupportedFeatureError: the table needs a writer feature that this client does not have.
    """
    if safety_age_ms < 0:
        raise InvalidArgumentError(
            f"safety_age_ms is {safety_age_ms}; give the milliseconds to keep files, at least 0."
        )
    snapshot = table.snapshot()
    check_writable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
    # The catalog is asked after the listing: what it serves by then is kept, and a file staged later was not listed.
    staged = table.store.list_from(log_files.staged_commits_directory(table.location))
    ratified = table.ratified()
    names = orphaned_staged_commits(
        [(status.name, status.modification_time) for status in staged],
        ratified_names=frozenset(commit.file_name for commit in ratified.commits),
        published_version=ratified.published_version,
        now_ms=table.services.now_ms(),
        safety_age_ms=safety_age_ms,
    )
    names = _with_published_copy(table, names)
    sizes = {status.name: status.size for status in staged}
    return CleanStagedCommitsPlan(names=names, num_bytes=sum(sizes[name] for name in names))


def clean_staged_commits(table: Table, *, safety_age_ms: int = SAFETY_AGE_MS) -> CleanStagedCommitsResult:
    """Delete staged files of published versions that the catalog does not serve. Arguments and errors as in the plan,
    and:

    Raises:
        MaintenanceNotPermittedError: the catalog's policy does not allow METADATA_CLEANUP; nothing was deleted.
        MaintenanceInProgressError: another maintenance run holds the table.
        CatalogBehindStorageError: storage holds commits that the catalog does not know; nothing was deleted.
    """
    require_permission(table, MaintenanceKind.METADATA_CLEANUP)
    table.refuse_if_behind()
    with maintenance_lease(table, MaintenanceKind.METADATA_CLEANUP) as claim:
        plan = plan_clean_staged_commits(table, safety_age_ms=safety_age_ms)
        directory = log_files.staged_commits_directory(table.location)
        for number, name in enumerate(plan.names):
            if number % _CHECK_EVERY == 0:
                claim.check()
            table.store.delete(f"{directory}/{name}")
    return CleanStagedCommitsResult(num_files=plan.num_files, num_bytes=plan.num_bytes)


def _with_published_copy(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    """Only the files whose version is really in ``_delta_log``, or was removed from it by log cleanup.

    A staged file may be the last intact copy of its commit. So the published file of each ratified one is read and compared with
    what the catalog ratified; files of proposals that lost need no copy.
    """
    if not names:
        return ()
    listed = table.store.list_from(log_files.log_directory(table.location))
    published = {file.version for status in listed if isinstance(file := parse_log_file(status.name), CommitFile)}
    if not published:
        return ()
    oldest = min(published)
    # Names of staged commits begin with their version (CM-3); others are not among them.
    versions = {name: int(name.partition(".")[0]) for name in names}
    ends = {"start": min(versions.values()), "end": max(versions.values())}
    accepted = {commit.file_name: commit for commit in table.catalog.accepted_commits(table.table_id, **ends)}
    compared = [accepted[name] for name, version in versions.items() if version in published and name in accepted]
    with ThreadPoolExecutor(max_workers=table.reader.threads) as pool:
        intact = pool.map(lambda commit: _is_published(table, commit), compared)
        altered = {commit.file_name for commit, is_intact in zip(compared, intact, strict=True) if not is_intact}
    return tuple(
        name for name, version in versions.items() if version < oldest or (version in published and name not in altered)
    )


def _is_published(table: Table, commit: RatifiedCommit) -> bool:
    """Whether the published file has the bytes that were ratified."""
    try:
        data = table.store.read(published_source(table.location, commit.version).location)
    except ObjectNotFoundError:
        return False
    return is_ratified(commit, data)
