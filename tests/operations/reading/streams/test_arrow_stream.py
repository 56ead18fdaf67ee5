"""A table as a queue without a JVM: every row once and in order, for each consumer, whatever else happens to the table."""

import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    CorruptLogError,
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StreamSourceChangedError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.reading.streams.arrow_stream import StreamBatches
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from tests.support.changes_of import path_table
from tests.support.foreign import ForeignTable, field, mapped
from tests.support.lake import Lake, broken_storage
from tests.support.streams import stream_of


def write(path: Path, *ids: int, **more: Any) -> None:
    """One commit, with a file for each of two partitions."""
    rows = pa.table({"id": pa.array(ids, pa.int64()), "p": [str(number % 2) for number in ids]})
    deltalake.write_deltalake(str(path), rows, mode="append", partition_by=["p"], **more)


def read(stream: StreamBatches) -> list[list[int]]:
    """Ids of each batch that is there now, sorted."""
    return [sorted(batch.to_arrow()["id"].to_pylist()) for batch in stream]


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


# --- each row once ----------------------------------------------------------------------------------------------------


@pytest.mark.requirements("STREAM-1")
def test_a_stream_gives_what_is_there_and_then_what_comes(tmp_path: Path) -> None:
    """A snapshot, then the commits, and nothing twice."""
    write(tmp_path, 1, 2)
    write(tmp_path, 3, 4)
    stream = stream_of(path_table(tmp_path))
    assert read(stream) == [[1, 2, 3, 4]]
    assert read(stream) == []
    write(tmp_path, 5)
    write(tmp_path, 6, 7)
    (batch,) = stream
    assert batch.to_arrow().to_pylist() == [{"id": 5, "p": "1"}, *batch.to_arrow().slice(1).to_pylist()]
    assert (sorted(batch.to_arrow()["id"].to_pylist()), batch.versions) == ([5, 6, 7], (2, 3))
    assert stream.offset == batch.offset == StreamOffset(table_id=stream.offset.table_id, version=4)


@pytest.mark.requirements("STREAM-1", "STREAM-3")
@given(data=st.data(), commits=st.lists(st.integers(1, 3), min_size=1, max_size=5))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_restarts_and_bounds_gives_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, commits: list[int]
) -> None:
    """The offset is all that a consumer keeps, and writers go on while it reads."""
    path = tmp_path_factory.mktemp("t")
    write(path, -1, -2)
    seen: list[int] = []
    offset: str | None = None
    starting = data.draw(st.sampled_from([None, 0]), label="starting version")
    number = 0
    for count in [*commits, 0, 0]:
        if count:
            write(path, *range(number, number + count))
            number += count
        bound = data.draw(st.integers(1, 3), label="files")
        stream = stream_of(path_table(path), offset=offset, max_files=bound, starting_version=starting)
        for batch in stream:
            assert batch.files.num_rows <= bound
            seen += batch.to_arrow()["id"].to_pylist()
            offset = batch.offset.to_json()
            if data.draw(st.booleans(), label="stop"):
                break
    for batch in stream_of(path_table(path), offset=offset):
        seen += batch.to_arrow()["id"].to_pylist()
    assert sorted(seen) == sorted([-1, -2, *range(number)])


@pytest.mark.requirements("STREAM-1")
def test_consumers_do_not_know_of_each_other(tmp_path: Path) -> None:
    write(tmp_path, 1)
    table = path_table(tmp_path)
    early, slow = stream_of(table), stream_of(table, max_files=1)
    late = stream_of(table, starting_version="latest")
    assert read(early) == [[1]]
    write(tmp_path, 2)
    write(tmp_path, 3)
    assert read(early) == [[2, 3]]
    assert read(slow) == [[1], [2], [3]]
    assert read(late) == [[2, 3]]


@pytest.mark.requirements("STREAM-1")
def test_a_batch_whose_loop_was_left_comes_again(tmp_path: Path) -> None:
    """What was not finished was not read."""
    write(tmp_path, 1)
    write(tmp_path, 2)
    stream = stream_of(path_table(tmp_path), starting_version=0, max_files=1)
    before = stream.offset
    for batch in stream:
        assert batch.to_arrow()["id"].to_pylist() == [1]
        break
    assert stream.offset == before
    assert read(stream) == [[1], [2]]


@pytest.mark.requirements("STREAM-3")
def test_bounds_hold_for_files_and_softly_for_bytes(tmp_path: Path) -> None:
    """A file that is larger than the bound comes alone."""
    for number in range(4):
        write(tmp_path, number)
    table = path_table(tmp_path)
    size = table.snapshot().files["size"][0].as_py()
    assert [len(ids) for ids in read(stream_of(table, max_files=3))] == [3, 1]
    assert [len(ids) for ids in read(stream_of(table, max_bytes=1))] == [1, 1, 1, 1]
    assert [len(ids) for ids in read(stream_of(table, max_bytes=size + 1, starting_version=0))] == [2, 2]
    assert [len(ids) for ids in read(stream_of(table, max_files=None))] == [4]


@pytest.mark.requirements("STREAM-3")
def test_a_thousand_files_are_the_most_of_a_batch_by_default(tmp_path: Path) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    adds = [
        {"path": f"{number}", "partitionValues": {}, "size": 1, "modificationTime": number} for number in range(1001)
    ]
    table.commit(*({"add": {**add, "dataChange": True}} for add in adds))
    assert [batch.files.num_rows for batch in stream_of(table.open())] == [1000, 1]
    assert [batch.files.num_rows for batch in stream_of(table.open(), starting_version=1)] == [1000, 1]


@pytest.mark.requirements("STREAM-1")
def test_columns_and_conditions_are_those_of_any_read(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    stream = stream_of(path_table(tmp_path), columns=["ID"], where="p = '1' AND id > 1")
    (batch,) = stream
    assert batch.to_arrow().to_pydict() == {"id": [3]}
    with batch.to_batches() as batches:
        assert batches.schema.names == ["id"]


@pytest.mark.requirements("STREAM-1")
def test_an_empty_table_pins_where_its_stream_began(tmp_path: Path) -> None:
    """The offset of the first batch says so, though it has no rows."""
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    (batch,) = stream_of(table.open())
    assert (batch.to_arrow().num_rows, batch.offset.version, batch.offset.is_initial) == (0, 1, False)
    assert batch.to_arrow().schema.names == ["id"]
    table.add("a.parquet", pa.table({"id": pa.array([1], pa.int64())}))
    assert read(stream_of(table.open(), offset=batch.offset.to_json())) == [[1]]


# --- where a stream begins --------------------------------------------------------------------------------------------


@pytest.mark.requirements("STREAM-3")
def test_the_starting_version_is_inclusive(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    table = path_table(tmp_path)
    assert flat(read(stream_of(table, starting_version=1))) == [1, 2]
    assert flat(read(stream_of(table, starting_version=2))) == [2]
    latest = stream_of(table, starting_version="latest")
    assert latest.offset.version == 3
    assert read(latest) == []
    with pytest.raises(VersionNotFoundError, match="version 3 on: its latest version is 2"):
        stream_of(table, starting_version=3)


@pytest.mark.requirements("STREAM-3", "TT-7")
def test_the_starting_timestamp_is_inclusive(tmp_path: Path) -> None:
    """The first version made at or after it."""
    for number in range(3):
        write(tmp_path, number)
        seconds = 1000 + 10 * number
        os.utime(tmp_path / "_delta_log" / f"{number:020d}.json", (seconds, seconds))
    table = path_table(tmp_path)
    for time, expected in ((0, [0, 1, 2]), (1_010_000, [1, 2]), (1_010_001, [2]), (1_020_000, [2])):
        assert flat(read(stream_of(table, starting_timestamp_ms=time))) == expected
    with pytest.raises(VersionNotFoundError, match=re.escape("1970-01-01T00:17:00.001Z")):
        stream_of(table, starting_timestamp_ms=1_020_001)


@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize(
    "wanted",
    [
        {"starting_version": 0, "starting_timestamp_ms": 0},
        {"starting_version": -1},
        {"starting_version": True},
        {"starting_version": "0"},
        {"max_files": 0},
        {"max_bytes": 0},
        {"max_files": 1.5},
        {"changes": "everything"},
        {"columns": "id"},
        {"columns": ["nope"]},
        {"columns": ["id", "ID"]},
        {"where": "nope = 1"},
        {"offset": "{}"},
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, wanted: dict[str, Any]) -> None:
    write(tmp_path, 1)
    with pytest.raises(InvalidArgumentError):
        stream_of(path_table(tmp_path), **wanted)


@pytest.mark.requirements("STREAM-1")
def test_a_condition_that_only_spark_can_evaluate_is_refused_before_a_batch(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(InvalidArgumentError, match="only Spark can evaluate"):
        stream_of(path_table(tmp_path), where="id / 2 = 1")


@pytest.mark.requirements("STREAM-1")
def test_the_offset_of_another_table_is_refused(tmp_path: Path) -> None:
    """Also of one that was at the same place before."""
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 1)
    offset = stream_of(path_table(tmp_path / "a")).offset
    with pytest.raises(InvalidArgumentError, match="another table, or was replaced"):
        stream_of(path_table(tmp_path / "b"), offset=offset)
    not_one: Any = 1
    with pytest.raises(InvalidArgumentError, match="starting_version"):
        stream_of(path_table(tmp_path / "a"), offset=not_one)


@pytest.mark.requirements("STREAM-1")
def test_an_offset_after_the_latest_version_is_refused(tmp_path: Path) -> None:
    """A table that was rolled back would give nothing for ever, and then other rows."""
    write(tmp_path, 1)
    write(tmp_path, 2)
    stream = stream_of(path_table(tmp_path))
    assert read(stream) == [[1, 2]]
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(VersionNotFoundError, match=r"^(?!.*fail_on_data_loss).*is at version 2 .* latest version is 0"):
        read(stream)
    with pytest.raises(VersionNotFoundError, match="rolled back"):
        stream_of(path_table(tmp_path), offset=stream.offset.to_json())


# --- commits that do more than add rows -------------------------------------------------------------------------------


@pytest.mark.requirements("STREAM-2")
def test_a_compaction_emits_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 3)
    stream = stream_of(path_table(tmp_path))
    assert read(stream) == [[1, 3]]
    deltalake.DeltaTable(str(tmp_path)).optimize.compact()
    write(tmp_path, 5)
    assert read(stream) == [[5]]
    assert sorted(flat(read(stream_of(path_table(tmp_path), starting_version=0)))) == [1, 3, 5]


@pytest.mark.requirements("STREAM-3")
def test_a_delete_stops_the_stream_after_the_rows_before_it(tmp_path: Path) -> None:
    """With table, version and the ways on; each of which does as it says."""
    write(tmp_path, 1)
    write(tmp_path, 2)
    deltalake.DeltaTable(str(tmp_path)).delete("id = 1")
    write(tmp_path, 4)
    table = path_table(tmp_path)
    stream = stream_of(table, starting_version=0)
    seen = []
    with pytest.raises(StreamSourceChangedError, match=r"Version 2 of file:.*DELETE.*ignoreDeletes.*skipChangeCommits"):
        for batch in stream:
            seen += batch.to_arrow()["id"].to_pylist()
    assert seen == [1, 2]
    for changes in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        assert read(stream_of(table, offset=stream.offset, changes=changes)) == [[4]]


@pytest.mark.requirements("STREAM-3")
def test_an_update_stops_the_stream_or_is_skipped_or_comes_with_its_whole_files(tmp_path: Path) -> None:
    write(tmp_path, 1, 3)
    deltalake.DeltaTable(str(tmp_path)).update(updates={"id": "5"}, predicate="id = 3")
    write(tmp_path, 7)
    table = path_table(tmp_path)
    for changes in ("fail", "ignoreDeletes"):
        with pytest.raises(StreamSourceChangedError, match=r"Version 1 of file:.*UPDATE"):
            read(stream_of(table, starting_version=1, changes=changes))
    assert flat(read(stream_of(table, starting_version=0, changes="skipChangeCommits"))) == [1, 3, 7]
    assert flat(read(stream_of(table, starting_version=0, changes="ignoreChanges"))) == [1, 1, 3, 5, 7]
    assert sorted(flat(read(stream_of(table)))) == [1, 5, 7]


@pytest.mark.requirements("STREAM-4")
def test_new_columns_come_with_the_rows_that_brought_them(tmp_path: Path) -> None:
    write(tmp_path, 1)
    stream = stream_of(path_table(tmp_path))
    assert read(stream) == [[1]]
    write(tmp_path, 2)
    wider = pa.table({"id": pa.array([3], pa.int64()), "p": ["1"], "note": ["x"]})
    deltalake.write_deltalake(str(tmp_path), wider, mode="append", schema_mode="merge")
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [4], "p": ["0"]}), mode="append", schema_mode="merge")
    batches = [batch.to_arrow() for batch in stream]
    assert [batch.schema.names for batch in batches] == [["id", "p"], ["id", "p", "note"]]
    assert batches[1].to_pylist() == [{"id": 3, "p": "1", "note": "x"}, {"id": 4, "p": "0", "note": None}]


@pytest.mark.requirements("STREAM-4")
def test_a_schema_that_changes_otherwise_stops_the_stream(tmp_path: Path) -> None:
    """The error names table, version and column; the stream goes on once it is started again."""
    table = ForeignTable(tmp_path / "t", field("id", "long"), field("note", "string"))
    stream = stream_of(table.open())
    table.add("a.parquet", pa.table({"id": pa.array([1], pa.int64()), "note": ["x"]}))
    table.evolve(field("id", "long"))
    table.add("b.parquet", pa.table({"id": pa.array([2], pa.int64())}))
    seen = []
    with pytest.raises(SchemaMismatchError, match=r"Version 2 of file:.*'note' is missing.*restart the stream"):
        for batch in stream:
            seen += batch.to_arrow().to_pylist()
    assert seen == [{"id": 1, "note": "x"}]
    assert read(stream_of(table.open(), offset=stream.offset.to_json())) == [[2]]
    late = stream_of(table.open(), starting_version=0)
    seen = []
    with pytest.raises(SchemaMismatchError, match=r"Version 2 of file:.*'note' is missing.*restart the stream"):
        for batch in late:
            seen += batch.to_arrow().to_pylist()
    assert seen == [{"id": 1, "note": "x"}]
    assert read(stream_of(table.open(), offset=late.offset.to_json())) == [[2]]


@pytest.mark.requirements("STREAM-4")
def test_a_stream_that_is_started_again_maps_unread_rows_to_the_new_schema(tmp_path: Path) -> None:
    """A stream that runs stops at a renamed or widened column, also if its consumer only continues the loop."""
    key, note = mapped("id", "integer", 1, "c1"), mapped("note", "string", 2, "c2")
    table = ForeignTable(
        tmp_path / "t",
        key,
        note,
        features=("columnMapping", "typeWidening"),
        properties={"delta.columnMapping.mode": "name"},
    )
    stream = stream_of(table.open())
    table.add("a.parquet", pa.table({"c1": pa.array([1], pa.int32()), "c2": ["x"]}))
    assert read(stream) == [[1]]
    read_up_to = stream.offset.to_json()
    table.add("b.parquet", pa.table({"c1": pa.array([2], pa.int32()), "c2": ["y"]}))
    wide = mapped("id", "long", 1, "c1")
    table.evolve(wide, {**note, "name": "text"}, mapped("note", "string", 3, "c3"))
    table.add("c.parquet", pa.table({"c1": [2**40], "c2": ["z"], "c3": ["w"]}))
    for _ in range(2):
        with pytest.raises(SchemaMismatchError, match=r"Version 3 of file:.*the type of 'id' changed.*restart"):
            read(stream)
    assert stream.offset.version == 3
    (batch,) = stream_of(table.open(), offset=read_up_to)
    assert batch.to_arrow().to_pylist() == [
        {"id": 2, "text": "y", "note": None},
        {"id": 2**40, "text": "z", "note": "w"},
    ]
    table.evolve(wide, {**note, "name": "text"})
    table.evolve(wide, {**note, "name": "text"}, mapped("note", "string", 4, "c4"))
    again = stream_of(table.open(), offset=read_up_to)
    with pytest.raises(SchemaMismatchError, match=r"is at version 3, .*another column of that name"):
        read(again)
    rest = next(iter(stream_of(table.open(), offset=again.offset.to_json())))
    assert rest.to_arrow().to_pylist() == [{"id": 2**40, "text": "z", "note": "w"}]


@pytest.mark.requirements("STREAM-4")
def test_a_feature_that_readers_do_not_know_stops_the_stream(tmp_path: Path) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    stream = stream_of(table.open())
    assert read(stream) == [[]]
    features = {"readerFeatures": ["warp"], "writerFeatures": ["warp"]}
    table.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(UnsupportedFeatureError, match=r"file:.* at version 1 .*warp"):
        read(stream)


@pytest.mark.requirements("STREAM-5", "CM-R8")
def test_a_path_table_that_a_catalog_begins_to_manage_stops_the_stream(tmp_path: Path) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    stream = stream_of(table.open())
    assert read(stream) == [[]]
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}
    table.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(CatalogManagedAccessError, match="through the catalog"):
        read(stream)


@pytest.mark.requirements("STREAM-1", "DV-1", "COLMAP-1")
def test_deletion_vectors_and_mapped_columns_are_read_as_in_any_read(tmp_path: Path) -> None:
    table = ForeignTable(
        tmp_path / "t",
        mapped("id", "long", 1, "col-1"),
        mapped("p", "string", 2, "col-2"),
        partitions=["p"],
        features=("deletionVectors", "columnMapping"),
        properties={"delta.columnMapping.mode": "name"},
    )
    vector = encode_inline(BitMap64([0]))
    descriptor = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": 1,
    }
    for number in range(2):
        rows = pa.table({"col-1": pa.array([10 * number, 10 * number + 1], pa.int64())})
        table.add(f"{number}.parquet", rows, values={"col-2": f"p{number}"}, deletionVector=descriptor)
    expected = [{"id": 1, "p": "p0"}, {"id": 11, "p": "p1"}]
    for start in (None, 0):
        batches = stream_of(table.open(), starting_version=start, max_files=1)
        assert [row for batch in batches for row in batch.to_arrow().to_pylist()] == expected


# --- what is gone -----------------------------------------------------------------------------------------------------


def cleaned_log(path: Path) -> PathTable:
    """Versions 0 to 4; a checkpoint of version 3, and the commits from 3 on."""
    for number in range(4):
        write(path, number)
    deltalake.DeltaTable(str(path)).create_checkpoint()
    write(path, 4)
    for version in range(3):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    return path_table(path)


@pytest.mark.requirements("STREAM-1")
def test_commits_that_were_cleaned_up_are_an_error_unless_that_is_allowed(tmp_path: Path) -> None:
    """Nothing is passed over silently."""
    write(tmp_path / "t", 100)
    offset = stream_of(path_table(tmp_path / "t"), starting_version="latest").offset
    (tmp_path / "t").rename(tmp_path / "old")
    table = cleaned_log(tmp_path / "t")
    offset = StreamOffset(table_id=table.table_id, version=offset.version)
    for wanted in ({"offset": offset}, {"starting_version": 1}):
        with pytest.raises(VersionNotFoundError, match=r"needs version 1 .*cleanup.*at version 3, .*fail_on_data_loss"):
            stream_of(table, **wanted)
        assert flat(read(stream_of(table, fail_on_data_loss=False, **wanted))) == [3, 4]
    snapshot = StreamOffset(table_id=table.table_id, version=1, index=0, is_initial=True)
    with pytest.raises(VersionNotFoundError, match="for its initial snapshot"):
        stream_of(table, offset=snapshot, fail_on_data_loss=False)


@pytest.mark.requirements("STREAM-1")
def test_commits_that_go_while_the_stream_is_read_are_an_error_too(tmp_path: Path) -> None:
    write(tmp_path, 100)
    table = path_table(tmp_path)
    strict, lenient = (stream_of(table, fail_on_data_loss=strict) for strict in (True, False))
    assert read(strict) == read(lenient) == [[100]]
    cleaned_log(tmp_path)
    with pytest.raises(VersionNotFoundError, match="needs version 1"):
        read(strict)
    # Version 0 was there already, so the checkpoint is of version 4; the commit before it, which wrote 2, is still there.
    assert flat(read(lenient)) == [2, 3, 4]


@pytest.mark.requirements("STREAM-1")
@pytest.mark.parametrize("redefined", [False, True])
def test_commits_are_read_as_long_as_they_are_there(tmp_path: Path, redefined: bool) -> None:
    """As delta-spark's clean-up leaves them, before the oldest checkpoint; nothing there is passed over, unless what
    held for the table then is not known."""
    for number in range(6):
        write(tmp_path, number)
    if redefined:
        rows = pa.table({"id": pa.array([6], pa.int64()), "p": ["0"], "extra": ["x"]})
        deltalake.write_deltalake(str(tmp_path), rows, mode="append", partition_by=["p"], schema_mode="merge")
    else:
        write(tmp_path, 6)
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    write(tmp_path, 7, schema_mode="merge")
    table = path_table(tmp_path)
    offset = replace(stream_of(table).offset, version=3, is_initial=False)
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    lost = replace(offset, version=1)
    if redefined:
        with pytest.raises(VersionNotFoundError, match=r"needs version 3 .*at version 6, .*fail_on_data_loss"):
            stream_of(table, offset=offset)
        assert flat(read(stream_of(table, offset=lost, fail_on_data_loss=False))) == [6, 7]
        return
    assert flat(read(stream_of(table, offset=offset, max_files=1))) == [3, 4, 5, 6, 7]
    assert flat(read(stream_of(table, starting_version=4))) == [4, 5, 6, 7]
    with pytest.raises(VersionNotFoundError, match=r"needs version 1 .*at version 3, .*fail_on_data_loss"):
        stream_of(table, offset=lost)
    assert flat(read(stream_of(table, offset=lost, fail_on_data_loss=False))) == [3, 4, 5, 6, 7]


@pytest.mark.requirements("STREAM-1", "LOG-4")
def test_a_commit_missing_in_the_middle_is_always_an_error(tmp_path: Path) -> None:
    """That is damage, no clean-up."""
    for number in range(3):
        write(tmp_path, number)
    table = path_table(tmp_path)
    stream = stream_of(table, starting_version=0, max_files=1, fail_on_data_loss=False)
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises((CorruptLogError, VersionNotFoundError)):
        read(stream)


@pytest.mark.requirements("STREAM-1", "TT-6")
def test_a_data_file_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (batch,) = stream_of(path_table(tmp_path))
    next(tmp_path.rglob("*.parquet")).unlink()
    with pytest.raises(ObjectNotFoundError, match=r"\.parquet"):
        batch.to_arrow()


# --- catalog-managed tables -------------------------------------------------------------------------------------------


def append(lake: Lake, table: Table, number: int, **more: Any) -> int:
    """One commit with one row."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), sink)
    name = f"{number}-{more.get('data_change', True)}.parquet"
    version = lake.append(table, name, size=len(sink.getvalue()), stats=None, **more).version
    lake.put(table, name, sink.getvalue())
    return version


def stop_publishing(lake: Lake) -> None:
    """What is ratified from now on is in the catalog and in staged files alone."""
    lake.client.wait_for_background()
    lake.store.fails = broken_storage("write_if_absent", "_delta_log/0000")


@pytest.mark.requirements("STREAM-5", "CM-R4", "CM-R9")
def test_staged_inline_and_created_commits_are_streamed_alike(lake: Lake) -> None:
    """Through the catalog, published or not."""
    table = lake.new_table()
    streams = [stream_of(table), stream_of(table, max_files=1, starting_version=0)]
    set_commit_policy(table, CommitPolicy.parse("put_if_absent"))
    append(lake, table, 0)
    set_commit_policy(table, CommitPolicy.parse("staged"))
    stop_publishing(lake)
    append(lake, table, 1)
    for number, policy in ((2, "inline"), (3, "staged"), (4, "inline")):
        set_commit_policy(table, CommitPolicy.parse(policy))
        append(lake, table, number)
    known = lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
    assert [commit.content is None for commit in known] == [True, False, True, False]
    again = lake.reopened().table("main.test.t")
    streams += [stream_of(again, max_files=2), stream_of(again, starting_version=0)]
    assert [sorted(flat(read(stream))) for stream in streams] == [[0, 1, 2, 3, 4]] * 4
    assert flat(read(stream_of(again, starting_version=0))) == [0, 1, 2, 3, 4]

    lake.store.fails = lambda method, argument: None
    publish(table)
    append(lake, table, 5)
    assert [flat(read(stream)) for stream in streams] == [[5]] * 4


@pytest.mark.requirements("STREAM-5", "CM-R5", "CM-R9")
def test_a_published_file_above_the_latest_version_is_not_streamed(lake: Lake) -> None:
    table = lake.new_table()
    append(lake, table, 1)
    stream = stream_of(table)
    log = f"{table.location}/_delta_log"
    stray = lake.memory.read(f"{log}/{1:020d}.json")
    lake.memory.write(f"{log}/{2:020d}.json", stray)
    assert read(stream) == [[1]]
    assert stream.offset.version == 2
    assert read(stream) == []
    with pytest.raises(VersionNotFoundError, match="latest version is 1"):
        stream_of(table, starting_version=2)


@pytest.mark.requirements("STREAM-5", "CM-R4")
def test_what_the_catalog_ratified_counts_and_not_another_file_of_that_version(lake: Lake) -> None:
    table = lake.new_table()
    append(lake, table, 1)
    stop_publishing(lake)
    append(lake, table, 2)
    lake.store.fails = lambda method, argument: None
    log = f"{table.location}/_delta_log"
    lake.memory.write(f"{log}/{2:020d}.json", lake.memory.read(f"{log}/{1:020d}.json"))
    assert flat(read(stream_of(lake.reopened().table("main.test.t"), starting_version=1))) == [1, 2]


@pytest.mark.requirements("STREAM-5", "CM-R10")
def test_a_commit_published_and_cleaned_between_answer_and_reading_is_found(lake: Lake) -> None:
    table = lake.new_table()
    stop_publishing(lake)
    append(lake, table, 1)
    lake.store.fails = lambda method, argument: None
    stream = stream_of(table, starting_version=1)
    (staged,) = [name for name in lake.files(table) if "_staged_commits/" in name and f"{1:020d}." in name]
    answers: list[Any] = []

    def meanwhile(method: str, answer: Any) -> Any:
        answers.extend([answer] if method == "get_ratified_commits" else [])
        if len(answers) == 2:
            lake.catalog.changes = lambda method, answer: answer
            publish(lake.reopened().table("main.test.t"))
            lake.memory.delete(f"{table.location}/{staged}")
        return answer

    lake.catalog.changes = meanwhile
    assert flat(read(stream)) == [1]
    assert [len(answer.commits) for answer in answers] == [1, 1]


@pytest.mark.requirements("STREAM-5", "CM-R9")
def test_what_a_late_writer_left_where_the_log_was_cleaned_is_not_streamed(lake: Lake) -> None:
    """A file of that name is not a commit after that."""
    table = lake.new_table()
    stream = stream_of(table, max_files=1)
    assert read(stream) == [[]]
    for number in range(1, 5):
        append(lake, table, number)
    lake.client.wait_for_background()
    assert checkpoint(table).version == 4
    log = f"{table.location}/_delta_log"
    for version in range(4):
        lake.memory.delete(f"{log}/{version:020d}.json")
    lake.memory.write(f"{log}/{1:020d}.json", lake.memory.read(f"{log}/{4:020d}.json"))
    with pytest.raises(VersionNotFoundError, match=r"needs version 1 .* at version 4, .*fail_on_data_loss"):
        read(stream)
    assert flat(read(stream_of(table, starting_version=4))) == [4]


@pytest.mark.requirements("STREAM-5", "CM-D8")
def test_a_dropped_table_ends_its_stream_with_an_error(lake: Lake) -> None:
    table = lake.new_table()
    stream = stream_of(table)
    assert read(stream) == [[]]
    drop_table(lake.client, identifier="main.test.t")
    lake.new_table()
    with pytest.raises(TableNotFoundError):
        read(stream)


@pytest.mark.requirements("STREAM-2", "STREAM-5")
def test_a_compaction_of_a_managed_table_emits_nothing(lake: Lake) -> None:
    table = lake.new_table()
    append(lake, table, 1)
    stream = stream_of(table)
    assert read(stream) == [[1]]
    append(lake, table, 1, data_change=False)
    assert stream.offset.version == 2
    assert read(stream) == [[]]
    append(lake, table, 2)
    assert read(stream) == [[2]]
    assert json.loads(stream.offset.to_json())["reservoirVersion"] == 4
