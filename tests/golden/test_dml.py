"""Recorded sequences of writes end in the states in which delta-spark 4.4.0 ended.

``check_dml.py`` replays ``sequences.json.gz`` through ``dml_adapter.py`` and compares. A test fails at each difference that is not
listed here with its reason.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_SEQUENCES: list[dict[str, Any]] = json.loads(gzip.decompress((_HERE / "sequences.json.gz").read_bytes()))["sequences"]

_SAMPLE = "verbs-plain-delete-update"

_DIFFERENT: Mapping[str, str] = {
    "constraints-char-partition": "DELETE pads the literal that it compares with a CHAR column, as queries of Spark do",
}


def replayed(tmp_path: Path, *choice: str, adapter: str = "dml_adapter") -> list[str]:
    """Replay the sequences of ``choice``, options of the checker; return the differences as lines of text."""
    command = [sys.executable, str(_HERE / "check_dml.py"), "--adapter", f"tests.golden.{adapter}:open"]
    command += ["--path", str(_ROOT), "--json", str(tmp_path / "out.json"), *choice]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, timeout=3400)
    assert "comparisons passed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith(("fail", "crash", "dead", "timeout"))]


def unexpected(lines: list[str]) -> list[str]:
    return [line for line in lines if line.split()[1] not in _DIFFERENT]


def test_one_sequence_ends_as_recorded(tmp_path: Path) -> None:
    assert replayed(tmp_path, "--only", _SAMPLE) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_sequences_end_as_recorded(tmp_path: Path, step: int) -> None:
    """Every eighth sequence, or each."""
    chosen = ",".join(sequence["id"] for sequence in _SEQUENCES[::step])
    assert unexpected(replayed(tmp_path, "--timeout", "900", "--only", chosen)) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_sequences_with_rows_of_arrow_end_as_recorded(tmp_path: Path) -> None:
    assert unexpected(replayed(tmp_path, adapter="dml_arrow_adapter")) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_statements_of_sql_end_as_recorded(tmp_path: Path) -> None:
    assert unexpected(replayed(tmp_path, "--group", "defaults,identity", adapter="dml_sql_adapter")) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_all_sequences_as_statements_of_sql_end_as_recorded(tmp_path: Path) -> None:
    assert unexpected(replayed(tmp_path, adapter="dml_sql_adapter")) == []


def test_each_listed_difference_is_a_sequence() -> None:
    assert _DIFFERENT.keys() <= {sequence["id"] for sequence in _SEQUENCES}
