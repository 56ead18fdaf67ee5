"""The versions of a table that can be read, and which of them a time selects. Both come from the table's commit log."""

import copy
from abc import ABC, abstractmethod
from datetime import tzinfo
from typing import Self

from cm_delta_dagster.client.snapshots.commit_log import CommitLog


class VersionLookup(ABC):
    """Base class of the implementations of :class:`~cm_delta_dagster.client.snapshots.readable_table.ReadableTable`."""

    time_zone: tzinfo | None = None

    def in_time_zone(self, zone: tzinfo | None) -> Self:
        """See :meth:`ReadableTable.in_time_zone`."""
        if zone is self.time_zone:
            return self
        other = copy.copy(self)
        other.time_zone = zone
        return other

    @abstractmethod
    def commit_log(self) -> CommitLog:
        """See :meth:`ReadableTable.commit_log`."""

    def version_at_or_before(self, timestamp_ms: int) -> int:
        """See :meth:`ReadableTable.version_at_or_before`."""
        return self.commit_log().version_at_or_before(timestamp_ms)

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """See :meth:`ReadableTable.version_at_or_after`."""
        return self.commit_log().version_at_or_after(timestamp_ms)
