"""From a timestamp to a version, by in-commit timestamps (protocol "In-Commit Timestamps"). Room: client.

In-commit timestamps grow strictly with the version (ICT-5), so the version is found by bisection over the first lines of a few
commits, whatever the length of the history.
"""

import typing

from cm_delta_dagster.catalog.catalog import RatifiedCommits
from cm_delta_dagster.client.log_reader import commit_sources
from cm_delta_dagster.errors import CorruptLogError, VersionNotFoundError
from cm_delta_dagster.protocol import action_json, log_files
from cm_delta_dagster.protocol.log_files import CommitFile, parse_log_file
from cm_delta_dagster.storage.store import Store


class TableLog(typing.Protocol):
    """The parts of a table that lead to its commits."""

    @property
    def identifier(self) -> object: ...
    @property
    def location(self) -> str: ...
    @property
    def store(self) -> Store: ...


def earliest_version(table: TableLog, ratified: RatifiedCommits) -> int:
    """Oldest version whose commit is still there: published, or held by the catalog."""
    for status in table.store.list_from(log_files.log_directory(table.location)):
        file = parse_log_file(status.name)
        if isinstance(file, CommitFile):
            return file.version
    return ratified.commits[0].version if ratified.commits else ratified.latest_version


def commit_timestamp(table: TableLog, ratified: RatifiedCommits, version: int) -> int:
    """In-commit timestamp of ``version``, epoch milliseconds. Raises CorruptLogError if the commit has none (ICT-12)."""
    (source,) = commit_sources(table.location, start=version, end=version, ratified=ratified.commits)
    info = action_json.decode_commit_info(table.store.read(source.location))
    if info is None or info.in_commit_timestamp is None:
        raise CorruptLogError(
            f"Version {version} of {table.identifier} has no inCommitTimestamp in its first action; the commit is corrupt."
        )
    return info.in_commit_timestamp


def version_as_of(table: TableLog, ratified: RatifiedCommits, timestamp_ms: int) -> int:
    """The newest version whose commit time is <= ``timestamp_ms`` (TT-2).

    Raises VersionNotFoundError for a time before the oldest or after the newest commit (TT-3).
    """
    low, high = earliest_version(table, ratified), ratified.latest_version
    first, last = commit_timestamp(table, ratified, low), commit_timestamp(table, ratified, high)
    if timestamp_ms < first:
        raise VersionNotFoundError(
            f"{table.identifier} has no version as of {timestamp_ms} ms: its oldest readable version {low} is of {first} ms."
        )
    if timestamp_ms > last:
        raise VersionNotFoundError(
            f"{table.identifier} has no version as of {timestamp_ms} ms: its latest version {high} is of {last} ms. "
            "Leave the timestamp out to read the latest version."
        )
    while low < high:
        middle = (low + high + 1) // 2
        if commit_timestamp(table, ratified, middle) <= timestamp_ms:
            low = middle
        else:
            high = middle - 1
    return low
