"""A directory for temporary files that is full, or missing."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cm_delta_dagster.arrow.spill.spilled_runs import SpilledRuns
from cm_delta_dagster.arrow.spill.spooled_rows import spooled
from cm_delta_dagster.errors import EngineError

pytestmark = pytest.mark.fast

_ROWS = pa.table({"i": np.random.default_rng(1).integers(0, 2**62, 100_000)})
_LIMITED = """
import resource
from tests.arrow.spill import test_temporary_space
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
test_temporary_space.write_both()
"""


def write_both() -> None:
    for write in (_spool, _spill):
        with pytest.raises(EngineError, match=r"could not be written to a temporary file in .*TMPDIR"):
            write()


def _spool() -> None:
    spooled([_ROWS, _ROWS])


def _spill() -> None:
    with SpilledRuns(_ROWS.schema) as runs:
        for batch in _ROWS.to_batches(max_chunksize=100):
            runs.add(0, batch, np.arange(batch.num_rows))
        runs.bucket(0)


def test_a_file_that_cannot_grow_is_an_error_that_names_the_directory() -> None:
    """A limit of the system for the size of files stands for a full disk."""
    finished = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_a_directory_that_is_missing_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    write_both()
