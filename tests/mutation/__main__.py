"""``python -m tests.mutation --sample 1000 --seed 1``: how many mistakes in the code would the fast tests notice?

Makes a seeded sample of mutants (the code with one small mistake), runs against each the tests that run the changed statement,
and prints the score, the mutants that no test noticed, and the coverage of each package. A run on one core takes about an hour.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.covered import TestCoverage
from tests.mutation.mutants import Mutant, difference, mutants_of, sample_of
from tests.mutation.project import Project, this_project
from tests.mutation.report import Record, records_of, report, score_of
from tests.mutation.runner import Outcome, Result, Runner
from tests.mutation.selection import Selection


def main(arguments: Sequence[str]) -> int:
    """Run the command; 1 if the score is below ``--goal``."""
    options = _options(arguments)
    project = _project(options)
    os.chdir(project.root)
    mutants = _mutants(project, options)
    runner = Runner(project, more_seconds=options.more_seconds)
    try:
        runner.preload()
        with tempfile.TemporaryDirectory() as directory:
            path = options.coverage or Path(directory, "coverage.json")
            coverage = TestCoverage.read(path) if path.exists() else runner.measure(path)
        if coverage.failed:
            print(f"Tests that are not used, because they fail or are skipped without a mutant: {len(coverage.failed)}")
        records = _run(project, runner, coverage, mutants, options)
    finally:
        runner.close()
    print(report(records, coverage.modules))
    return 1 if score_of(records) < options.goal else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--sample", type=int, default=1000, metavar="N", help="number of mutants (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--seconds", type=float, default=10, help="of tests for each mutant (default: 10)")
    parser.add_argument(
        "--more-seconds", type=float, default=10, help="that a test may take with a mutant (default: 10)"
    )
    parser.add_argument("--goal", type=float, default=0, help="fail if the score is below, e.g. 0.85")
    parser.add_argument(
        "--coverage", type=Path, metavar="FILE", help="keep what the tests run here, or use what is there"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="append results here; a mutant with a result is not run"
    )
    parser.add_argument("--survivors-of", type=Path, metavar="FILE", help="run the survivors of these results again")
    parser.add_argument("--root", type=Path, help="run on another project than this one, with the three options below")
    parser.add_argument("--package", help="name of the package")
    parser.add_argument("--tests", help="directory of the tests")
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="modules or packages to change (default: see project.py)"
    )
    options = parser.parse_args(arguments)
    for name in ("coverage", "results", "survivors_of", "root"):
        if (path := getattr(options, name)) is not None:
            setattr(options, name, path.absolute())
    return options


def _project(options: argparse.Namespace) -> Project:
    this = this_project()
    targets = tuple(options.targets)
    if options.root is None:
        return Project(
            root=this.root,
            package=this.package,
            test_package=this.test_package,
            targets=targets or this.targets,
            pytest_arguments=this.pytest_arguments,
        )
    return Project(
        root=options.root,
        package=options.package,
        test_package=options.tests,
        targets=targets or (options.package,),
        pytest_arguments=(options.tests,),
    )


def _mutants(project: Project, options: argparse.Namespace) -> list[Mutant]:
    if options.survivors_of is not None:
        return [record.mutant for record in records_of(options.survivors_of) if not record.outcome.killed]
    mutants = [mutant for file in project.target_files() for mutant in mutants_of(project.root, file)]
    sample = sample_of(project.root, mutants, options.sample, options.seed)
    print(f"{len(sample)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    return sample


def _run(
    project: Project, runner: Runner, coverage: TestCoverage, mutants: Sequence[Mutant], options: argparse.Namespace
) -> list[Record]:
    selection = Selection(project, coverage, seconds=options.seconds)
    known = {record.mutant: record for record in records_of(options.results)} if options.results else {}
    records = []
    for number, mutant in enumerate(mutants):
        if mutant not in known:
            tests, change = selection.tests_of(mutant), difference(project.root, mutant)
            if number == 0 and tests and runner.run(None, tests, coverage.seconds).outcome is not Outcome.PASSED:
                raise RuntimeError(f"The tests fail without a mutant: {runner.output()[-4000:]}")
            result = runner.run(mutant, tests, coverage.seconds) if tests else Result(outcome=Outcome.NOT_COVERED)
            known[mutant] = Record(
                mutant=mutant,
                change=change,
                outcome=result.outcome,
                by=result.by,
                tests=len(tests),
            )
            if options.results:
                with options.results.open("a") as file:
                    file.write(known[mutant].as_line())
        records.append(known[mutant])
        if not known[mutant].outcome.killed or number % 50 == 49:
            print(f"{number + 1}/{len(mutants)}: {mutant} {known[mutant].outcome}", flush=True)
    return records


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
