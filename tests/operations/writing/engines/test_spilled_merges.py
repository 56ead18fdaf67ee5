"""Merges whose source does not fit into memory."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.operations.writing.engines import arrow_source
from tests.operations.writing.engines.large_changes import every_source_is_large


def _uses(directory: Path) -> int:
    """How many files of a directory this process has opened or mapped, also such that have no name."""
    opened = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return sum(str(directory) in text for text in (*opened, *mapped))


@pytest.mark.fast
@pytest.mark.requirements("DML-2")
@pytest.mark.parametrize("failure", [None, ValueError, KeyboardInterrupt, "late"])
def test_the_temporary_files_go_in_every_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException] | str | None
) -> None:
    """And after a failure the table is as it was."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    uses = []
    schema = pa.schema({"id": pa.int64(), "n": pa.float64()})

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 40, 4):
            uses.append((_uses(temporary), list(temporary.iterdir())))
            ids = range(first, first + 4)
            yield pa.RecordBatch.from_pydict({"id": ids, "n": [0.0 if failure == "late" else 1.0] * 4}, schema)
            if first == 20 and isinstance(failure, type):
                raise failure("stopped")

    with (
        connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/lake", spark=lambda: None) as lake,  # type: ignore[arg-type,return-value]
        every_source_is_large(monkeypatch),
    ):
        table = lake.create_table("main.s.t", "id BIGINT, n DOUBLE")
        table.append(pa.table({"id": range(8), "n": [0.0] * 8}))
        source = pa.RecordBatchReader.from_batches(schema, batches())
        merge = table.merge(source, "target.id = source.id").when_matched_update({"n": "target.n / source.n"})
        merge = merge.when_not_matched_insert_all()
        if failure is None:
            assert merge.execute().metrics["numTargetRowsInserted"] == "32"
        else:
            with pytest.raises((InvalidDataError, KeyboardInterrupt)):
                merge.execute()
            assert table.to_arrow()["n"].to_pylist() == [0] * 8
        assert uses[-1][0] > 0 and not any(names for _, names in uses)
        gc.collect()
        assert _uses(temporary) == 0 and not list(temporary.iterdir())


@pytest.mark.exhaustive
@pytest.mark.requirements("DML-2")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_large_merge_runs_in_four_gibibytes(tmp_path: Path, vectors: str) -> None:
    """10 million rows of a stream into 100 million rows; each row of the table is compared afterwards."""
    program = [sys.executable, "-m", "tests.operations.writing.engines.large_merge"]
    arguments = [str(tmp_path / "lake"), vectors, "100000000", "10000000", str(4 * 2**30)]
    finished = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    figures = json.loads(finished.stdout)
    assert figures["rows"] == 100_000_000 + 909_090
    assert figures["source bytes"] > arrow_source._MOST_BYTES
    assert figures["peaks in MiB"]["after the merge"]["VmHWM"] < 4 * 1024
