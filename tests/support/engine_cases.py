"""A table of another writer with every feature that a reader has to apply, and random conditions in the words of each engine."""

import json
import math
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from tests.support.foreign import ForeignTable, mapped, struct
from tests.support.random_rows import TYPES, stats_of

FILES = 6
ROWS = 8
_KINDS = ("long", "float", "double", "decimal(20,2)", "string", "timestamp", "timestamp_ntz", "date", "boolean")
_ARROW = {
    "i": pa.int64(), "f": pa.float32(), "d": pa.float64(), "c": pa.decimal128(20, 2), "s": pa.string(),
    "t": pa.timestamp("us", "UTC"), "n": pa.timestamp("us"), "y": pa.date32(), "b": pa.bool_(),
}  # fmt: skip
_NESTED = pa.struct([("col-u", pa.int32()), ("col-v", pa.string())])

_FLOATS = (-0.0, 0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 3.0)
_MOMENT = datetime(2020, 1, 1)
VALUES: Mapping[str, tuple[Any, ...]] = {
    "f": _FLOATS,
    "d": _FLOATS,
    "c": (Decimal("-1.50"), Decimal("0.00"), Decimal("2.25"), Decimal("1000000.01")),
    "s": ("", "a", "ab", "b", "é", "x" * 40),
    "t": tuple((_MOMENT + timedelta(milliseconds=number)).replace(tzinfo=UTC) for number in range(4)),
    "n": tuple(_MOMENT + timedelta(microseconds=number) for number in range(4)),
    "y": tuple(date(2019, 12, 30) + timedelta(days=number) for number in range(4)),
    "b": (True, False),
    "i": (-1, 0, 3, 7, 8, 20, 47, 100),
    "p": (0, 1, 2),
}
"""Values that conditions compare with; the rows have these too, except for ``i``, which counts the rows."""


def random_row(draw: random.Random, number: int) -> dict[str, Any]:
    drawn = {name: draw.choice((None, *VALUES[name])) for name in TYPES if name != "i"}
    return {**drawn, "i": number}


def wide_table(root: Path) -> PathTable:
    """Six files of eight rows, partitioned by ``p``; columns are mapped, and each second file has deleted rows."""
    fields = [
        mapped(name, kind, number, f"col-{name}")
        for number, (name, kind) in enumerate(zip(TYPES, _KINDS, strict=True), 1)
    ]
    nested = mapped("st", struct(mapped("u", "integer", 20, "col-u"), mapped("v", "string", 21, "col-v")), 22, "col-st")
    char = mapped("h", "string", 23, "col-h", __CHAR_VARCHAR_TYPE_STRING="char(4)")
    table = ForeignTable(
        root, *fields, nested, char, mapped("p", "integer", 24, "col-p"),
        partitions=["p"], features=["columnMapping", "deletionVectors", "timestampNtz"],
        properties={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "24"},
    )  # fmt: skip
    draw = random.Random(7)
    for number in range(FILES):
        rows = [random_row(draw, number * ROWS + position) for position in range(ROWS)]
        content = pa.table(
            {
                **{f"col-{name}": pa.array([row[name] for row in rows], _ARROW[name]) for name in TYPES},
                "col-st": pa.array(
                    [{"col-u": row["i"], "col-v": row["s"]} if row["b"] is not None else None for row in rows], _NESTED
                ),
                "col-h": pa.array([row["s"] and row["s"][:2] for row in rows]),
            }
        )
        extra: dict[str, Any] = {}
        if number % 2:
            vector = encode_inline([1, 5])
            extra["deletionVector"] = {"storageType": "i", "pathOrInlineDv": vector.path_or_inline_dv,
                                       "sizeInBytes": vector.size_in_bytes, "cardinality": 2}  # fmt: skip
        stats = json.loads(stats_of(rows, spelled=lambda name: f"col-{name}", tight=not extra))
        partition = None if number == FILES - 1 else str(number % 3)
        table.add(f"part-{number}.parquet", content, values={"col-p": partition}, stats=stats, **extra)
    return table.open()


Condition = tuple[Any, ...]
"""``("compare", column, operator, value)``, ``("in", column, values)``, ``("null", column)``, ``("prefix", column, text)``,
``("odd", column)``, ``("field", value)``, ``("not", part)``, ``("and", parts)`` or ``("or", parts)``."""

_OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def _leaves(name: str) -> st.SearchStrategy[Condition]:
    values = st.sampled_from(VALUES[name])
    options = [
        st.tuples(st.just("compare"), st.just(name), st.sampled_from(_OPERATORS), values),
        st.tuples(st.just("in"), st.just(name), st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)),
        st.tuples(st.just("null"), st.just(name)),
    ]
    if name == "s":
        options += [
            st.tuples(st.just("prefix"), st.just(name), st.sampled_from(["a", "x", "é"])),
            st.just(("odd", name)),
        ]
    if name == "i":
        options += [st.just(("odd", name)), st.tuples(st.just("field"), st.sampled_from([3, 20]))]
    return st.one_of(*options)


conditions: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(_leaves),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.tuples(st.just("or"), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


def duckdb_literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"'{value}'::DOUBLE"
        case Decimal():
            return f"{value}::DECIMAL(20,2)"
        case datetime():
            return f"'{value.isoformat(sep=' ')}'::{'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'}"
        case date():
            return f"'{value}'::DATE"
    return "'" + str(value) + "'"


def to_duckdb(condition: Condition) -> str:
    match condition:
        case "compare", name, operator, value:
            return f"{name} {operator} {duckdb_literal(value)}"
        case "in", name, values:
            return f"{name} IN ({', '.join(map(duckdb_literal, values))})"
        case "null", name:
            return f"{name} IS NULL"
        case "prefix", name, text:
            return f"{name} LIKE '{text}%'"
        case "odd", name:
            return "length(s) % 2 = 1" if name == "s" else "i % 2 = 1"
        case "field", value:
            return f"st.u >= {value}"
        case "not", part:
            return f"NOT ({to_duckdb(part)})"
    return "(" + f" {condition[0].upper()} ".join(f"({to_duckdb(part)})" for part in condition[1]) + ")"


_ARROW_OPERATORS = dict(
    zip(_OPERATORS, ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), strict=True)
)


def to_pyarrow(condition: Condition) -> pc.Expression:
    match condition:
        case "compare", name, operator, value:
            arguments = [pc.field(name), pc.scalar(pa.scalar(value, _ARROW.get(name, pa.int32())))]
            return pc.Expression._call(_ARROW_OPERATORS[operator], arguments)
        case "in", name, values:
            return pc.field(name).isin(pa.array(values, _ARROW.get(name, pa.int32())))
        case "null", name:
            return pc.field(name).is_null()
        case "prefix", name, text:
            return pc.starts_with(pc.field(name), text)
        case "odd", name:
            length = pc.utf8_length(pc.field("s")) if name == "s" else pc.field("i")
            return pc.bit_wise_and(length, pc.scalar(1)) == 1
        case "field", value:
            return pc.field("st", "u") >= value
        case "not", part:
            return ~to_pyarrow(part)
    first, *rest = (to_pyarrow(part) for part in condition[1])
    for part in rest:
        first = first & part if condition[0] == "and" else first | part
    return first


_POLARS_OPERATORS = dict(zip(_OPERATORS, ("eq", "ne", "lt", "le", "gt", "ge"), strict=True))


def to_polars(condition: Condition) -> pl.Expr:
    match condition:
        case "compare", name, operator, value:
            found: pl.Expr = getattr(pl.col(name), _POLARS_OPERATORS[operator])(value)
            return found
        case "in", name, values:
            return pl.col(name).is_in(list(values))
        case "null", name:
            return pl.col(name).is_null()
        case "prefix", name, text:
            return pl.col(name).str.starts_with(text)
        case "odd", name:
            return (pl.col("s").str.len_chars() if name == "s" else pl.col("i")) % 2 == 1
        case "field", value:
            return pl.col("st").struct.field("u") >= value
        case "not", part:
            return ~to_polars(part)
    return (pl.all_horizontal if condition[0] == "and" else pl.any_horizontal)(to_polars(part) for part in condition[1])
