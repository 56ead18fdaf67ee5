"""Positions of rows in their files: those that a condition finds, and those that a scan is asked for."""

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from cm_delta_dagster.arrow.scan import row_positions
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import RowPositions, ScanRequest, TableLayout
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import LONG, STRING, StructType
from tests.arrow.data_files import DataFiles, columns

_SCHEMA = columns(id=LONG, v=STRING, p=STRING)


def _table(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{number % 3}" for number in ids]})


def _found(files: DataFiles, where: str, schema: StructType = _SCHEMA) -> dict[str, list[int]]:
    partitions = ("p",) if "p" in schema.names else ()
    layout = TableLayout(location=files.location, schema=schema, partition_columns=partitions)
    predicate = parse_predicate(where, schema) if where != "true" else AlwaysTrue()
    request = ScanRequest(files=adds_to_table(files.adds), predicate=predicate)
    found = row_positions(store=files.store, layout=layout, request=request)
    assert all(isinstance(positions, BitMap64) for positions in found.values())
    return {path: list(positions) for path, positions in found.items()}


@pytest.mark.requirements("DV-2")
@pytest.mark.parametrize("group_rows", [100, 3, 1])
def test_a_condition_finds_the_positions_of_live_rows(data_files: DataFiles, group_rows: int) -> None:
    """Positions count deleted rows and those of row groups that are not read."""
    first = data_files.add(_table(*range(10)), partition={"p": "a"}, deleted=[4], row_group_size=group_rows)
    second = data_files.add(_table(4, 5, 4), partition={"p": "b"}, row_group_size=group_rows)
    assert _found(data_files, "id BETWEEN 3 AND 5") == {first: [3, 5], second: [0, 1, 2]}
    assert _found(data_files, "id = 4") == {second: [0, 2]}
    assert _found(data_files, "id > 7 OR v = 'v2'") == {first: [2, 5, 8, 9], second: [1]}
    assert _found(data_files, "p = 'a'") == {first: [0, 1, 2, 3, 5, 6, 7, 8, 9]}
    assert _found(data_files, "p = 'b' AND v = 'v1'") == {second: [0, 2]}
    assert _found(data_files, "true") == {first: [0, 1, 2, 3, 5, 6, 7, 8, 9], second: [0, 1, 2]}
    assert _found(data_files, "id IS NULL") == {}


def test_a_condition_that_only_spark_evaluates_is_refused(data_files: DataFiles) -> None:
    data_files.add(_table(1), partition={"p": "a"})
    with pytest.raises(InvalidArgumentError, match="only Spark can evaluate"):
        _found(data_files, "sqrt(id) = 1")


def test_a_vector_of_another_file_is_refused(data_files: DataFiles) -> None:
    path = data_files.add(_table(1, 2), partition={"p": "a"}, deleted=[2])
    with pytest.raises(CorruptLogError, match=path):
        _found(data_files, "id = 1")


@pytest.mark.requirements("ROWTRK-10")
@pytest.mark.parametrize("group_rows", [100, 3, 1])
def test_a_scan_returns_the_live_rows_at_positions_or_all_others(data_files: DataFiles, group_rows: int) -> None:
    """Their ids are those of their positions. A file without positions has none, or all of its rows."""
    first = data_files.add(
        _table(*range(10)), deleted=[4], base_row_id=100, row_commit_version=1, row_group_size=group_rows
    )
    second = data_files.add(_table(20, 21), base_row_id=200, row_commit_version=2)
    data_files.add(_table(30), base_row_id=300, row_commit_version=3)
    names = RowIdColumns(row_id="_id", row_commit_version="_version")

    def ids(are_returned: bool, where: str = "", **by_path: list[int]) -> list[tuple[int, int]]:
        paths = {"first": first, "second": second}
        positions = RowPositions(
            by_path={paths[name]: BitMap64(found) for name, found in by_path.items()}, are_returned=are_returned
        )
        schema = columns(id=LONG, v=STRING)
        rows = data_files.rows(
            schema,
            positions=positions,
            row_tracking=names,
            columns=["id", "_row_id"],
            predicate=parse_predicate(where, schema) if where else None,
        )
        return [(row[0], row[1]) for row in rows]

    assert ids(True, first=[0, 3, 4, 9], second=[1]) == [(0, 100), (3, 103), (9, 109), (21, 201)]
    assert ids(True, second=[0]) == [(20, 200)]
    assert ids(True, "id > 3", first=[0, 3, 9]) == [(9, 109)]
    assert ids(True, first=[]) == []
    assert ids(False, first=[0, 1, 2, 4, 5, 6, 8]) == [(3, 103), (7, 107), (9, 109), (20, 200), (21, 201), (30, 300)]
    assert ids(False, "id < 5", first=[0, 4]) == [(1, 101), (2, 102), (3, 103)]


def test_few_rows_of_a_large_group_are_found_and_read_in_pieces(data_files: DataFiles) -> None:
    """A dictionary may make values far larger than the file, so a row group is not decoded as a whole."""
    count, width = 100_000, 2_000
    texts = pa.DictionaryArray.from_arrays(pa.array([0, *[1] * (count - 1)], pa.int32()), ["y" * width, "x" * width])
    rows = pa.table({"id": pa.array(range(count), pa.int64()), "v": texts, "p": pa.nulls(count, pa.string())})
    path = data_files.add(rows, row_group_size=count, store_schema=False)
    mostly_deleted = DataFiles(data_files.root / "other")
    mostly_deleted.root.mkdir()
    mostly_deleted.add(rows, row_group_size=count, store_schema=False, deleted=range(1, count - 1))
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        found = _found(data_files, "v < 'xz' AND id >= 99998 OR v > 'xz'", columns(id=LONG, v=STRING))
        positions = RowPositions(by_path={path: BitMap64([0, 70_000])}, are_returned=True)
        read = data_files.rows(columns(id=LONG, v=STRING), positions=positions)
        rest = mostly_deleted.rows(columns(id=LONG, v=STRING))
    finally:
        pa.set_memory_pool(before)
    assert found == {path: [0, 99_998, 99_999]}
    assert [(number, text[0], len(text)) for number, text in read] == [(0, "y", width), (70_000, "x", width)]
    assert [number for number, _ in rest] == [0, count - 1]
    assert 0 < pool.max_memory() < count * width / 4
