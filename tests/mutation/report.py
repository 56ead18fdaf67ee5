"""What became of a sample of mutants: a score, the survivors, and the coverage of each package."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from tests.mutation.covered import ModuleCoverage
from tests.mutation.mutants import Mutant
from tests.mutation.runner import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of one mutant.

    Attributes:
        change: the changed lines, before and after.
        by: the test that failed, if one did.
        tests: number of tests that were selected.
    """

    mutant: Mutant
    change: str
    outcome: Outcome
    by: str | None
    tests: int

    def as_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> "Record":
        """Read a line of :meth:`as_line`."""
        values = json.loads(line)
        return cls(**values | {"mutant": Mutant(**values["mutant"]), "outcome": Outcome(values["outcome"])})


def records_of(path: Path) -> list[Record]:
    """The records of a file; none if there is no file."""
    return [Record.from_line(line) for line in path.read_text().splitlines()] if path.exists() else []


def score_of(records: Sequence[Record]) -> float:
    """The part of the mutants that the tests noticed."""
    return sum(record.outcome.killed for record in records) / len(records) if records else 1.0


def report(records: Sequence[Record], modules: Mapping[str, ModuleCoverage]) -> str:
    """The score, the survivors in order, and a table of packages."""
    outcomes = Counter(record.outcome for record in records)
    counts = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome if outcomes[outcome])
    survivors = sorted((record for record in records if not record.outcome.killed), key=lambda one: one.mutant)
    lines = [f"{len(records)} mutants: {counts}", f"Score: {score_of(records):.1%}", "", "Survivors:"]
    for record in survivors:
        lines += [f"{record.mutant} ({record.outcome}, {record.tests} tests)", f"    {record.change}"]
    return "\n".join([*lines, "", *_table(records, modules)])


def _table(records: Iterable[Record], modules: Mapping[str, ModuleCoverage]) -> list[str]:
    of_packages: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        of_packages[_package(record.mutant.file)].append(record)
    lines = [f"{'package':40} {'statements':>10} {'covered':>8} {'mutants':>8} {'score':>7}"]
    for package in sorted({_package(file) for file in modules}):
        inside = [module for file, module in modules.items() if _package(file) == package]
        statements, covered = sum(one.statements for one in inside), sum(one.covered for one in inside)
        part = f"{covered / statements:.1%}" if statements else "-"
        here = of_packages.get(package, [])
        score = f"{score_of(here):.1%}" if here else "-"
        lines.append(f"{package:40} {statements:10} {part:>8} {len(here):8} {score:>7}")
    return lines


def _package(file: str) -> str:
    """Dotted name of the directory, at most three levels deep."""
    return ".".join(PurePosixPath(file).parent.parts[:3])
