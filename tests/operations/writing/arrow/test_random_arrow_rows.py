"""Random rows of Arrow, written by both engines."""

import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.support.arrow_cases import RowCase
from tests.support.arrow_engines import check_same_tables

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
LEAVES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": ("byte", pa.int8(), st.integers(-128, 127)),
    "short": ("short", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "integer": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "from a short": ("long", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "float": ("float", pa.float32(), st.floats(width=32)),
    "double": ("double", pa.float64(), st.floats()),
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "text": ("string", pa.string(), _TEXTS),
    "binary": ("binary", pa.binary(), st.binary(max_size=20)),
    "date": ("date", pa.date32(), st.dates()),
    "timestamp": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),
    ),
    "local time": ("timestamp_ntz", pa.timestamp("us"), st.datetimes()),
    "decimal": ("decimal(12,3)", pa.decimal128(12, 3), st.decimals(-999_999_999, 999_999_999, places=3)),
    "wide decimal": (
        "decimal(30,5)",
        pa.decimal128(30, 5),
        st.integers(-(10**30) + 1, 10**30 - 1).map(lambda number: Decimal(number).scaleb(-5)),
    ),
}
PARTITIONS = [name for name in LEAVES if name not in ("float", "double")]
"""NaN is not equal to itself in a dictionary of partition values, so that floats are cases of their own."""

_numbers = itertools.count()


@st.composite
def cases(draw: st.DrawFn) -> RowCase:
    """Rows of a few columns, some of them nested, and a table for them."""
    num_rows = draw(st.integers(0, 6))
    columns, arrays = ["id long"], {"id": pa.array(range(num_rows), pa.int64())}
    for number, name in enumerate(draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=3))):
        ddl, kind, values = LEAVES[name]
        values = st.none() | values
        match draw(st.sampled_from(["plain", "plain", "array", "struct"])):
            case "array":
                ddl, kind, values = f"array<{ddl}>", pa.list_(kind), st.none() | st.lists(values, max_size=3)
            case "struct":
                ddl, kind = f"struct<x:{ddl}>", pa.struct([pa.field("x", kind)])
                values = st.none() | st.fixed_dictionaries({"x": values})
        columns.append(f"c{number} {ddl}")
        arrays[f"c{number}"] = pa.array(draw(st.lists(values, min_size=num_rows, max_size=num_rows)), kind)
    partition_by: tuple[str, ...] = ()
    if draw(st.booleans()):
        ddl, kind, values = LEAVES[draw(st.sampled_from(PARTITIONS))]
        columns.append(f"p {ddl}")
        arrays["p"] = pa.array(draw(st.lists(st.none() | values, min_size=num_rows, max_size=num_rows)), kind)
        partition_by = ("p",)
    properties = {"delta.columnMapping.mode": draw(st.sampled_from(["none", "name"]))}
    return RowCase(
        name="random",
        columns=", ".join(columns),
        rows=pa.table(arrays),
        partition_by=partition_by,
        properties=properties,
    )


@pytest.mark.slow
def test_random_rows_end_in_the_same_table_by_both_engines(tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:

        @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=cases())
        def check(case: RowCase) -> None:
            check_same_tables(lake, spark, case, suffix=str(next(_numbers)))

        check()
