"""A table as the ratification of a held commit would leave it, for operations that read its versions and changes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo

from cm_delta_dagster.client.snapshots.commit_log import CommitLog
from cm_delta_dagster.client.snapshots.readable_table import LoadedCommit, ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWithHold:
    """Implements :class:`~cm_delta_dagster.client.snapshots.readable_table.ReadableTable`.

    Attributes:
        table: the table without the held commit.
        latest: the state with the held commit, which is its latest version.
        own: the held commit, as it would be ratified.
    """

    table: ReadableTable
    latest: Snapshot
    own: CommitActions

    @property
    def identifier(self) -> object:
        """The name of the table."""
        return self.table.identifier

    @property
    def table_id(self) -> str:
        return self.table.table_id

    @property
    def location(self) -> str:
        return self.table.location

    @property
    def store(self) -> Store:
        return self.table.store

    @property
    def time_zone(self) -> tzinfo | None:
        return self.table.time_zone

    def in_time_zone(self, zone: tzinfo | None) -> "TableWithHold":
        """The same with another time zone of times that state none."""
        return replace(self, table=self.table.in_time_zone(zone), latest=self.latest.in_time_zone(zone))

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The held state by default and as its version; else as that of the table."""
        if timestamp_ms is None and version in (None, self.latest.version):
            return self.latest
        return self.table.snapshot(version=version, timestamp_ms=timestamp_ms)

    def commits(self, start: int, end: int) -> Iterator[LoadedCommit]:
        """Those of the table, then the held commit."""
        if start < self.latest.version:
            yield from self.table.commits(start, min(end, self.latest.version - 1))
        if end >= self.latest.version:
            timestamp_ms = self.latest.timestamp_ms
            yield LoadedCommit(version=self.latest.version, actions=self.own, timestamp_ms=timestamp_ms)

    def latest_version(self) -> int:
        """The version that the held commit would be."""
        return self.latest.version

    def commit_actions(self, start: int, end: int) -> Iterator[CommitActions]:
        """As :meth:`commits`."""
        return (commit.actions for commit in self.commits(start, end))

    def version_at_or_before(self, timestamp_ms: int) -> int:
        """As that of the table; the held commit has no time yet."""
        return self.table.version_at_or_before(timestamp_ms)

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """As that of the table; the held commit has no time yet."""
        return self.table.version_at_or_after(timestamp_ms)

    def commit_log(self) -> CommitLog:
        """That of the table."""
        return self.table.commit_log()
