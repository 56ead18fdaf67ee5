"""Explorations are predictable, and what they covered is shown at the end of the run."""

from collections.abc import Callable, Iterator

import pytest

from tests.model.determinism import deterministic

_LINES = pytest.StashKey[list[str]]()


@pytest.fixture(autouse=True)
def predictable() -> Iterator[None]:
    with deterministic():
        yield


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows a line at the end of the run."""
    lines = request.config.stash.setdefault(_LINES, [])

    def tell(line: str) -> None:
        print(line)
        lines.append(line)

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_LINES, [])
    if lines:
        terminalreporter.section("what the model explorer covered")
        for line in lines:
            terminalreporter.write_line(line)
