"""The bars of the project: how a time of this package may compare with that of another engine or task (``bars.tsv``).

Each line of the file names a task, a statistic, the engine to compare with and its task (``seconds``, ``megabytes`` or ``files``
for an absolute figure), the bound, and the size from which on the bar is judged.
"""

import csv
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

REFERENCE = "ours"
Results = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""The runs of each engine in each task: ``wall`` and ``cpu`` in seconds, and further figures."""

_FILE = Path(__file__).with_suffix(".tsv")
STATISTICS: Mapping[str, tuple[str, Callable[[list[float]], float]]] = {
    "wall min": ("wall", min),
    "wall median": ("wall", statistics.median),
    "cpu min": ("cpu", min),
    "heap growth": ("heap_growth", max),
    "python growth": ("python_growth", max),
    "files": ("files", max),
}
UNITS = ("seconds", "megabytes", "files")
"""What an absolute figure is compared with in place of an engine."""


class Verdict(StrEnum):
    """What a run says of a bar."""

    MET = "met"
    MISSED = "missed"
    NOT_RUN = "not run"
    TOO_SMALL = "run too small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One line of the file. ``engine`` is one of ``UNITS`` for an absolute figure."""

    task: str
    statistic: str
    engine: str
    of_task: str
    bound: float
    size: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A bar and what a run measured. ``measured`` is a ratio or in the unit of the bar; None if a figure is missing."""

    bar: Bar
    measured: float | None
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.bar), "measured": self.measured, "verdict": self.verdict.value}


def bars() -> tuple[Bar, ...]:
    """All bars, in the order of the file."""
    with _FILE.open() as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        return tuple(
            Bar(task=row["task"], statistic=row["statistic"], engine=row["engine"], of_task=row["of task"],
                bound=float(row["at most"]), size=row["size"], what=row["what"])
            for row in rows
        )  # fmt: skip


def figure(results: Results, task: str, engine: str, statistic: str) -> float | None:
    """The statistic of an engine in a task; None if it did not run."""
    name, pick = STATISTICS[statistic]
    runs = results.get(task, {}).get(engine, ())
    return pick([float(run[name]) for run in runs]) if runs else None


def judge(results: Results, sizes: Mapping[str, int]) -> tuple[Judgement, ...]:
    """What a run says of each bar. ``sizes`` are the sizes of its tables by the name of the option."""
    return tuple(_judged(bar, results, sizes) for bar in bars())


def _judged(bar: Bar, results: Results, sizes: Mapping[str, int]) -> Judgement:
    mine = figure(results, bar.task, REFERENCE, bar.statistic)
    base = 1.0 if bar.engine in UNITS else figure(results, bar.of_task, bar.engine, bar.statistic)
    if mine is None or not base:
        return Judgement(bar=bar, measured=None, verdict=Verdict.NOT_RUN)
    option, _, least = bar.size.partition("=")
    measured = mine / base
    verdict = Verdict.MET if measured <= bar.bound else Verdict.MISSED
    return Judgement(
        bar=bar, measured=measured, verdict=Verdict.TOO_SMALL if option and sizes[option] < int(least) else verdict
    )
