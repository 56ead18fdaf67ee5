"""Explorations are predictable, and what they covered is shown at the end of the run."""

from collections.abc import Callable, Iterator

import pytest

from tests.model.determinism import deterministic

_PROPERTY = "model explorer"


@pytest.fixture(autouse=True)
def predictable() -> Iterator[None]:
    with deterministic():
        yield


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Shows a line at the end of the run, whichever process ran the test."""

    def report(line: str) -> None:
        print(line)
        record_property(_PROPERTY, line)

    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    calls = [report for report in reports if isinstance(report, pytest.TestReport) and report.when == "call"]
    lines = [str(line) for report in calls for name, line in report.user_properties if name == _PROPERTY]
    if lines:
        terminalreporter.section("what the model explorer covered")
        for line in lines:
            terminalreporter.write_line(line)
