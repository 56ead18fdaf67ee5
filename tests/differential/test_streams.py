"""The same stream over the same table, by delta-spark and by this package: equal batches and offsets."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.reading.streams.arrow_stream import StreamBatches
from tests.differential.peers import DeltaSpark
from tests.support.changes_of import path_table
from tests.support.streams import stream_of


def write(path: Path, *ids: int) -> None:
    """One commit with a file for each of two partitions."""
    rows = pa.table({"id": pa.array(ids, pa.int64()), "p": [number % 2 for number in ids]})
    deltalake.write_deltalake(str(path), rows, mode="append", partition_by=["p"])


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: 0 to 2 append, 3 compacts, 4 appends, 5 updates, 6 deletes whole files, 7 appends."""
    path = tmp_path_factory.mktemp("streams") / "t"
    for first in (0, 10, 20):
        write(path, first, first + 1, first + 2, first + 3)
    deltalake.DeltaTable(str(path)).optimize.compact()
    write(path, 30, 31)
    deltalake.DeltaTable(str(path)).update(updates={"id": "id + 100"}, predicate="id = 30")
    deltalake.DeltaTable(str(path)).delete("p = 1")
    write(path, 40, 41, 42)
    return path


def ours(stream: StreamBatches) -> tuple[list[list[int]], list[tuple[int, int, bool]], bool]:
    """Ids of the batches, where each ended, and whether an error ended the stream."""
    batches, ends, failed = [], [], False
    try:
        for batch in stream:
            batches.append(sorted(batch.to_arrow()["id"].to_pylist()))
            ends.append((*batch.offset.position, batch.offset.is_initial))
    except CmDeltaError:
        failed = True
    return batches, ends, failed


@pytest.mark.requirements("STREAM-1", "STREAM-2", "STREAM-3")
@pytest.mark.parametrize(
    ("options", "mine"),
    [
        ({"maxFilesPerTrigger": "2"}, {"max_files": 2}),
        ({"maxBytesPerTrigger": "1000"}, {"max_bytes": 1000}),
        (
            {"startingVersion": "0", "skipChangeCommits": "true", "maxFilesPerTrigger": "3"},
            {"starting_version": 0, "changes": "skipChangeCommits", "max_files": 3},
        ),
        (
            {"startingVersion": "1", "ignoreChanges": "true"},
            {"starting_version": 1, "changes": "ignoreChanges"},
        ),
        (
            {"startingVersion": "6", "ignoreDeletes": "true"},
            {"starting_version": 6, "changes": "ignoreDeletes"},
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_batches_hold_the_rows_that_delta_spark_puts_into_them(
    delta_spark: DeltaSpark, changed: Path, tmp_path: Path, options: dict[str, str], mine: dict[str, Any]
) -> None:
    """And a stream begun by delta-spark goes on here from any of its offsets."""
    theirs = delta_spark.stream(changed, options, tmp_path / "c")
    batches, _, failed = ours(stream_of(path_table(changed), **mine))
    assert (theirs["stopped_by"], failed) == (None, False)
    assert [batch for batch in batches if batch] == [batch for batch in theirs["batches"] if batch]
    for number, offset in enumerate(theirs["offsets"]):
        rest, _, failed = ours(stream_of(path_table(changed), offset=offset, **mine))
        expected = [row for batch in theirs["batches"][number + 1 :] for row in batch]
        assert sorted(row for batch in rest for row in batch) == sorted(expected)
        assert not failed


@pytest.mark.requirements("STREAM-3")
def test_both_stop_at_the_same_commit(delta_spark: DeltaSpark, changed: Path, tmp_path: Path) -> None:
    """Version 5 updates; here the rows before it are emitted first."""
    theirs = delta_spark.stream(changed, {"startingVersion": "4", "ignoreDeletes": "true"}, tmp_path / "c")
    assert "version 5" in theirs["stopped_by"]
    batches, ends, failed = ours(stream_of(path_table(changed), starting_version=4, changes="ignoreDeletes"))
    assert (batches, ends, failed) == ([[30, 31]], [(5, -1, False)], True)
