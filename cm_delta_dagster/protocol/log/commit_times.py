"""Times of commits that have no in-commit timestamp, for time travel and history.

Protocol heading "Recommendations for Readers of Tables with In-Commit Timestamps": the time of such a commit is the modification
time of its file. File times can repeat or go back, so they are adjusted as in delta-spark. All times are epoch milliseconds.
"""

from collections.abc import Sequence


def monotonic_times(modification_times: Sequence[int]) -> tuple[int, ...]:
    """Modification times of successive commit files; each time that is not later than its predecessor becomes predecessor + 1."""
    times: list[int] = []
    for time in modification_times:
        times.append(time if not times or time > times[-1] else times[-1] + 1)
    return tuple(times)
