"""Interface of a table that can be read, catalog-managed or not.

Implemented by ``client.table.Table`` (a catalog knows its latest version) and ``client.snapshots.path_table.PathTable``
(its directory does). Operations that only read take a :class:`ReadableTable`.
"""

import typing
from collections.abc import Iterator
from datetime import tzinfo

from cm_delta_dagster.client.snapshots.commit_log import CommitLog, LoadedCommit
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.storage.store import Store

__all__ = ["LoadedCommit", "ReadableTable"]


class ReadableTable(typing.Protocol):
    """Snapshots and commits of one table."""

    @property
    def identifier(self) -> object:
        """Name in the catalog, or location; messages contain ``str()`` of it."""
        ...

    @property
    def table_id(self) -> str: ...

    @property
    def location(self) -> str:
        """Absolute URI of the table root, no trailing slash."""
        ...

    @property
    def store(self) -> Store: ...

    @property
    def time_zone(self) -> tzinfo | None:
        """Time zone of times that state none, in partition values and conditions; None for the default of the reader."""
        ...

    def in_time_zone(self, zone: tzinfo | None) -> typing.Self:
        """The same table with another :attr:`time_zone`."""
        ...

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The table at its latest version, at ``version``, or as of ``timestamp_ms`` (epoch milliseconds).

        Raises VersionNotFoundError, CorruptLogError, UnsupportedFeatureError.
        """
        ...

    def commits(self, start: int, end: int) -> Iterator[LoadedCommit]:
        """Every version of ``start..end`` exactly once, oldest first; compactions are not used.

        Raises:
            VersionNotFoundError: a commit of the range does not exist or was removed.
            CorruptLogError: a commit in between is missing or unreadable.
        """
        ...

    def latest_version(self) -> int:
        """The latest version, without building its state."""
        ...

    def commit_actions(self, start: int, end: int) -> Iterator[CommitActions]:
        """:meth:`commits` without commit times; needs no snapshot. Raises the same errors."""
        ...

    def version_at_or_before(self, timestamp_ms: int) -> int:
        """The newest version whose commit time is <= ``timestamp_ms``.

        Raises VersionNotFoundError for a time before the oldest commit or after the latest one.
        """
        ...

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """The oldest version whose commit time is >= ``timestamp_ms``. Raises VersionNotFoundError after the latest."""
        ...

    def commit_log(self) -> CommitLog:
        """The commits that exist now, up to the latest version."""
        ...
