"""Rows of Arrow, and tables that they are written to: both engines must end in the same table."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
DAY, MOMENT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=dt.UTC)
NESTED = pa.struct([pa.field("n", pa.int32()), pa.field("texts", pa.list_(pa.string()))])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCase:
    """Rows, and the table as Spark's DDL text; partition columns and properties as for a new table."""

    name: str
    columns: str
    rows: pa.Table
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def _rows(**columns: pa.Array) -> pa.Table:
    return pa.table(columns)


EVERY_TYPE = _rows(
    i8=pa.array([1, -128, None], pa.int8()),
    i16=pa.array([1, 32767, None], pa.int16()),
    i32=pa.array([1, -(2**31), None], pa.int32()),
    i64=pa.array([1, 2**63 - 1, None], pa.int64()),
    f32=pa.array([1.5, -0.0, None], pa.float32()),
    f64=pa.array([1.5, INF, None], pa.float64()),
    flag=pa.array([True, False, None]),
    text=pa.array(["a", "ä" * 40, None]),
    data=pa.array([b"a", b"\x00\xff", None]),
    day=pa.array([DAY, dt.date(1, 1, 1), None]),
    moment=pa.array([MOMENT, dt.datetime(1969, 12, 31, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    local=pa.array([MOMENT.replace(tzinfo=None), dt.datetime(9999, 12, 31), None], pa.timestamp("us")),
    small=pa.array([Decimal("1.23"), Decimal("-9999999.99"), None], pa.decimal128(9, 2)),
    large=pa.array([Decimal("1." + "1" * 20), Decimal("-0.5").quantize(Decimal(1).scaleb(-20)), None], pa.decimal128(38, 20)),
    nested=pa.array([{"n": 1, "texts": ["x", None]}, {"n": None, "texts": []}, None], NESTED),
    items=pa.array([[{"n": 1, "texts": None}], [], None], pa.list_(NESTED)),
    pairs=pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
)  # fmt: skip
EVERY_COLUMN = (
    "i8 byte, i16 short, i32 int, i64 long, f32 float, f64 double, flag boolean, text string, data binary, day date, "
    "moment timestamp, local timestamp_ntz, small decimal(9,2), large decimal(38,20), nested struct<n:int,texts:array<string>>, "
    "items array<struct<n:int,texts:array<string>>>, pairs map<string,bigint>"
)
KEYED = _rows(
    id=pa.array(range(8), pa.int64()),
    p=pa.array(["a", "b", "", None, "a b", "x=y/z%", "ä" * 300, "a"]),
    q=pa.array([1, 1, None, 2, 2, 1, None, 1], pa.int32()),
)
KEYED_COLUMNS = "id long, p string, q int"
FORMS = _rows(
    id=pa.array([1, 2], pa.uint32()),
    text=pa.array(["a", "b"]).dictionary_encode(),
    large=pa.array(["a", None], pa.large_string()),
    view=pa.array(["a", None], pa.string_view()),
    items=pa.array([[1], None], pa.large_list(pa.int64())),
    fixed=pa.array([b"ab", None], pa.binary(2)),
    seconds=pa.array([0, None], pa.timestamp("s", "Europe/Berlin")),
    nanos=pa.array([1_000, None], pa.timestamp("ns")),
    half=pa.array([1.5, None], pa.float32()),
)
GENERATED = _rows(
    id=pa.array([1, -10, 2**62, None], pa.int64()),
    at=pa.array(
        [MOMENT, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), None, MOMENT], pa.timestamp("us", "UTC")
    ),
    local=pa.array(
        [dt.datetime(1969, 12, 31, 23), dt.datetime(9999, 12, 31), None, dt.datetime(1, 1, 1)], pa.timestamp("us")
    ),
    name=pa.array(["abc", "äb", "", None]),
    code=pa.array(["a", "bc", None, ""]),
)
GENERATED_COLUMNS = (
    "id bigint, at timestamp, local timestamp_ntz, name string, code char(3), "
    "p date GENERATED ALWAYS AS (CAST(at AS DATE)), start string GENERATED ALWAYS AS (substring(name, 1, 2)), "
    "y int GENERATED ALWAYS AS (year(local)), h bigint GENERATED ALWAYS AS (CAST(hour(at) AS BIGINT)), "
    "bucket bigint GENERATED ALWAYS AS (id % 3), "
    "label varchar(40) GENERATED ALWAYS AS (CASE WHEN id > 1 THEN concat(name, '-', CAST(id AS STRING)) ELSE 'none' END), "
    "short varchar(3) GENERATED ALWAYS AS (coalesce(substr(name, 3), 'z')), next bigint GENERATED ALWAYS AS (id + 1)"
)

CASES: Sequence[RowCase] = (
    RowCase(name="every-type", columns=EVERY_COLUMN, rows=EVERY_TYPE),
    RowCase(name="no-rows", columns=EVERY_COLUMN, rows=EVERY_TYPE.slice(0, 0)),
    RowCase(
        name="mapped", columns=EVERY_COLUMN, rows=EVERY_TYPE, properties={"delta.columnMapping.mode": "name"}
    ),
    RowCase(name="by-id", columns=EVERY_COLUMN, rows=EVERY_TYPE, properties={"delta.columnMapping.mode": "id"}),
    RowCase(name="partitioned", columns=KEYED_COLUMNS, rows=KEYED, partition_by=("p", "q")),
    RowCase(
        name="partitioned-and-mapped",
        columns=KEYED_COLUMNS,
        rows=KEYED,
        partition_by=("p",),
        properties={"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
    ),
    RowCase(
        name="partitioned-by-types",
        columns=EVERY_COLUMN,
        rows=EVERY_TYPE,
        partition_by=("day", "moment", "local", "small", "f64", "data", "flag"),
    ),
    RowCase(
        name="wider-types",
        columns="a long, b double, c double, d timestamp_ntz, e decimal(20,3), f decimal(12,4), g short, h string",
        rows=_rows(
            a=pa.array([1, None], pa.int32()),
            b=pa.array([1, None], pa.int32()),
            c=pa.array([1.5, None], pa.float32()),
            d=pa.array([DAY, None]),
            e=pa.array([7, None], pa.int32()),
            f=pa.array([Decimal("1.25"), None], pa.decimal128(6, 2)),
            g=pa.array([1, None], pa.uint8()),
            h=pa.nulls(2),
        ),
    ),
    RowCase(name="other-order", columns="a long, b struct<x:int,y:string>, c string", rows=_rows(
        C=pa.array(["x", None]), B=pa.array([{"Y": "y", "x": 1}, None], pa.struct([("Y", pa.string()), ("x", pa.int32())])),
    )),
    RowCase(
        name="other-forms",
        columns="id long, text string, large string, view string, items array<long>, fixed binary, seconds timestamp, "
        "nanos timestamp_ntz, half double",
        rows=FORMS,
    ),
    RowCase(name="not-a-number", columns="a double, b float, s struct<x:double>", rows=_rows(
        a=pa.array([1.0, NAN, None]), b=pa.array([-0.0, 0.0, 2.5], pa.float32()),
        s=pa.array([{"x": NAN}, {"x": 1.0}, None], pa.struct([("x", pa.float64())])),
    )),
    RowCase(
        name="few-statistics",
        columns=KEYED_COLUMNS,
        rows=KEYED,
        properties={"delta.dataSkippingNumIndexedCols": "1", "delta.parquet.compression.codec": "gzip"},
    ),
    RowCase(name="generated", columns=GENERATED_COLUMNS, rows=GENERATED, partition_by=("p", "start")),
    RowCase(
        name="generated-and-offered",
        columns=GENERATED_COLUMNS,
        rows=GENERATED.append_column("start", pa.array(["ab", "äb", None, None]))
        .append_column("bucket", pa.array([1, -1, 1, None], pa.int64())),
        partition_by=("start",),
        properties={"delta.columnMapping.mode": "name"},
    ),
    RowCase(
        name="computed-constraints",
        columns="id long, a int, s string, p string, at timestamp, st struct<x:int>",
        rows=_rows(
            id=pa.array([1, 2], pa.int64()), a=pa.array([5, None], pa.int32()), s=pa.array(["x", "äöü"]), p=pa.array(["q", "r"]),
            at=pa.array([MOMENT, MOMENT]), st=pa.array([{"x": 6}, {"x": 7}], pa.struct([("x", pa.int32())])),
        ),
        properties={
            "delta.constraints.sum": "id + coalesce(a, 0) > 0",
            "delta.constraints.length": "length(s) < 4 AND s <> p",
            "delta.constraints.nested": "st.x > id",
            "delta.constraints.case": "CASE WHEN a > 4 THEN s = 'x' ELSE id % 2 = 0 END",
        },
    ),
    RowCase(
        name="constraints",
        columns="id long NOT NULL, a int, s string, p string",
        rows=_rows(id=pa.array([1, 2], pa.int64()), a=pa.array([5, 6], pa.int32()), s=pa.array(["x", "y"]), p=pa.array(["q", "r"])),
        partition_by=("p",),
        properties={
            "delta.constraints.positive": "id > 0 AND a IS NOT NULL",
            "delta.constraints.listed": "s IN ('x', 'y') OR a < 3",
            "delta.constraints.parted": "p <> 'z'",
        },
    ),
    RowCase(
        name="lengths",
        columns="id long, c char(4), v varchar(3), p char(2)",
        rows=_rows(
            id=pa.array(range(5), pa.int64()),
            c=pa.array(["a", "ab  ", "abcd", "", None]),
            v=pa.array(["abc", "a  ", "ää", "", None]),
            p=pa.array(["a", "ab", "", " ", None]),
        ),
        partition_by=("p",),
    ),
    RowCase(
        name="required-parts",
        columns="id long, s struct<x:int NOT NULL,y:string>, a array<int>",
        rows=_rows(
            id=pa.array([1, 2], pa.int64()),
            s=pa.array([{"x": 1, "y": None}, {"x": 2, "y": "b"}], pa.struct([("x", pa.int32()), ("y", pa.string())])),
            a=pa.array([[1, None], None], pa.list_(pa.int32())),
        ),
    ),
    RowCase(name="a-void-column", columns="id long, nothing void", rows=_rows(id=pa.array([1, 2], pa.int64()))),
)  # fmt: skip
