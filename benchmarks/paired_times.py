"""The times of queries that run two ways in turn: through the catalog, and over the bare files."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)
Run = Callable[[], Any]


@dataclass(slots=True)
class Seconds:
    """Wall time and CPU time of each counted run of a query."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(slots=True)
class QueryTimes:
    """The times of one query through the catalog and over the bare files."""

    catalog: Seconds = field(default_factory=Seconds)
    bare: Seconds = field(default_factory=Seconds)

    @property
    def ratio(self) -> float:
        """By the median wall time."""
        return statistics.median(self.catalog.wall) / statistics.median(self.bare.wall)

    @property
    def cpu_ratio(self) -> float:
        """By the minimum CPU time."""
        return min(self.catalog.cpu) / min(self.bare.cpu)


def measure_in_turn(
    runs: Mapping[Name, tuple[Run, Run]], *, rounds: int, equal: Callable[[Any, Any], bool]
) -> Mapping[Name, QueryTimes]:
    """The times of the queries through the catalog, the first of each pair, and over the bare files.

    Each round runs every query both ways, first the one and then the other in turns. A first round warms up and is not counted.

    Raises:
        AssertionError: two answers of the first round differ.
    """
    times = {name: QueryTimes() for name in runs}
    for turn in range(rounds + 1):
        for name, (through, direct) in runs.items():
            ways = [(times[name].catalog, through), (times[name].bare, direct)]
            answers = []
            for seconds, run in ways if turn % 2 else reversed(ways):
                wall, cpu = time.perf_counter(), time.process_time()
                answers.append(run())
                if turn:
                    seconds.wall.append(time.perf_counter() - wall)
                    seconds.cpu.append(time.process_time() - cpu)
            assert turn or equal(*answers), f"the answers of query {name} differ"
    return times


def print_times(times: Mapping[Name, QueryTimes], *, bound: float) -> None:
    """Print the times and ratios of each query, and the queries whose ratio by wall time is above ``bound``."""
    print("query | catalog: median wall / min CPU ms | bare | ratio of median wall / of min CPU")
    for name, of_query in times.items():
        shown = [
            f"{statistics.median(seconds.wall) * 1000:.1f} / {min(seconds.cpu) * 1000:.1f}"
            for seconds in (of_query.catalog, of_query.bare)
        ]
        print(f"{name} | {' | '.join(shown)} | {of_query.ratio:.2f} / {of_query.cpu_ratio:.2f}")
    above = [name for name, of_query in times.items() if of_query.ratio > bound]
    wall, cpu = (
        sum(sum(getattr(item.catalog, clock)) for item in times.values())
        / sum(sum(getattr(item.bare, clock)) for item in times.values())
        for clock in ("wall", "cpu")
    )
    print(
        f"all queries: {wall:.2f} / {cpu:.2f}; bound {bound} by wall time; above it: {', '.join(map(str, above)) or 'none'}"
    )
