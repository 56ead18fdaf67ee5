"""The file index: caches parsed columns and always agrees with a new index."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    adds_to_table,
    partition_column,
    removes_of,
)
from cm_delta_dagster.protocol.log.action_reconciliation import FileState
from cm_delta_dagster.protocol.predicates.predicates import And, Comparison, ComparisonOperator
from cm_delta_dagster.protocol.schema.types import INTEGER, LONG, STRING, StructField, StructType
from cm_delta_dagster.protocol.statistics import file_index
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask
from cm_delta_dagster.protocol.statistics.file_index import CHUNK_ROWS, MAX_COLUMNS, FileIndex
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics
from tests.support.actions import add_file
from tests.support.file_columns import removes_to_table

LOCATION = "file:///t"
WANTED = {("i",): LONG, ("s",): STRING}
SCHEMA = StructType((StructField("p", STRING), StructField("i", LONG), StructField("s", STRING)))


def file(number: int, **more: object) -> AddFile:
    stats = {"numRecords": 1, "minValues": {"i": number, "s": str(number)}, "maxValues": {"i": number}, **more}
    values = {"p": None if number % 7 == 0 else str(number % 5), "q": "x"}
    return add_file(f"f{number}", partition_values=values, stats=json.dumps(stats))


def commit(version: int, adds: pa.Table, removes: pa.Table) -> CommitActions:
    return CommitActions(
        version=version,
        commit_info=None,
        protocol=None,
        metadata=None,
        transactions=(),
        domains=(),
        adds=adds,
        removes=removes,
        cdc=(),
    )


def check_against_a_new_index(index: FileIndex, files: pa.Table) -> None:
    known, expected = index.statistics(files, WANTED), parse_statistics(files["stats"], WANTED)
    assert known.num_records.equals(expected.num_records)
    assert known.minimums == expected.minimums
    assert known.maximums == expected.maximums
    assert known.null_counts == expected.null_counts
    for name in ("p", "q", "absent"):
        assert index.partition_values(files, name).to_pylist() == partition_column(files, name).to_pylist()


steps = st.lists(
    st.tuples(st.lists(st.integers(0, 30), max_size=4, unique=True), st.lists(st.integers(0, 30), max_size=3)),
    max_size=6,
)


@pytest.mark.requirements("SKIP-1")
@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 30), unique=True), steps)
def test_an_index_agrees_with_a_new_index_after_any_commits(
    first: list[int], commits: list[tuple[list[int], list[int]]]
) -> None:
    """Files are added, removed and added again with other statistics; older states share the index."""
    state = FileState.of(adds_to_table(map(file, first)), REMOVE_SCHEMA.empty_table(), location=LOCATION)
    states = [state]
    for version, (added, removed) in enumerate(commits):
        check_against_a_new_index(state.index, state.adds)
        gone = [number for number in removed if number not in added]
        removes = removes_to_table(removes_of(adds_to_table(map(file, gone)), deletion_timestamp=0, data_change=True))
        adds = adds_to_table(file(number, nullCount={"i": version}) for number in added)
        state = state.apply([commit(version, adds, removes)])
        states.append(state)
    for each in states:
        check_against_a_new_index(each.index, each.adds)


def many_files(count: int) -> pa.Table:
    stats = [
        f'{{"numRecords":1,"minValues":{{"i":{n}}},"maxValues":{{"i":{n}}},"nullCount":{{"i":0}}}}'
        for n in range(count)
    ]
    values = pa.MapArray.from_arrays(
        pa.array(range(count + 1), pa.int32()), ["p"] * count, [str(n % 100) for n in range(count)]
    )
    columns = {"path": [f"f{n}" for n in range(count)], "partitionValues": values, "stats": stats}
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in ADD_SCHEMA]
    return pa.table(arrays, schema=ADD_SCHEMA)


@pytest.fixture
def parsed_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each call that parses statistics or partition values."""
    rows: list[int] = []

    def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(column: pa.ChunkedArray, *arguments: object) -> Any:
            rows.append(len(column))
            return function(column, *arguments)

        return call

    for name in ("parse_statistics", "partition_texts"):
        monkeypatch.setattr(file_index, name, recorded(getattr(file_index, name)))
    return rows


@pytest.mark.parametrize("removed", [0, 1])
def test_a_commit_keeps_the_cached_columns_of_other_files(removed: int, parsed_rows: list[int]) -> None:
    files = many_files(4 * CHUNK_ROWS)
    state = FileState.of(files, REMOVE_SCHEMA.empty_table(), location=LOCATION)
    predicate = And((Comparison("i", ComparisonOperator.EQ, 5), Comparison("p", ComparisonOperator.GE, "5")))
    keep_mask(state.adds, predicate, schema=SCHEMA, partition_columns=["p"], index=state.index)
    state.index.statistics(state.adds, {("i",): LONG})
    assert parsed_rows == 2 * [4 * CHUNK_ROWS]
    gone = removes_to_table(removes_of(files.slice(70_000, removed), data_change=True))
    after = state.apply([commit(1, adds_to_table([file(10**9)]), gone)])
    assert after.adds.num_rows == 4 * CHUNK_ROWS + 1 - removed
    parsed_rows.clear()
    mask = keep_mask(after.adds, predicate, schema=SCHEMA, partition_columns=["p"], index=after.index)
    statistics = after.index.statistics(after.adds, {("i",): LONG})
    assert after.adds.filter(mask)["path"].to_pylist() == ["f5"]
    assert pc.max(statistics.minimums[("i",)]).as_py() == 10**9
    assert len(parsed_rows) == 2
    assert max(parsed_rows) <= (CHUNK_ROWS if removed else 1)


def test_only_the_columns_of_the_latest_queries_are_cached() -> None:
    files = adds_to_table(map(file, range(3)))
    index = FileIndex()
    for number in range(3 * MAX_COLUMNS):
        index.statistics(files, {(f"c{number}",): LONG})
    assert index.has_statistics(files, {(f"c{3 * MAX_COLUMNS - 1}",): LONG})
    assert not index.has_statistics(files, {("c0",): LONG})
    check_against_a_new_index(index, files)


def test_a_column_is_cached_under_each_of_its_types() -> None:
    """A widened column is read under its new type, and was cached under the one before."""
    files = adds_to_table(map(file, range(3)))
    state = FileState.of(files, REMOVE_SCHEMA.empty_table(), location=LOCATION)
    state.index.statistics(state.adds, {("i",): INTEGER, ("s",): STRING})
    state.index.statistics(state.adds, {("i",): LONG})
    after = state.apply([commit(1, adds_to_table([file(10**9)]), REMOVE_SCHEMA.empty_table())])
    for kind in (LONG, INTEGER):
        statistics = after.index.statistics(after.adds, {("i",): kind})
        assert pc.max(statistics.maximums[("i",)]).as_py() == 10**9
    check_against_a_new_index(after.index, after.adds)
