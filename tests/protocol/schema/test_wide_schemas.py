"""Tables with thousands of columns: the work grows with the columns, not with their square."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster.arrow.columns import FileLayout
from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checkpoint
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.log.stats_parsed import stats_struct, stats_texts
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.storage.local_store import LocalStore
from tests.support.foreign import ForeignTable, field


def calls_of(action: Callable[[], Any]) -> int:
    """The number of calls of functions, of Python and of C, in this thread."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def schema_of(width: int) -> StructType:
    return StructType(tuple(StructField(f"c{number}", LONG) for number in range(width)))


def texts_of(width: int) -> pa.Array:
    names = [f"c{number}" for number in range(width)]
    bounds = ",".join(f'"{name}":{number}' for number, name in enumerate(names))
    counts = ",".join(f'"{name}":0' for name in names)
    return pa.array([f'{{"numRecords":1,"minValues":{{{bounds}}},"maxValues":{{{bounds}}},"nullCount":{{{counts}}}}}'])


def files_of(width: int) -> FileLayout:
    schema = pa.schema([(f"C{number}", pa.int64()) for number in range(width)])
    return FileLayout(schema=schema, file="f", mapping=ColumnMappingMode.NONE)


ACTIONS: dict[str, Callable[[int], Any]] = {
    "find each field of a schema": lambda width: (lambda schema: [schema.field(name) for name in schema.names])(
        schema_of(width)
    ),
    "find each column in a file": lambda width: (
        lambda layout: [layout.column(item) for item in schema_of(width).fields]
    )(files_of(width)),
    "convert statistics": lambda width: stats_texts(
        stats_struct(texts_of(width), schema_of(width), without=frozenset())
    ),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_four_times_the_columns_are_four_times_the_work(name: str) -> None:
    ACTIONS[name](10)  # What is imported or cached by the first use is not counted.
    few, many = (calls_of(lambda width=width: ACTIONS[name](width)) for width in (100, 400))
    assert many < 4.5 * few


@pytest.mark.requirements("SCHEMA-2")
def test_a_field_is_found_ignoring_case_and_the_first_of_two_counts() -> None:
    """The index of the names is no part of the value."""
    schema = StructType((StructField("a", LONG), StructField("B", LONG, nullable=False), StructField("b", LONG)))
    unused = StructType(schema.fields)
    assert schema.field("b") is schema.field("B") is schema.fields[1]
    assert schema.field("c") is None
    assert (schema, hash(schema), repr(schema)) == (unused, hash(unused), repr(unused))


@pytest.mark.requirements("CKPT-11")
def test_statistics_of_a_wide_table_are_converted_both_ways() -> None:
    """Every value comes back, nested ones too."""
    schema = StructType((*schema_of(1000).fields, StructField("s", schema_of(2))))
    text = '{"numRecords":2,"minValues":{"c0":1,"c999":7,"s":{"c1":5}},"nullCount":{"c999":1,"s":{"c0":0}}}'
    parsed = stats_struct(pa.array([text, None]), schema, without=frozenset())
    assert parsed is not None
    assert stats_texts(parsed).to_pylist()[0] == text


@pytest.mark.requirements("CKPT-10", "CKPT-11")
def test_a_checkpoint_with_statistics_of_many_columns_is_read_back(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(300)]
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    table = ForeignTable(tmp_path / "t", *[field(name, "long") for name in names], properties=properties)
    bounds = {name: number for number, name in enumerate(names)}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(names, 0)}
    rows = pa.table({name: [number] for number, name in enumerate(names)})
    table.add("a.parquet", rows, stats=stats)
    write_checkpoint(LocalStore(), table.open().snapshot(), now_ms=10**12)
    (tmp_path / "t/_delta_log/00000000000000000000.json").unlink()
    assert read_arrow(open_scan(table.open(), where="c299 = 299")).equals(rows)
    assert read_arrow(open_scan(table.open(), where="c299 = 298")).num_rows == 0
