"""What the demo prints: its first line comes at once, long lines are folded, tables are aligned."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from definitions.console import clock_at, folded, step, text_table


def test_long_text_is_folded_at_words_and_indented() -> None:
    assert folded("    one two three", width=13) == ["    one two", "      three"]


def test_numbers_of_a_table_are_aligned_to_the_right() -> None:
    assert text_table([("a", 1000), ("bcd", 7)], ("name", "rows")).splitlines() == [
        "name   rows",
        "----  -----",
        "a     1,000",
        "bcd       7",
    ]


def test_the_first_line_is_printed_before_dagster_and_spark_are_imported() -> None:
    script = "import sys, definitions.__main__; print({'dagster', 'pyspark'} & sys.modules.keys())"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "set()\n", result.stderr


def test_a_step_says_how_long_it_took_in_the_words_of_its_caller(capsys: pytest.CaptureFixture[str]) -> None:
    with step("The report", spent="waited"):
        pass
    started, ended = capsys.readouterr().out.splitlines()
    assert started.endswith(" s] The report ...") and "    waited 0." in ended


def test_times_of_runs_are_on_the_clock_of_the_demo() -> None:
    now = time.time()
    before, after = clock_at(now - 5), clock_at(now)
    assert after >= 0 and abs(after - before - 5) < 1
