"""A folder of many Parquet files is adopted in memory that grows only by a few kilobytes for each file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BASE_MB, KB_PER_FILE, LINKS_PER_FILE = 100, 5, 30_000

PROGRAM = """
import json, resource, sys
from cm_delta_dagster import connect

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

root, reports = sys.argv[1], []
with connect(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/warehouse") as lake:
    lake.tables()
    before = peak_mb()
    days, report = {"day": "date"}, lambda *done: reports.append(done)
    table = lake.onboarding.adopt(f"{root}/raw", "main.test.t", partition_by=days, progress=report)
    print(json.dumps({"grown_mb": peak_mb() - before, "files": table.snapshot().num_files, "reports": reports}))
"""


def folder(root: Path, num_files: int) -> None:
    """Files with six columns in partitions; most are hard links, of which a file can have a limited number."""
    columns = {f"c{number}": pa.array([number, number + 1], pa.int64()) for number in range(6)}
    for number in range(num_files):
        directory = root / "raw" / f"day=2024-{number % 12 + 1:02d}-{number // 12 % 28 + 1:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        place = directory / f"part-{number:06d}.parquet"
        if number % LINKS_PER_FILE == 0:
            pq.write_table(pa.table(columns), place)
            source = place
        else:
            os.link(source, place)


@pytest.mark.slow
@pytest.mark.parametrize("num_files", [5_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
def test_many_files_are_adopted_in_bounded_memory(num_files: int, tmp_path: Path) -> None:
    folder(tmp_path, num_files)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["files"] == num_files
    assert found["reports"][-1] == [num_files, num_files] and len(found["reports"]) == num_files // 1000
    assert found["grown_mb"] < BASE_MB + num_files * KB_PER_FILE / 1024
