"""Timestamps of commits (protocol heading "In-Commit Timestamps"). All times are epoch milliseconds.

The times of commits without an in-commit timestamp are in :mod:`~cm_delta_dagster.protocol.log.commit_times`.
"""

from dataclasses import dataclass, replace

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.table_features import IN_COMMIT_TIMESTAMP, writer_features
from cm_delta_dagster.protocol.features.table_properties import (
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
    TableProperties,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InCommitTimestampPeriod:
    """The versions whose commits contain an in-commit timestamp: ``first_version`` and all later ones.

    ``first_timestamp`` is the time of the enabling commit; None if every commit of the table has a timestamp.
    """

    first_version: int
    first_timestamp: int | None

    def covers(self, version: int) -> bool:
        """Whether the commit ``version`` contains an in-commit timestamp."""
        return version >= self.first_version


def in_commit_timestamp_period(protocol: Protocol, metadata: Metadata) -> InCommitTimestampPeriod | None:
    """The commits that have in-commit timestamps, given the latest state of the table; None if they are not enabled.

    Raises:
        InvalidArgumentError: the enablement version or timestamp is not a number.
    """
    properties = TableProperties(metadata.configuration)
    # The property has no effect unless the writer features list inCommitTimestamp.
    if protocol.min_writer_version < 7 or IN_COMMIT_TIMESTAMP not in writer_features(protocol):
        return None
    if not properties.in_commit_timestamps_enabled:
        return None
    version = properties.in_commit_timestamp_enablement_version
    return InCommitTimestampPeriod(
        first_version=0 if version is None else version,
        first_timestamp=None if version is None else properties.in_commit_timestamp_enablement_timestamp,
    )


def next_in_commit_timestamp(now_ms: int, previous_ms: int | None) -> int:
    """``inCommitTimestamp`` of the next commit: ``now_ms``, or ``previous_ms`` + 1 if the clock is behind.

    Args:
        now_ms: current time.
        previous_ms: timestamp of the previous commit; None for the first commit of a table.
    """
    return now_ms if previous_ms is None else max(now_ms, previous_ms + 1)


def with_enablement(metadata: Metadata, *, before: Metadata, version: int, timestamp_ms: int) -> Metadata:
    """``metadata`` with the properties that record since when in-commit timestamps are enabled.

    A commit that enables them for a table with earlier commits adds the properties, a commit that disables them removes the
    properties, and other commits keep ``metadata``. The result depends on the version and its timestamp, so it is computed again
    after each rebase.

    Args:
        before: metadata of the previous version.
        version: version of the commit.
        timestamp_ms: in-commit timestamp of the commit. It must be later than the modification time of the previous commit
            file; :func:`next_in_commit_timestamp` ensures that.
    """
    was, will_be = (TableProperties(item.configuration).in_commit_timestamps_enabled for item in (before, metadata))
    if was == will_be or version == 0:
        return metadata
    enablement = {ENABLEMENT_VERSION_KEY: str(version), ENABLEMENT_TIMESTAMP_KEY: str(timestamp_ms)}
    others = {key: value for key, value in metadata.configuration.items() if key not in enablement}
    return replace(metadata, configuration={**others, **(enablement if will_be else {})})
