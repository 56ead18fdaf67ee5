"""Aggregates from the log are exact or unknown."""

import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME, ColumnMappingMode
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator, Predicate
from cm_delta_dagster.protocol.schema.types import DecimalType, PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates, metadata_aggregates
from tests.support.actions import add_file

SCHEMA = StructType(
    tuple(
        StructField(name, kind)
        for name, kind in {
            "i": PrimitiveType("long"),
            "f": PrimitiveType("float"),
            "y": PrimitiveType("date"),
            "s": PrimitiveType("string"),
            "t": PrimitiveType("timestamp"),
            "c": DecimalType(10, 2),
            "p": PrimitiveType("integer"),
            "q": PrimitiveType("string"),
        }.items()
    )
)


def add(stats: str | None, *, p: str | None = "1", q: str | None = "a", deleted: Sequence[int] = ()) -> AddFile:
    vector = encode_inline(deleted) if deleted else None
    return add_file("f", vector, partition_values={"p": p, "q": q}, stats=stats)


def stats(rows: int, low: dict[str, Any], high: dict[str, Any], nulls: dict[str, int], **more: Any) -> str:
    return json.dumps({"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls, **more})


def asked(*files: AddFile, columns: Sequence[str] = ("i",), where: Predicate | None = None) -> MetadataAggregates:
    return metadata_aggregates(adds_to_table(files), columns, schema=SCHEMA, partition_columns=("p", "q"), where=where)


NO_NULLS = {"i": 0, "f": 0, "y": 0, "s": 0, "t": 0, "c": 0}
ONE = stats(3, {"i": 1}, {"i": 5}, NO_NULLS)


@pytest.mark.requirements("SKIP-6")
def test_counts_and_bounds_of_all_files_are_combined() -> None:
    empty, only_nulls = json.dumps({"numRecords": 0}), stats(2, {}, {}, {"i": 2})
    answer = asked(add(ONE), add(stats(4, {"i": -7}, {"i": 2}, NO_NULLS)), add(empty), add(only_nulls))
    assert answer == MetadataAggregates(num_rows=9, minimums={"i": -7}, maximums={"i": 5})
    assert asked() == MetadataAggregates(num_rows=0, minimums={"i": None}, maximums={"i": None})
    assert asked(add(only_nulls)) == MetadataAggregates(num_rows=2, minimums={"i": None}, maximums={"i": None})


@pytest.mark.requirements("SKIP-6", "DV-22")
def test_deleted_rows_are_not_counted_and_make_bounds_unknown() -> None:
    assert asked(add(ONE, deleted=[1])) == MetadataAggregates(num_rows=2)
    wide = stats(3, {"i": 1}, {"i": 5}, NO_NULLS, tightBounds=False)
    assert asked(add(ONE), add(wide)) == MetadataAggregates(num_rows=6)


@pytest.mark.requirements("SKIP-6")
@pytest.mark.parametrize("text", [None, "{}", "x", json.dumps({"minValues": {"i": 1}})])
def test_a_file_without_a_row_count_makes_all_aggregates_unknown(text: str | None) -> None:
    assert asked(add(ONE), add(text), columns=("i", "p")) == MetadataAggregates(num_rows=None)


@pytest.mark.requirements("SKIP-6")
@pytest.mark.parametrize(
    "text",
    [
        stats(2, {}, {}, {"i": 1}),
        stats(2, {}, {}, {}),
        stats(2, {"i": 1}, {"i": 1}, {}),
        stats(2, {"i": 1.5}, {"i": "x"}, NO_NULLS),
    ],
)
def test_a_file_with_values_but_no_bounds_makes_bounds_unknown(text: str) -> None:
    assert asked(add(ONE), add(text)) == MetadataAggregates(num_rows=5)


@pytest.mark.requirements("SKIP-4", "SKIP-6")
def test_only_types_with_exact_bounds_have_minimum_and_maximum() -> None:
    """Strings and timestamps are truncated, decimals rounded, and maxima ignore NaN."""
    low = {"f": 0.5, "y": "2020-01-01", "s": "a", "t": "2020-01-01T00:00:00.000Z", "c": 1.5}
    answer = asked(add(stats(1, low, low, NO_NULLS)), columns=("f", "Y", "s", "t", "c"))
    day = date(2020, 1, 1)
    assert answer == MetadataAggregates(num_rows=1, minimums={"f": 0.5, "y": day}, maximums={"y": day})


@pytest.mark.requirements("SKIP-6", "PART-1")
def test_partition_columns_use_the_values_of_files_with_rows() -> None:
    gone = add(stats(1, {}, {}, {}), p="-9", deleted=[0])
    answer = asked(add(ONE, p="10", q="b"), add(ONE, p="9", q=None), gone, columns=("p", "q"))
    assert answer == MetadataAggregates(num_rows=6, minimums={"p": 9, "q": "b"}, maximums={"p": 10, "q": "b"})


@pytest.mark.requirements("SKIP-6")
def test_a_condition_must_be_decided_by_partition_values() -> None:
    files = add(ONE, p="1"), add(stats(2, {"i": 9}, {"i": 9}, NO_NULLS), p="2")
    on_partition = Comparison("p", ComparisonOperator.EQ, 2)
    assert asked(*files, where=on_partition) == MetadataAggregates(num_rows=2, minimums={"i": 9}, maximums={"i": 9})
    assert asked(*files, where=Comparison("i", ComparisonOperator.LT, 3)).num_rows is None
    assert asked(*files, where=Comparison("p", ComparisonOperator.EQ, 7)).num_rows == 0


@pytest.mark.requirements("COLMAP-9", "SKIP-6")
def test_mapped_columns_are_looked_up_by_physical_name() -> None:
    schema = StructType((StructField("i", PrimitiveType("long"), metadata={PHYSICAL_NAME: "col-1"}),))
    files = adds_to_table([add(stats(1, {"col-1": 4, "i": 0}, {"col-1": 4, "i": 9}, {"col-1": 0}))])
    answer = metadata_aggregates(files, ["I"], schema=schema, partition_columns=(), mapping=ColumnMappingMode.NAME)
    assert answer == MetadataAggregates(num_rows=1, minimums={"i": 4}, maximums={"i": 4})


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="'nope'"):
        asked(columns=("nope",))


rows = st.lists(st.none() | st.integers(-5, 5), max_size=4)


@pytest.mark.requirements("SKIP-6")
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(rows, st.integers(0, 3), st.booleans()), max_size=5))
def test_aggregates_agree_with_the_rows(files: list[tuple[list[int | None], int, bool]]) -> None:
    """Files with and without values, rows, statistics and deleted rows."""
    actions, living = [], []
    for values, deleted, has_bounds in files:
        known = [value for value in values if value is not None]
        bound = has_bounds and known
        text = stats(
            len(values),
            {"i": min(known)} if bound else {},
            {"i": max(known)} if bound else {},
            {"i": len(values) - len(known)},
        )
        gone = range(min(deleted, len(values)))
        actions.append(add(text, deleted=gone))
        living += values[len(gone) :]
    answer = asked(*actions)
    assert answer.num_rows == len(living)
    present = [value for value in living if value is not None]
    for known_bounds, expected in ((answer.minimums, min), (answer.maximums, max)):
        assert known_bounds.get("i", ...) in (..., expected(present, default=None))


@pytest.mark.requirements("SKIP-6", "PART-4")
def test_decimals_are_exact_as_partition_values() -> None:
    schema = StructType((StructField("c", DecimalType(10, 2)),))
    files = adds_to_table(
        add_file(text, partition_values={"c": text}, stats='{"numRecords":1}') for text in ("9.50", "10.25")
    )
    answer = metadata_aggregates(files, ["c"], schema=schema, partition_columns=("c",))
    assert (answer.minimums["c"], answer.maximums["c"]) == (Decimal("9.50"), Decimal("10.25"))
    assert isinstance(files, pa.Table)
