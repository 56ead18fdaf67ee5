"""The commits of a table, newest first. Compactions are not used, since they lack commitInfo."""

import typing
from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.client.snapshots.commit_log import CommitLog
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.snapshot import changes_data
from cm_delta_dagster.errors import ObjectNotFoundError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import CommitInfo


class HasCommitLog(typing.Protocol):
    """A table whose commits can be read."""

    def commit_log(self) -> CommitLog:
        """The commits that exist now, up to the latest version."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One commit: ``timestamp_ms`` is its in-commit timestamp if it has one, else the time of its file.

    ``commit_info`` is None where the commit has none, or where the file of a ratified commit does not exist.
    """

    version: int
    timestamp_ms: int
    commit_info: CommitInfo | None


def iterate_history(table: HasCommitLog) -> Iterator[HistoryEntry]:
    """Commits from the latest version down to the oldest one in the log, unpublished ones included.

    The latest version need not be readable.

    Raises:
        CorruptLogError: a commit was altered, or has no in-commit timestamp and must have one.
    """
    log = table.commit_log()
    for version in range(log.latest, log.first - 1, -1):
        try:
            data = log.read(version)
        except ObjectNotFoundError:
            time = log.ratified_time(version) if log.is_unpublished(version) else None
            if time is None:
                return  # Metadata cleanup removed this commit and all older ones.
            yield HistoryEntry(version=version, timestamp_ms=time, commit_info=None)
            continue
        info = commit_json.find_commit_info(data)
        yield HistoryEntry(version=version, timestamp_ms=log.time_of(version, data), commit_info=info)


def find_transaction(table: HasCommitLog, *, app_id: str, version: int, limit: int = 1000) -> int | None:
    """The table version whose commit holds ``txn`` of ``app_id`` and ``version``, among the newest ``limit`` commits."""
    log = table.commit_log()
    for table_version in range(log.latest, max(-1, log.latest - limit), -1):
        try:
            data = log.read(table_version)
        except ObjectNotFoundError:
            return None
        commit = commit_json.decode_commit(data, version=table_version)
        if any(txn.app_id == app_id and txn.version == version for txn in commit.transactions):
            return table_version
    return None


def data_version(reader: CommitReader, ratified: RatifiedCommits, version: int) -> int:
    """Newest version at or before ``version`` that changed data: the catalog knows it for the latest version only."""
    if ratified.latest_data_version <= version:
        return ratified.latest_data_version
    sources = commit_sources(reader.location, start=0, end=version, ratified=ratified.commits)
    for source in reversed(sources):
        try:
            (commit,) = reader.decode_all((source,))
        except ObjectNotFoundError:
            break  # Metadata cleanup removed the older commits.
        if changes_data(commit):
            return commit.version
    return version
