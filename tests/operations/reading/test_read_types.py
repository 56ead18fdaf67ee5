"""What values and columns look like when a table of any writer is read through Spark."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator, In, Not, Predicate, raw_sql
from cm_delta_dagster.spark.session.errors import mapped as as_our_error
from tests.support.builders import rows_of
from tests.support.foreign import ForeignTable, array, field, mapped, mapping, struct

WIDENING = ["typeWidening"]


def stats(rows: int, **nulls: Any) -> dict[str, Any]:
    return {"numRecords": rows, "nullCount": nulls}


@pytest.mark.requirements("SCHEMA-9")
@pytest.mark.file_index
def test_not_null_is_kept_and_conditions_still_reach_the_files(spark: SparkSession, tmp_path: Path) -> None:
    """Where the statistics of every file prove it, Spark may know it."""
    inner = struct(field("x", "integer", nullable=False), field("y", "string"))
    table = ForeignTable(
        tmp_path, field("id", "long", nullable=False, comment="key"), field("s", inner, nullable=False, note=["a", "b"])
    )
    content = pa.table({"id": [1, 2], "s": pa.array([{"x": 1, "y": None}, {"x": 2, "y": "b"}])})
    table.add("f.parquet", content.cast(pa.schema({"id": pa.int64(), "s": pa.struct({"x": pa.int32(), "y": pa.string()})})),
              stats=stats(2, id=0, s={"x": 0, "y": 1}))  # fmt: skip
    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    assert rows_of(frame) == [(1, (1, None)), (2, (2, "b"))]
    assert "EqualTo(id,2)" in frame.where("id = 2")._jdf.queryExecution().executedPlan().toString()
    assert rows_of(frame.where("id = 2 AND s.x = 2").select("id")) == [(2,)]


EVERY_TYPE: dict[str, Any] = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,38)": pa.decimal128(38, 38),
    "decimal(5,0)": pa.decimal128(5, 0),
}
NESTED = {
    "list": (array("long", nullable=False), pa.list_(pa.int64()), [[1, None]]),
    "map": (mapping("string", "long", nullable=False), pa.map_(pa.string(), pa.int64()), [[("a", None)]]),
    "struct": (struct(field("x", "long", nullable=False)), pa.struct({"x": pa.int64()}), [{"x": None}]),
    "deep": (
        array(struct(field("x", array("long"), nullable=False)), nullable=False),
        pa.list_(pa.struct({"x": pa.list_(pa.int64())})),
        [[{"x": None}]],
    ),
}


@pytest.mark.requirements("SCHEMA-9")
def test_a_null_in_a_column_that_allows_none_is_an_error_and_never_another_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would compute with what lies in memory; of every type, at every depth."""
    columns = {name: (name, kind, [None]) for name, kind in EVERY_TYPE.items()} | NESTED
    fields = [field(f"c{i}", kind, nullable=name in NESTED) for i, (name, (kind, _, _)) in enumerate(columns.items())]
    table = ForeignTable(tmp_path, *fields, features=["timestampNtz"])
    arrays = [pa.array(values, kind) for _, kind, values in columns.values()]
    table.add("f.parquet", pa.table(arrays, names=[item["name"] for item in fields]))
    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    for item in fields:
        with pytest.raises(Exception, match=item["name"]) as raised:
            frame.select(item["name"]).collect()
        assert isinstance(as_our_error(raised.value, "reading"), InvalidDataError)


@pytest.mark.file_index
def test_promises_that_hold_without_statistics_cost_no_row(spark: SparkSession, tmp_path: Path) -> None:
    table = ForeignTable(
        tmp_path,
        field("id", "long", nullable=False),
        field("l", array("long", nullable=False), nullable=False),
        field("m", mapping("string", struct(field("x", "long", nullable=False)), nullable=False)),
        field("p", "string", nullable=False),
        partitions=["p"],
    )
    kind = pa.map_(pa.string(), pa.struct({"x": pa.int64()}))
    content = pa.table({"id": [1, 2], "l": [[1], []], "m": pa.array([[("a", {"x": 1})], None], kind)})
    table.add("p=a/f.parquet", content, values={"p": "a"})
    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    assert rows_of(frame) == [(1, [1], {"a": (1,)}, "a"), (2, [], None, "a")]
    assert "PartitionFilters: [" in (plan := frame.where("p = 'a'")._jdf.queryExecution().executedPlan().toString())
    assert "PartitionFilters: []" not in plan


WIDENINGS: list[tuple[str, str, pa.Array, Any]] = [
    ("byte", "short", pa.array([-128], pa.int8()), -128),
    ("byte", "integer", pa.array([127], pa.int8()), 127),
    ("byte", "long", pa.array([1], pa.int8()), 1),
    ("short", "integer", pa.array([-32768], pa.int16()), -32768),
    ("short", "long", pa.array([2], pa.int16()), 2),
    ("integer", "long", pa.array([-(2**31)], pa.int32()), -(2**31)),
    ("float", "double", pa.array([1.5], pa.float32()), 1.5),
    ("byte", "double", pa.array([3], pa.int8()), 3.0),
    ("short", "double", pa.array([3], pa.int16()), 3.0),
    ("integer", "double", pa.array([2**31 - 1], pa.int32()), float(2**31 - 1)),
    ("date", "timestamp_ntz", pa.array([dt.date(2020, 2, 29)]), dt.datetime(2020, 2, 29)),
    ("decimal(5,2)", "decimal(10,4)", pa.array([Decimal("1.25")], pa.decimal128(5, 2)), Decimal("1.2500")),
    ("decimal(18,2)", "decimal(38,10)", pa.array([Decimal("-1.25")], pa.decimal128(18, 2)), Decimal("-1.2500000000")),
    ("byte", "decimal(12,2)", pa.array([7], pa.int8()), Decimal("7.00")),
    ("short", "decimal(12,2)", pa.array([7], pa.int16()), Decimal("7.00")),
    ("integer", "decimal(12,2)", pa.array([7], pa.int32()), Decimal("7.00")),
    ("long", "decimal(22,2)", pa.array([2**62], pa.int64()), Decimal(2**62).quantize(Decimal("0.01"))),
]


@pytest.mark.requirements("UP-TW-5")
@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_files_with_a_narrower_type_are_read_in_the_wider_one(
    spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    """Every allowed change, at the top, in structs, in lists, and as values and keys of maps."""
    narrow: dict[str, pa.Array] = {}
    fields = []
    for number, (before, after, values, _) in enumerate(WIDENINGS):
        changes = [{"fromType": before, "toType": after}]
        inner = struct(field("v", after, **{"delta.typeChanges": changes}))
        fields += [
            field(f"t{number}", after, **{"delta.typeChanges": changes}),
            field(f"s{number}", inner),
            field(f"l{number}", array(after), **{"delta.typeChanges": [{**changes[0], "fieldPath": "element"}]}),
            field(
                f"m{number}", mapping("string", after), **{"delta.typeChanges": [{**changes[0], "fieldPath": "value"}]}
            ),
        ]
        value = values[0].as_py()
        narrow[f"t{number}"] = values
        narrow[f"s{number}"] = pa.array([{"v": value}], pa.struct({"v": values.type}))
        narrow[f"l{number}"] = pa.array([[value, None]], pa.list_(values.type))
        narrow[f"m{number}"] = pa.array([[("k", value)]], pa.map_(pa.string(), values.type))
    table = ForeignTable(tmp_path, *fields, features=[feature, "timestampNtz"])
    table.add("f.parquet", pa.table(narrow))
    row = read(open_scan(table.open()), spark=spark).collect()[0]
    for number, (before, after, _, value) in enumerate(WIDENINGS):
        found = (row[f"t{number}"], row[f"s{number}"].v, row[f"l{number}"][0], row[f"m{number}"]["k"])
        assert found == (value,) * 4, f"{before} -> {after}"
    wanted = read(
        open_scan(table.open(), where="t5 = -2147483648 AND t6 > 1.4 AND t9 < 3e9", columns=["t0"]), spark=spark
    )
    assert rows_of(wanted) == [(-128,)]


@pytest.mark.requirements("UP-TW-5", "PART-4")
def test_widened_partition_columns_are_read_from_their_old_texts(spark: SparkSession, tmp_path: Path) -> None:
    """In directories and out of them."""
    fields = [
        field("id", "long"),
        field("a", "long", **{"delta.typeChanges": [{"fromType": "byte", "toType": "long"}]}),
        field("b", "double", **{"delta.typeChanges": [{"fromType": "integer", "toType": "double"}]}),
        field("c", "decimal(12,4)", **{"delta.typeChanges": [{"fromType": "decimal(5,2)", "toType": "decimal(12,4)"}]}),
        field("d", "timestamp_ntz", **{"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz"}]}),
    ]
    table = ForeignTable(tmp_path, *fields, partitions=["a", "b", "c", "d"], features=[*WIDENING, "timestampNtz"])
    values = {"a": "7", "b": "3", "c": "1.25", "d": "2020-01-02"}
    table.add("a=7/b=3/c=1.25/d=2020-01-02/f.parquet", pa.table({"id": [1]}), values=values)
    table.add("f.parquet", pa.table({"id": [2]}), values=values)
    expected = (7, 3.0, Decimal("1.2500"), dt.datetime(2020, 1, 2))
    assert rows_of(read(open_scan(table.open()), spark=spark)) == [(1, *expected), (2, *expected)]
    assert (
        len(
            rows_of(
                read(open_scan(table.open(), where="a = 7 AND d = TIMESTAMP_NTZ'2020-01-02 00:00:00'"), spark=spark)
            )
        )
        == 2
    )


@pytest.mark.requirements("UP-VOID-1", "SCHEMA-11")
def test_void_columns_are_null_wherever_they_stand(spark: SparkSession, tmp_path: Path) -> None:
    """At the top, in structs, in structs of lists, and where nothing else is inside."""
    table = ForeignTable(
        tmp_path,
        field("v", "void"),
        field("s", struct(field("a", "void"), field("b", "long"))),
        field("l", array(struct(field("b", "long"), field("a", "void")))),
        field("only", struct(field("a", "void"))),
        field("id", "long"),
    )
    content = pa.table({"s": [{"b": 1}, None], "l": [[{"b": 2}], None], "id": [1, 2]})
    table.add("f.parquet", content)
    frame = read(open_scan(table.open()), spark=spark)
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [
        (None, (None, 1), [(2, None)], None, 1),
        (None, None, None, None, 2),
    ]
    assert json.loads(frame.schema.json()) == table.schema
    assert read(open_scan(table.open(), where="v IS NULL AND s.b = 1"), spark=spark).count() == 1


def test_blank_padded_columns_compare_as_char_does(spark: SparkSession, tmp_path: Path) -> None:
    """Values of char(5) have five characters, whether the file says so or not; varchar stays as it is."""
    key = "__CHAR_VARCHAR_TYPE_STRING"
    table = ForeignTable(
        tmp_path, field("c", "string", **{key: "char(5)"}), field("v", "string", **{key: "varchar(5)"})
    )
    table.add("f.parquet", pa.table({"c": ["ab", "ab   ", None], "v": ["ab", "cd ", None]}))
    frame = read(open_scan(table.open()), spark=spark)
    assert [tuple(row) for row in frame.collect()] == [("ab   ", "ab"), ("ab   ", "cd "), (None, None)]
    assert frame.where("v = 'ab'").count() == 1
    assert read(open_scan(table.open(), where="c = 'ab   '"), spark=spark).count() == 2


@pytest.mark.requirements("PQ-2")
def test_old_calendars_are_obeyed_where_a_file_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's marks of the hybrid calendar, INT96 and INT64, and 2-level lists of its legacy format."""
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.writeLegacyFormat": "true",
    }
    query = (
        "SELECT 1L id, DATE'1500-03-01' d, TIMESTAMP'1500-03-01 00:00:00Z' t, "
        "CAST(1.5 AS DECIMAL(9,2)) n, array(1, 2) l"
    )
    table = ForeignTable(
        tmp_path / "t",
        field("id", "long"),
        field("d", "date"),
        field("t", "timestamp"),
        field("n", "decimal(9,2)"),
        field("l", array("integer")),
    )
    for number, kind in enumerate(("INT96", "TIMESTAMP_MICROS")):
        for key, value in {**settings, "spark.sql.parquet.outputTimestampType": kind}.items():
            spark.conf.set(key, value)
        try:
            spark.sql(query).coalesce(1).write.parquet(f"{tmp_path}/out{number}")
        finally:
            for key in (*settings, "spark.sql.parquet.outputTimestampType"):
                spark.conf.unset(key)
        (written,) = (tmp_path / f"out{number}").glob("part-*.parquet")
        target = written.rename(tmp_path / "t" / f"f{number}.parquet")
        table.register(target.name, size=target.stat().st_size)
    frame = read(open_scan(table.open()), spark=spark).selectExpr("id", "d", "unix_micros(t)", "n", "l")
    micros = int((dt.datetime(1500, 3, 1) - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    assert rows_of(frame) == 2 * [(1, dt.date(1500, 3, 1), micros, Decimal("1.50"), [1, 2])]


NAN = float("nan")


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Comparison("f", ComparisonOperator.GT, 1.5), ["5.0", "nan", "nan"]),
        (Comparison("f", ComparisonOperator.NE, 5), ["-0.0", "0.0", "1.0", "nan", "nan"]),
        (Comparison("f", ComparisonOperator.EQ, 0.0), ["-0.0", "0.0"]),
        (Comparison("f", ComparisonOperator.LE, -0.0), ["-0.0", "0.0"]),
        (In("f", (0.0, NAN)), ["-0.0", "0.0", "nan", "nan"]),
        (Comparison("f", ComparisonOperator.EQ, NAN), ["nan", "nan"]),
        (Not(Comparison("f", ComparisonOperator.LT, 3.0)), ["5.0", "nan", "nan"]),
        (Comparison("f", ComparisonOperator.LT, 5.0), ["-0.0", "0.0", "1.0"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["double", "float"])
def test_no_rows_are_lost_where_files_omit_nan_and_the_sign_of_zero(
    spark: SparkSession, tmp_path: Path, kind: str, where: Predicate, expected: list[str]
) -> None:
    """Most writers leave NaN out of a file's bounds, and a dictionary holds only one of the two zeros."""
    table = ForeignTable(tmp_path, field("f", kind))
    for number, values in enumerate([[NAN, 1.0], [-0.0], [0.0], [5.0, NAN]]):
        table.add(f"{number}.parquet", pa.table({"f": pa.array(values, EVERY_TYPE[kind])}))
    by_spark = [row.f for row in read(open_scan(table.open(), where=where), spark=spark).collect()]
    by_arrow = read_arrow(open_scan(table.open(), where=where))["f"].to_pylist()
    assert sorted(map(str, by_spark)) == sorted(map(str, by_arrow)) == expected


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("{f} = double('NaN')", ["nan", "nan"]),
        ("{f} >= double('NaN') -- a comment", ["nan", "nan"]),
        ("{f} > CAST('3' AS DOUBLE)", ["5.0", "nan", "nan"]),
        ("{f} = abs(0)", ["-0.0", "0.0"]),
        ("{f} IN (int(0), 7) OR {f} = 5", ["-0.0", "0.0", "5.0"]),
        ("NOT {f} < double('1e0')", ["1.0", "5.0", "nan", "nan"]),
        ("{f} <=> abs(0)", ["-0.0", "0.0"]),
        ("{f} IN (SELECT double('NaN'))", ["nan", "nan"]),
        ("NOT ({f} = abs(0) OR {f} IS NULL)", ["1.0", "5.0", "nan", "nan"]),
    ],
)
@pytest.mark.parametrize("name", ["f", "s.f"])
def test_nor_does_it_in_a_condition_that_only_spark_understands(
    spark: SparkSession, tmp_path: Path, name: str, where: str, expected: list[str]
) -> None:
    """Spark folds the other side into a number, and would hand the comparison to its Parquet reader."""
    table = ForeignTable(tmp_path, field("f", "double"), field("s", struct(field("f", "double"))))
    for number, values in enumerate([[NAN, 1.0], [-0.0], [0.0, None], [5.0, NAN]]):
        table.add(f"{number}.parquet", pa.table({"f": values, "s": [{"f": value} for value in values]}))
    text = where.format(f=name)
    frame = read(open_scan(table.open(), where=raw_sql(text) if "SELECT" in text else text), spark=spark)
    assert sorted(str(row.f) for row in frame.select(name).collect()) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("c = 'b'", ["b  "]),
        ("c = 'b     '", ["b  "]),
        ("c > 'a'", ["b  "]),
        ("c <=> 'a'", ["a  "]),
        ("c IN ('a', 'x')", ["a  "]),
        ("c <> 'a'", ["b  "]),
        ("c LIKE 'b%'", ["b  "]),
        ("p = 'x' AND c >= 'a'", ["a  ", "b  "]),
    ],
)
def test_blanks_at_the_end_of_a_char_count_for_nothing(
    spark: SparkSession, tmp_path: Path, where: str, expected: list[str]
) -> None:
    width = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    table = ForeignTable(tmp_path, field("c", "string", **width), field("p", "string", **width), partitions=["p"])
    table.add("f.parquet", pa.table({"c": ["a", "b", None]}), values={"p": "x"})
    by_spark = [row.c for row in read(open_scan(table.open(), where=where), spark=spark).collect()]
    assert sorted(by_spark) == read_arrow(open_scan(table.open(), where=where))["c"].to_pylist() == expected


@pytest.mark.parametrize(
    ("where", "expected"), [("c LIKE 'a'", []), ("c NOT LIKE 'a'", ["a  ", "b  "]), ("c LIKE 'a  '", ["a  "])]
)
def test_like_sees_the_blanks_of_a_char(spark: SparkSession, tmp_path: Path, where: str, expected: list[str]) -> None:
    """LIKE compares the blanks, unlike "="; without Spark a shorter pattern is refused."""
    width = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    table = ForeignTable(tmp_path, field("c", "string", **width))
    table.add("f.parquet", pa.table({"c": ["a", "b", None]}))
    assert sorted(row.c for row in read(open_scan(table.open(), where=where), spark=spark).collect()) == expected
    if where == "c LIKE 'a  '":
        assert read_arrow(open_scan(table.open(), where=where))["c"].to_pylist() == expected
    else:
        with pytest.raises(InvalidArgumentError, match="only Spark"):
            read_arrow(open_scan(table.open(), where=where))


CHARS = "__CHAR_VARCHAR_TYPE_STRING"


@pytest.mark.parametrize("mapped_names", [False, True])
def test_char_inside_of_structs_arrays_and_maps_is_padded(
    spark: SparkSession, tmp_path: Path, mapped_names: bool
) -> None:
    """As delta-spark, at any depth; conditions are on the padded values, and nulls stay nulls."""
    number = iter(range(1, 20))

    def column(name: str, kind: Any, **more: Any) -> dict[str, Any]:
        return mapped(name, kind, next(number), f"x{name}", **more) if mapped_names else field(name, kind, **more)

    def stored(*names: str) -> list[str]:
        return [f"x{name}" if mapped_names else name for name in names]

    pair = struct(column("c", "string", nullable=False), column("v", "string"))
    table = ForeignTable(
        tmp_path,
        column("id", "long"),
        column("s", pair, **{CHARS: "struct<c:char(3),v:varchar(9)>"}),
        column("a", array("string"), **{CHARS: "array<char(3)>"}),
        column("m", mapping("string", pair), **{CHARS: "map<char(3),struct<c:char(3),v:varchar(9)>>"}),
        features=["columnMapping"] if mapped_names else [],
        properties={"delta.columnMapping.mode": "name"} if mapped_names else {},
    )
    inner = pa.struct([(name, pa.string()) for name in stored("c", "v")])
    first, second = stored("c", "v")
    columns = [
        [1, 2, 3],
        pa.array([{first: "x", second: "x"}, None, {first: "toolong", second: None}], inner),
        pa.array([["x", None, "abc"], None, []], pa.list_(pa.string())),
        pa.array([[("k", {first: "é", second: "w"})], None, [("kk", None)]], pa.map_(pa.string(), inner)),
    ]
    table.add("f.parquet", pa.table(columns, names=stored("id", "s", "a", "m")))
    opened = table.open()
    frame, arrow = read(open_scan(opened), spark=spark), read_arrow(open_scan(opened))
    expected = {
        "id": [1, 2, 3],
        "s": [{"c": "x  ", "v": "x"}, None, {"c": "toolong", "v": None}],
        "a": [["x  ", None, "abc"], None, []],
        "m": [[("k  ", {"c": "é  ", "v": "w"})], None, [("kk ", None)]],
    }
    assert arrow.to_pydict() == expected
    by_spark = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
    assert [row["s"] for row in by_spark] == expected["s"]
    assert [row["a"] for row in by_spark] == expected["a"]
    assert [row["m"] and list(row["m"].items()) for row in by_spark] == expected["m"]
    assert json.loads(frame.schema.json()) == table.schema
    for where, ids in (("s.c = 'x  '", [1]), ("s.c = 'x'", []), ("s.c > 'x '", [1])):
        assert read_arrow(open_scan(opened, where=where))["id"].to_pylist() == ids
        assert [row.id for row in read(open_scan(opened, where=where), spark=spark).collect()] == ids


@pytest.mark.requirements("SCHEMA-9")
def test_partition_columns_are_nullable_as_in_the_schema_at_every_version(spark: SparkSession, tmp_path: Path) -> None:
    """Wherever Spark gets their values from: directories, the log, or a join with many values."""
    table = ForeignTable(
        tmp_path,
        field("id", "long"),
        field("p", "string"),
        field("n", "integer", nullable=False),
        partitions=["p", "n"],
        features=["deletionVectors"],
    )
    content = pa.table({"id": [1]})
    table.add("p=a/n=1/f.parquet", content, values={"p": "a", "n": "1"})
    table.add("elsewhere.parquet", content, values={"p": "b", "n": "2"})
    table.add("null.parquet", content, values={"p": None, "n": "3"})
    for number in range(30):
        table.add(f"f{number}.parquet", content, values={"p": f"v{number}", "n": "4"})
    opened = table.open()
    for version in (0, 1, 2, 3, 33):
        frame = read(open_scan(opened, version=version), spark=spark)
        assert json.loads(frame.schema.json()) == table.schema
        assert frame.count() == version
        assert read_arrow(open_scan(opened, version=version)).schema.field("p").nullable
        assert not read_arrow(open_scan(opened, version=version)).schema.field("n").nullable
