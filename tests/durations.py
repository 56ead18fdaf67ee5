"""``python -m tests.durations PART SECONDS`` compares the time that a part of the checks took with its budget.

With ``--record`` it adds the time to ``.ci/durations.csv``; the parts pass this option on. Record on a machine with two idle cores:
a test fails when the last two times of a part are more than a fifth over its budget.
"""

import csv
import datetime as dt
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / ".ci" / "durations.csv"
BUDGETS_S = {"fast": 6 * 60, "spark": 15 * 60, "engines": 25 * 60}
"""How long each part may take on two idle cores."""

TOLERANCE = 1.2
_USAGE = f"usage: python -m tests.durations {{{','.join(BUDGETS_S)}}} SECONDS [--record]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A recorded time.

    Attributes:
        date: ``YYYY-MM-DD``.
        part: one of ``BUDGETS_S``.
        commit: what was checked.
    """

    date: str
    part: str
    seconds: int
    commit: str


def recorded(path: Path = RECORDED) -> list[Duration]:
    """The recorded times, oldest first."""
    with path.open(newline="") as file:
        return [Duration(**{**row, "seconds": int(row["seconds"])}) for row in csv.DictReader(file)]


def record(duration: Duration, path: Path = RECORDED) -> None:
    """Add a time at the end of the file."""
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(astuple(duration))


def over_budget(durations: Sequence[Duration]) -> list[str]:
    """A sentence for each part whose last two times are more than a fifth over its budget."""
    found = []
    for part, budget in BUDGETS_S.items():
        last = [duration.seconds for duration in durations if duration.part == part][-2:]
        if len(last) == 2 and min(last) > budget * TOLERANCE:
            found.append(
                f".ci/{part} took {last[0]} and {last[1]} seconds, and its budget is {budget} seconds: "
                "make its slowest tests faster, or mark them as exhaustive"
            )
    return found


def main(arguments: Sequence[str], path: Path = RECORDED) -> int:
    """Carries out the command."""
    values = [argument for argument in arguments if argument != "--record"]
    if len(values) != 2 or values[0] not in BUDGETS_S or not values[1].isdecimal():
        print(_USAGE, file=sys.stderr)
        return 2
    part, seconds = values[0], int(values[1])
    print(f".ci/{part}: {seconds} seconds; its budget is {BUDGETS_S[part]} seconds on two idle cores")
    if "--record" in arguments:
        done = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        today = dt.datetime.now(dt.UTC).date().isoformat()
        record(Duration(date=today, part=part, seconds=seconds, commit=done.stdout.strip()), path)
    return 0


COLUMNS = tuple(field.name for field in fields(Duration))

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
