"""Commit times (protocol "In-Commit Timestamps"). Room: protocol; all times are epoch milliseconds."""

from collections.abc import Sequence


def next_in_commit_timestamp(now_ms: int, previous_ms: int | None) -> int:
    """``inCommitTimestamp`` of the commit that follows one of ``previous_ms``: strictly later,
    whatever the clock says (ICT-4); ``now_ms`` for the first commit of a table, which follows None.
    """
    return now_ms if previous_ms is None else max(now_ms, previous_ms + 1)


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
