"""Write a log compaction file (protocol heading "Log Compaction Files").

A compaction makes reading faster; the commits that it covers stay. ``protocol.log.log_compaction`` builds its content.
"""

from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    UnpublishedVersionError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.maintenance.authorization import require_permission
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_compaction import compact


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactLogResult:
    """The compaction of versions ``start`` to ``end``, both included. ``num_bytes`` is its size."""

    start: int
    end: int
    file_name: str
    num_bytes: int


def compact_log(table: Table, *, start: int, end: int) -> CompactLogResult:
    """Write the compaction of the published commits ``start`` to ``end``, both included.

    If the file exists, it stays and is returned.

    Raises:
        MaintenanceNotPermittedError: the policy denies LOG_COMPACTION; it is allowed unless a rule denies it.
        InvalidArgumentError: not ``0 <= start < end``.
        UnpublishedVersionError: ``end`` is not published.
        VersionNotFoundError: log cleanup has deleted a commit of the range.
    """
    require_permission(table, MaintenanceKind.LOG_COMPACTION)
    if not 0 <= start < end:
        raise InvalidArgumentError(
            f"A compaction covers at least two versions, from 0 on; the range given is {start} to {end}."
        )
    ratified = table.ratified()
    if end > ratified.published_version:
        raise UnpublishedVersionError(
            f"Version {end} of {table.identifier} is not published (the newest published one is "
            f"{ratified.published_version}), and only published commits may be compacted. Publish first, or compact "
            "fewer versions."
        )
    snapshot = table.snapshot()
    table.refuse_if_known_behind()
    check_writable(snapshot.protocol, snapshot.identifier)
    # Published files only: a compaction must not depend on commits that only the catalog has.
    sources = commit_sources(table.location, start=start, end=end, ratified=())
    try:
        commits = table.reader.decode_all(sources)
    except ObjectNotFoundError as error:
        raise VersionNotFoundError(
            f"Versions {start} to {end} of {table.identifier} cannot be compacted: {error} Log cleanup has deleted it; "
            "compact a range of commits that still exist."
        ) from error
    data = compact(commits, location=table.location)
    name = log_files.compaction_file_name(start, end)
    location = f"{log_files.log_directory(table.location)}/{name}"
    try:
        table.store.write_if_absent(location, data, within=log_files.log_directory(table.location))
    except ObjectAlreadyExistsError:
        return CompactLogResult(start=start, end=end, file_name=name, num_bytes=table.store.stat(location).size)
    return CompactLogResult(start=start, end=end, file_name=name, num_bytes=len(data))
