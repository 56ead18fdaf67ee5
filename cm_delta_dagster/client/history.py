"""The commits of a table, newest first (heading "History and audit"). Room: client. Compactions are never used (LC-8)."""

from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.client.log_reader import commit_sources
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ObjectNotFoundError
from cm_delta_dagster.protocol import action_json
from cm_delta_dagster.protocol.actions import CommitInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One commit: ``timestamp_ms`` is its in-commit timestamp; ``commit_info`` is None where the commit has none (HIST-3)."""

    version: int
    timestamp_ms: int | None
    commit_info: CommitInfo | None


def iterate_history(table: Table) -> Iterator[HistoryEntry]:
    """Commits from the latest version down to the oldest that is still there, ratified but unpublished ones included."""
    for version, data in _iterate_commits(table):
        info = action_json.decode_commit_info(data)
        yield HistoryEntry(
            version=version, timestamp_ms=None if info is None else info.in_commit_timestamp, commit_info=info
        )


def find_transaction(table: Table, *, app_id: str, version: int, limit: int = 1000) -> int | None:
    """The table version whose commit holds ``txn`` of ``app_id`` and ``version``, among the newest ``limit`` commits."""
    for seen, (table_version, data) in enumerate(_iterate_commits(table)):
        if seen >= limit:
            return None
        commit = action_json.decode_commit(data, version=table_version)
        if any(txn.app_id == app_id and txn.version == version for txn in commit.transactions):
            return table_version
    return None


def _iterate_commits(table: Table) -> Iterator[tuple[int, bytes]]:
    ratified = table.catalog.get_ratified_commits(table.table_id)
    for version in range(ratified.latest_version, -1, -1):
        (source,) = commit_sources(table.location, start=version, end=version, ratified=ratified.commits)
        try:
            yield version, table.store.read(source.location)
        except ObjectNotFoundError:
            return  # Older commits were removed by metadata cleanup, which leaves no holes (CLEAN-11).
