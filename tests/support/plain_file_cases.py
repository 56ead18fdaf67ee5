"""Tables with every kind of file: for each one, how many files other engines read themselves, and conditions on its rows."""

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from tests.support.foreign import ForeignTable, array, field, mapped, mapping, struct

_VECTOR = encode_inline([0])
VECTOR = {"deletionVector": {"storageType": "i", "pathOrInlineDv": _VECTOR.path_or_inline_dv,
                             "sizeInBytes": _VECTOR.size_in_bytes, "cardinality": 1}}  # fmt: skip
BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
_NOON = dt.datetime(2024, 7, 1, 12, 30, 15, 123456)

PRIMITIVES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "c_byte": ("byte", pa.int8(), [-128, 127]),
    "c_short": ("short", pa.int16(), [-32768, 32767]),
    "c_int": ("integer", pa.int32(), [-(2**31), 2**31 - 1]),
    "c_long": ("long", pa.int64(), [-(2**63), 2**63 - 1]),
    "c_float": ("float", pa.float32(), [-0.0, math.nan, math.inf, 0.1]),
    "c_double": ("double", pa.float64(), [-0.0, math.nan, -math.inf, 0.1]),
    "c_bool": ("boolean", pa.bool_(), [True, False]),
    "c_string": ("string", pa.string(), ["", "é'\"\\", "x" * 100]),
    "c_binary": ("binary", pa.binary(), [b"", b"\x00\xff", b"abc"]),
    "c_date": ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)]),
    "c_timestamp": ("timestamp", pa.timestamp("us", "UTC"), [_NOON, dt.datetime(1900, 1, 1), dt.datetime(1, 1, 1)]),
    "c_ntz": ("timestamp_ntz", pa.timestamp("us"), [_NOON, dt.datetime(1582, 10, 14)]),
    "c_dec4": ("decimal(4,2)", pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0.01")]),
    "c_dec18": ("decimal(18,0)", pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(-1)]),
    "c_dec38": ("decimal(38,10)", pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789")]),
}
_C = pl.col
ROWS = 5
UNKNOWN_TYPE = {"ARROW:extension:name": "an.extension", "ARROW:extension:metadata": ""}


def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """``ROWS`` values; the last one is null."""
    return pa.array([*(values * ROWS)[: ROWS - 1], None], kind)


def numbered(columns: dict[str, Any], start: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + ROWS), pa.int64()), **columns})


def stored_with(content: pa.Table, target: Path, **options: Any) -> None:
    pq.write_table(content, target, **options)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table, and how many of its files need no conversion.

    Attributes:
        conditions: on its rows, in the SQL of DuckDB.
        expressions: the same for polars.
    """

    build: Callable[[Path], ForeignTable]
    native: int
    conditions: tuple[str, ...] = ()
    expressions: tuple[pl.Expr, ...] = ()


def primitives(root: Path) -> ForeignTable:
    table = ForeignTable(
        root,
        field("id", "long"),
        *(field(name, kind) for name, (kind, *_) in PRIMITIVES.items()),
        features=["timestampNtz"],
    )
    content = {name: column(arrow, values) for name, (_, arrow, values) in PRIMITIVES.items()}
    table.add("a.parquet", numbered(content))
    # Decimals as integers, dictionaries and no dictionaries, several row groups, other codecs.
    for number, options in enumerate(
        (
            {"store_decimal_as_integer": True},
            {"use_dictionary": False, "data_page_version": "2.0"},
            {"row_group_size": 2, "compression": "zstd"},
            {"compression": "gzip", "write_statistics": False},
        ),
        1,
    ):
        target = root / f"{number}.parquet"
        stored_with(numbered(content, start=number * ROWS), target, **options)
        table.register(target.name, size=target.stat().st_size)
    return table


def floats(root: Path) -> ForeignTable:
    """Statistics leave NaN out."""
    table = ForeignTable(root, field("id", "long"), field("f", "float"), field("d", "double"))
    for number, values in enumerate(([1.0, math.nan, -0.0, 2.0, None], [math.nan] * 5, [0.0, 5.0, -5.0, 0.5, 1.5])):
        content = numbered({"f": pa.array(values, pa.float32()), "d": pa.array(values, pa.float64())}, number * ROWS)
        table.add(f"{number}.parquet", content)
    return table


def nested(root: Path) -> ForeignTable:
    inner = struct(field("x", "integer"), field("y", array("string")))
    table = ForeignTable(
        root, field("id", "long"), field("s", inner), field("l", array("long")), field("m", mapping("string", inner)),
        field("ll", array(array(struct(field("list", "date"))))),
    )  # fmt: skip
    kind = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    values = {
        "s": pa.array([{"x": 1, "y": ["a", None]}, {"x": None, "y": []}, None, {"x": 2, "y": None}, {"x": 3, "y": ["b"]}], kind),
        "l": pa.array([[1, None], [], None, [2], [3, 4]]),
        "m": pa.array(
            [[("k", {"x": 1, "y": ["z"]})], [], None, [("k", None), ("l", {"x": 2, "y": []})], []],
            pa.map_(pa.string(), kind),
        ),
        "ll": pa.array(
            [[[{"list": dt.date(2020, 1, 1)}], []], None, [None], [], [[None]]],
            pa.list_(pa.list_(pa.struct([("list", pa.date32())]))),
        ),
    }  # fmt: skip
    table.add("a.parquet", numbered(values))
    return table


def nested_in_other_forms(root: Path) -> ForeignTable:
    """Nested fields are absent, in another order or case, or floats."""
    table = ForeignTable(root, field("id", "long"), field("s", struct(field("x", "integer"), field("y", "integer"))))
    for number, fields in enumerate((("x", "y"), ("x",), ("y", "x"), ("X", "y"), ("x", "y", "z"))):
        values = [dict.fromkeys(fields, position) for position in range(ROWS)]
        kind = pa.struct([(name, pa.int32()) for name in fields])
        table.add(f"{number}.parquet", numbered({"s": pa.array(values, kind)}, number * ROWS))
    return table


def stated_types(root: Path) -> ForeignTable:
    """Files that state other types of Arrow for the same Parquet columns: a list of a fixed size, an extension, categories."""
    table = ForeignTable(
        root, field("id", "long"), field("n", "long"), field("l", array("long")), field("s", array("string"))
    )
    words = pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), pa.array(["a", "b", "a", "b", "a"]))
    usual = {"n": pa.array(range(ROWS)), "l": pa.array([[1, 2]] * ROWS), "s": words}
    categories = pa.ListArray.from_arrays(words.offsets, words.values.dictionary_encode())
    for number, columns in enumerate(
        (
            {},
            {"l": usual["l"].cast(pa.list_(pa.int64(), 2))},
            {"s": pa.array([["a"]] * ROWS, pa.list_(pa.field("element", pa.string(), metadata=UNKNOWN_TYPE)))},
            {"n": usual["n"].dictionary_encode(), "s": categories},
        )
    ):
        table.add(f"{number}.parquet", numbered({**usual, **columns}, number * ROWS))
    return table


def floats_in_a_struct(root: Path) -> ForeignTable:
    table = ForeignTable(root, field("id", "long"), field("s", struct(field("x", "double"))))
    table.add("a.parquet", numbered({"s": pa.array([{"x": value} for value in (1.0, math.nan, 2.0, -0.0, None)])}))
    return table


def evolved(root: Path) -> ForeignTable:
    """A file from before a column was added, and one from before a type was widened."""
    changes = [{"fromType": "integer", "toType": "long"}]
    table = ForeignTable(root, field("id", "long"), field("n", "integer"), features=["typeWidening"])
    table.add("0.parquet", numbered({"n": pa.array(range(ROWS), pa.int32())}))
    table.evolve(field("id", "long"), field("n", "long", **{"delta.typeChanges": changes}), field("added", "string"))
    table.add("1.parquet", numbered({"n": pa.array(range(ROWS), pa.int64()), "added": ["a"] * ROWS}, ROWS))
    table.add("2.parquet", numbered({"n": pa.array(range(ROWS), pa.int64())}, 2 * ROWS))
    return table


def other_types(root: Path) -> ForeignTable:
    """One file as expected, and files of writers that store other types."""
    table = ForeignTable(
        root, field("id", "long"), field("n", "integer"), field("t", "timestamp"), field("u", "timestamp_ntz"),
        field("s", "string"), field("b", "binary"), field("c", "decimal(10,2)"), features=["timestampNtz"],
    )  # fmt: skip
    moments = [_NOON, None, *[dt.datetime(2000, 1, day) for day in (1, 2, 3)]]
    usual = {
        "n": pa.array([1, 2, 3, 4, None], pa.int32()),
        "t": pa.array(moments, pa.timestamp("us", "UTC")),
        "u": pa.array(moments, pa.timestamp("us")),
        "s": pa.array(["a", "b", "", None, "é"]),
        "b": pa.array([b"a", b"\xff", b"", None, b"c"]),
        "c": pa.array([Decimal("1.50"), None, *[Decimal("2.25")] * 3], pa.decimal128(10, 2)),
    }
    variants: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({}, {"use_deprecated_int96_timestamps": True}),
        ({"t": usual["t"].cast(pa.timestamp("ms", "UTC"), safe=False)}, {}),
        ({"t": usual["t"].cast(pa.timestamp("ns", "UTC"))}, {"version": "2.6"}),
        ({"t": usual["u"]}, {}),
        ({"u": usual["t"]}, {}),
        ({"n": usual["n"].cast(pa.int16())}, {}),
        ({"n": usual["n"].cast(pa.uint16())}, {}),
        ({"s": usual["s"].cast(pa.binary())}, {}),
        ({"s": usual["s"].cast(pa.large_string())}, {}),
        ({"s": usual["s"].dictionary_encode()}, {}),
        ({"b": pa.array(["a", "b", "", None, "c"])}, {}),
        ({"c": pa.array([Decimal("1.5"), None, *[Decimal("2.5")] * 3], pa.decimal128(9, 1))}, {}),
        ({}, {"compression": "lz4"}),
        ({"t": pa.array(moments, pa.timestamp("us", "Europe/Berlin"))}, {}),
        ({"t": pa.array(moments, pa.timestamp("us", "+02:00"))}, {"coerce_timestamps": "us"}),
    ]
    for number, (columns, options) in enumerate(variants):
        target = root / f"{number}.parquet"
        stored_with(numbered({**usual, **columns}, number * ROWS), target, **options)
        table.register(target.name, size=target.stat().st_size)
    return table


def old_calendar(root: Path) -> ForeignTable:
    table = ForeignTable(root, field("id", "long"), field("d", "date"))
    days = numbered({"d": pa.array([dt.date(1500, 1, 1)] * ROWS)})
    table.add("a.parquet", days)
    spark = {"org.apache.spark.version": "2.4.5"}
    table.add("b.parquet", days.replace_schema_metadata(spark))
    return table


def partitioned(root: Path) -> ForeignTable:
    """Partition columns of every type, also null; a file has a column with the name of one."""
    kinds = {f"p{name[1:]}": kind for name, (kind, *_) in PRIMITIVES.items()}
    table = ForeignTable(
        root, field("p_int", "integer"), field("id", "long"), field("v", "string"),
        *(field(name, kind) for name, kind in kinds.items() if name != "p_int"),
        partitions=list(kinds), features=["timestampNtz"],
    )  # fmt: skip
    values: list[dict[str, str | None]] = [
        {
            "p_byte": "-1", "p_short": "2", "p_int": "3", "p_long": "4", "p_float": "NaN", "p_double": "-0.0", "p_bool": "true",
            "p_string": "a/b 'c'", "p_binary": "abc", "p_date": "2024-02-29", "p_timestamp": "2024-07-01 12:00:00.5",
            "p_ntz": "1582-10-14 01:02:03.000004", "p_dec4": "1.50", "p_dec18": "7", "p_dec38": "0.0000000001",
        },
        dict.fromkeys(kinds),
        {**dict.fromkeys(kinds), "p_int": "3", "p_timestamp": "2024-07-01T12:00:00.000000Z", "p_double": "NaN"},
    ]  # fmt: skip
    for number, row in enumerate(values):
        content = numbered({"v": [f"v{number}"] * ROWS}, number * ROWS)
        if number == 1:
            content = content.append_column("P_INT", pa.array([77] * ROWS)).append_column(
                "filename", pa.array(["f"] * ROWS)
            )
        table.add(f"p_int=5/{number}.parquet", content, values=row)
    return table


def with_vectors(root: Path) -> ForeignTable:
    """Every second file has a deleted row, over two partitions."""
    table = ForeignTable(
        root,
        field("id", "long"),
        field("p", "string"),
        field("v", "string"),
        partitions=["p"],
        features=["deletionVectors"],
    )
    for number in range(4):
        extra = VECTOR if number % 2 else {}
        content = numbered({"v": [f"v{number}"] * ROWS}, number * ROWS)
        table.add(f"{number}.parquet", content, values={"p": None if number == 2 else "x"}, **extra)
    return table


def mapped_by_name(root: Path) -> ForeignTable:
    """A column was renamed: its former name is now that of another one."""
    table = ForeignTable(
        root, mapped("id", "long", 1, "id"), mapped("b", "string", 2, "a"), mapped("a", "double", 3, "col-b"),
        mapped("P", "integer", 4, "col-p"), partitions=["P"], features=["columnMapping"], properties=BY_NAME,
    )  # fmt: skip
    for number in range(2):
        content = numbered({"a": [f"v{number}"] * ROWS, "col-b": [float(number)] * ROWS}, number * ROWS)
        table.add(f"{number}.parquet", content, values={"col-p": str(number)})
    return table


def mapped_by_id(root: Path) -> ForeignTable:
    properties = {**BY_NAME, "delta.columnMapping.mode": "id"}
    table = ForeignTable(root, mapped("id", "long", 1, "x"), features=["columnMapping"], properties=properties)
    kind = pa.schema([pa.field("other", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
    table.add("0.parquet", pa.table([pa.array(range(ROWS))], schema=kind))
    return table


def names_in_other_cases(root: Path) -> ForeignTable:
    table = ForeignTable(
        root, field("id", "long"), field("Name", "string"), field("select", "string"), field('q"x', "string")
    )
    for number, name in enumerate(("Name", "NAME")):
        table.add(
            f"{number}.parquet",
            numbered({name: ["a"] * ROWS, "select": ["b"] * ROWS, 'q"x': ["c"] * ROWS}, number * ROWS),
        )
    return table


def columns_of_duckdb(root: Path) -> ForeignTable:
    """Columns with the names of DuckDB's virtual columns."""
    table = ForeignTable(
        root, field("id", "long"), field("filename", "string"), field("file_row_number", "long"), field("p", "integer"),
        partitions=["p"],
    )  # fmt: skip
    for number in range(2):
        content = numbered({"filename": ["f"] * ROWS, "file_row_number": [7] * ROWS}, number * ROWS)
        table.add(f"{number}.parquet", content, values={"p": str(number)})
    return table


def char_column(root: Path) -> ForeignTable:
    table = ForeignTable(root, field("id", "long"), field("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"))
    table.add("0.parquet", numbered({"c": ["a", "abc", "", None, "é"]}))
    return table


def special_paths(root: Path) -> ForeignTable:
    table = ForeignTable(root, field("id", "long"))
    for number, name in enumerate(
        ("plain/a b%20,c=+@.parquet", "x*.parquet", "x[1].parquet", "q'.parquet", "w?.parquet")
    ):
        table.add(name, numbered({}, number * ROWS))
    return table


def not_null(root: Path) -> ForeignTable:
    """Required columns, columns whose footers count no nulls, and one without statistics."""
    table = ForeignTable(root, field("id", "long", nullable=False), field("v", "string", nullable=False))
    content = numbered({"v": ["a"] * ROWS})
    required = content.cast(pa.schema([pa.field(item.name, item.type, nullable=False) for item in content.schema]))
    for number, (rows, options) in enumerate(
        ((required, {"write_statistics": False}), (content, {}), (content, {"write_statistics": False}))
    ):
        target = root / f"{number}.parquet"
        stored_with(rows, target, **options)
        table.register(target.name, size=target.stat().st_size)
    return table


def empty_table(root: Path) -> ForeignTable:
    return ForeignTable(root, field("id", "long"), field("v", "string"))


def empty_files(root: Path) -> ForeignTable:
    table = ForeignTable(root, field("id", "long"), field("v", "string"))
    content = numbered({"v": ["a"] * ROWS})
    table.add("0.parquet", content.slice(0, 0))
    table.add("1.parquet", content)
    return table


CASES: dict[str, Case] = {
    "primitives": Case(
        build=primitives,
        native=5,
        conditions=(
            "c_double > 3", "c_float = 'nan'", "c_double = 0", "c_float < 0.2", "c_long > 5 AND c_dec4 < 0",
            "c_date < DATE '1900-01-01'",
            "c_timestamp > TIMESTAMPTZ '2000-01-01 00:00:00Z'", "c_ntz IS NULL", "c_string LIKE 'x%'", "c_bool",
            "c_binary = 'abc'::BLOB",
            "c_dec38 > 0", "c_byte IN (127, 1)",
        ),
        expressions=(
            _C("c_double") > 3, _C("c_float").is_nan(), _C("c_double") == 0, _C("c_float") < 0.2,
            (_C("c_long") > 5) & (_C("c_dec4") < 0), _C("c_date") < dt.date(1900, 1, 1),
            _C("c_timestamp") > dt.datetime(2000, 1, 1, tzinfo=dt.UTC), _C("c_ntz").is_null(),
            _C("c_ntz") >= dt.datetime(2000, 1, 1), _C("c_string").str.starts_with("x"), _C("c_bool"),
            _C("c_binary") == b"abc", _C("c_dec38") > 0, _C("c_dec18") == Decimal(-1), _C("c_byte").is_in([127, 1]),
            _C("c_short").is_between(0, 40000),
        ),
    ),
    "floats": Case(
        build=floats,
        native=3,
        conditions=(
            "d > 3", "f > 3", "d = 'nan'", "f >= 'nan'", "NOT d < 3", "d <> 1", "d = 0", "f = -0.0", "d > 100", "d IN (5, 'nan')",
            "isnan(f)", "d IS NULL", "d BETWEEN 1 AND 'inf'",
        ),
        expressions=(
            _C("d") > 3, _C("f") > 3, _C("d") == math.nan, _C("f") >= math.nan, ~(_C("d") < 3), _C("d") != 1, _C("d") == 0,
            _C("f") == -0.0, _C("d") > 100, _C("d").is_in([5.0, math.nan]), _C("f").is_nan(), _C("d").is_null(),
            _C("d").is_between(1, math.inf), _C("d") < _C("f"), _C("d").is_not_nan() & (_C("f") > 0.5),
        ),
    ),
    "nested": Case(build=nested, native=1, conditions=("s.x > 1", "l[1] = 2", "cardinality(m) = 2", "s.y IS NULL"),
        expressions=(_C("s").struct.field("x") > 1, _C("l").list.first() == 2, _C("s").struct.field("y").is_null()),
    ),
    "nested in other forms": Case(build=nested_in_other_forms, native=1, conditions=("s.x = 2", "s.y IS NULL"),
        expressions=(_C("s").struct.field("x") == 2, _C("s").struct.field("y").is_null()),
    ),
    "floats in a struct": Case(build=floats_in_a_struct, native=0, conditions=("s.x > 3",),
        expressions=(_C("s").struct.field("x") > 3,),
    ),
    "evolved": Case(build=evolved, native=1, conditions=("added IS NULL", "n > 2"),
        expressions=(_C("added").is_null(), _C("n") > 2),
    ),
    "other types": Case(build=other_types, native=5, conditions=("n = 3", "t IS NULL", "s = 'é'", "b = 'c'::BLOB", "c > 2"),
        expressions=(
            _C("n") == 3, _C("t").is_null(), _C("t") > dt.datetime(2001, 1, 1, tzinfo=dt.UTC), _C("s") == "é",
            _C("b") == b"c", _C("c") > 2,
        ),
    ),
    "stated types": Case(build=stated_types, native=2, conditions=("n = 3", "l[1] = 1", "s[1] = 'a'"),
        expressions=(_C("n") == 3, _C("l").list.first() == 1, _C("s").list.first() == "a"),
    ),
    "old calendar": Case(build=old_calendar, native=1, conditions=("d > DATE '1500-01-01'",),
        expressions=(_C("d") > dt.date(1500, 1, 1),),
    ),
    "partitioned": Case(
        build=partitioned,
        native=3,
        conditions=("p_int = 3", "p_int IS NULL", "p_double = 'nan'", "p_float > 1 AND v = 'v0'", "p_date = DATE '2024-02-29'"),
        expressions=(
            _C("p_int") == 3, _C("p_int").is_null(), _C("p_double") == math.nan, (_C("p_float") > 1) & (_C("v") == "v0"),
            (_C("p_float") > 1) | (_C("v") == "v1"), _C("p_date") == dt.date(2024, 2, 29),
            _C("p_string").str.len_chars() > 3, _C("p_bool"),
        ),
    ),
    "vectors": Case(build=with_vectors, native=2, conditions=("id = 5", "p IS NULL", "p = 'x' AND id > 7", "v = 'v1'"),
        expressions=(_C("id") == 5, _C("p").is_null(), (_C("p") == "x") & (_C("id") > 7), _C("v") == "v1"),
    ),
    "mapped by name": Case(build=mapped_by_name, native=2, conditions=("a > 0", "b = 'v1'", "P = 0"),
        expressions=(_C("a") > 0, _C("b") == "v1", _C("P") == 0),
    ),
    "mapped by id": Case(build=mapped_by_id, native=0),
    "names in other cases": Case(build=names_in_other_cases, native=1, conditions=("name = 'a'",),
        expressions=(_C("Name") == "a",),
    ),
    "columns of DuckDB": Case(build=columns_of_duckdb, native=2, conditions=("filename = 'f' AND p = 1",),
        expressions=((_C("filename") == "f") & (_C("p") == 1),),
    ),
    "char": Case(build=char_column, native=0, conditions=("c = 'a  '",),
        expressions=(_C("c") == "a ",),
    ),
    "special paths": Case(build=special_paths, native=1),
    "not null": Case(build=not_null, native=2),
    "empty table": Case(build=empty_table, native=0),
    "empty files": Case(build=empty_files, native=2, conditions=("id > 3",),
        expressions=(_C("id") > 3,),
    ),
}  # fmt: skip
