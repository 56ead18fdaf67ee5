"""Commit times (protocol "In-Commit Timestamps"). Room: protocol; all times are epoch milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.table_features import IN_COMMIT_TIMESTAMP, writer_features
from cm_delta_dagster.protocol.features.table_properties import TableProperties

_ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
_ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class InCommitTimestampPeriod:
    """The versions whose commits carry their own time: ``first_version`` and all later ones (ICT-10).

    ``first_timestamp`` is the time of the enabling commit; None where every commit of the table has one (ICT-8).
    """

    first_version: int
    first_timestamp: int | None

    def covers(self, version: int) -> bool:
        return version >= self.first_version


def in_commit_timestamp_period(protocol: Protocol, metadata: Metadata) -> InCommitTimestampPeriod | None:
    """Which commits have in-commit timestamps, as the latest state of a table tells it; None if it has them not enabled.

    Raises:
        InvalidArgumentError: the properties that tell since when are no numbers.
    """
    properties = TableProperties(metadata.configuration)
    # ICT-1: the property has no effect unless the writer features list it.
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
    """``inCommitTimestamp`` of the commit that follows one of ``previous_ms``: strictly later,
    whatever the clock says (ICT-4); ``now_ms`` for the first commit of a table, which follows None.
    """
    return now_ms if previous_ms is None else max(now_ms, previous_ms + 1)


def with_enablement(metadata: Metadata, *, before: Metadata, version: int, timestamp_ms: int) -> Metadata:
    """``metadata`` as the commit ``version`` has to write it, if it turns in-commit timestamps on for a table that has
    commits without them (ICT-6), or off (ICT-13); else as it is. Depends on the version and its time, so that it is
    done again after a lost race.

    Args:
        before: metadata of the version before.
        timestamp_ms: the in-commit timestamp of the commit; with :func:`next_in_commit_timestamp` after the preceding
            file's modification time it obeys ICT-7.
    """
    was, will_be = (TableProperties(item.configuration).in_commit_timestamps_enabled for item in (before, metadata))
    if was == will_be or version == 0:
        return metadata
    dates = {_ENABLEMENT_VERSION: str(version), _ENABLEMENT_TIMESTAMP: str(timestamp_ms)}
    others = {key: value for key, value in metadata.configuration.items() if key not in dates}
    return replace(metadata, configuration={**others, **(dates if will_be else {})})


def monotonic_times(modification_times: Sequence[int]) -> tuple[int, ...]:
    """File times made strictly increasing, for tables without in-commit timestamps (TT-7)."""
    times: list[int] = []
    for time in modification_times:
        times.append(time if not times or time > times[-1] else times[-1] + 1)
    return tuple(times)


def version_at(commits: Sequence[tuple[int, int]], timestamp_ms: int) -> int | None:
    """The newest version whose time is <= ``timestamp_ms`` (TT-2), or None before the first.

    Args:
        commits: pairs of version and time, both strictly increasing.
    """
    found = None
    for version, time in commits:
        if time > timestamp_ms:
            break
        found = version
    return found
