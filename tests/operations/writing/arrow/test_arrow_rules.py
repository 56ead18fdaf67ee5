"""Rules and computed columns of a table for rows of Arrow: as by Spark, without it where its value is certain."""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    InvalidDataError,
    SchemaMismatchError,
)
from cm_delta_dagster.storage.local_store import local_path
from tests.support.arrow_cases import NAN
from tests.support.arrow_engines import sorted_rows

RULES = {
    "constraint": "id bigint, v string",
    "default": "id bigint, v string DEFAULT upper('a')",
    "generated": "id bigint, v bigint GENERATED ALWAYS AS (abs(id) + 1)",
    "length": "id bigint, v array<varchar(3)>",
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_only_spark_can_apply_are_applied_by_it_or_refused(
    lake: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    table = lake.create_table("main.test.t", RULES[rule])
    if rule == "constraint":
        table.alter.add_constraint("positive", "abs(id) > 0")
    table.append(pa.table({"id": [1, 2]}))
    row = table.to_arrow().sort_by("id").to_pylist()[0]
    assert row == {"id": 1, "v": {"default": "A", "generated": 2}.get(rule)}
    files = sum(1 for _ in Path(local_path(table.location)).rglob("*.parquet"))
    monkeypatch.setattr("cm_delta_dagster.api.session.running_session", lambda: None)
    with connect(f"sqlite:///{tmp_path}/catalog.db") as without_spark:
        with pytest.raises(
            InvalidArgumentError,
            match=r"need Spark, because .*(generated|default|limited length|CHECK constraint).*no Spark session runs",
        ):
            without_spark.table("main.test.t").append(pa.table({"id": [3]}))
        assert without_spark.table("main.test.t").snapshot().version == table.snapshot().version
    assert sum(1 for _ in Path(local_path(table.location)).rglob("*.parquet")) == files


BROKEN: Mapping[str, tuple[str, Mapping[str, str], pa.Table, type[CmDeltaError]]] = {
    "a constraint": (
        "id bigint, v string",
        {"delta.constraints.positive": "id > 0"},
        pa.table({"id": [1, 0], "v": ["a", "b"]}),
        InvalidDataError,
    ),
    "NULL in a constraint": (
        "id bigint, v string",
        {"delta.constraints.listed": "v IN ('a', 'b') AND id < 5"},
        pa.table({"id": [1, 2], "v": ["a", None]}),
        InvalidDataError,
    ),
    "a nested field": (
        "id bigint, s struct<x:int>",
        {"delta.constraints.nested": "s.x > 1"},
        pa.table({"id": [1], "s": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))}),
        InvalidDataError,
    ),
    "a constraint over columns": (
        "id bigint, v bigint",
        {"delta.constraints.later": "v >= id + 1"},
        pa.table({"id": [1, 2], "v": [2, 2]}),
        InvalidDataError,
    ),
    "a generated column": (
        "id bigint, v bigint GENERATED ALWAYS AS (id + 1), w string GENERATED ALWAYS AS (CAST(id AS STRING))",
        {},
        pa.table({"id": [1, 2], "v": [2, None]}),
        InvalidDataError,
    ),
    "rows without the source of a generated column": (
        "id bigint, v bigint GENERATED ALWAYS AS (id + 1), w int",
        {},
        pa.table({"w": pa.array([1], pa.int32())}),
        SchemaMismatchError,
    ),
    "a length": ("id bigint, v varchar(2)", {}, pa.table({"id": [1], "v": ["äää"]}), InvalidDataError),
    "blanks": ("id bigint, v char(2)", {}, pa.table({"id": [1], "v": ["a  "]}), InvalidDataError),
    "NOT NULL": (
        "id bigint NOT NULL, v string",
        {},
        pa.table({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]}),
        InvalidDataError,
    ),
    "NOT NULL in a struct": (
        "id bigint, s struct<x:int NOT NULL>",
        {},
        pa.table({"id": [1, 2], "s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))}),
        InvalidDataError,
    ),
    "given identity values": (
        "id bigint GENERATED ALWAYS AS IDENTITY, v string",
        {},
        pa.table({"id": [1], "v": ["a"]}),
        InvalidArgumentError,
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_both_engines_refuse_a_row_with_the_same_text(
    lake: Connection, spark: SparkSession, no_spark: None, case: str
) -> None:
    columns, properties, rows, kind = BROKEN[case]
    table = lake.create_table("main.test.t", columns, properties=dict(properties))
    frame = spark.createDataFrame(rows).coalesce(1)
    messages = []
    for offered in (rows, frame):
        with pytest.raises(kind) as caught:
            table.append(offered)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert not list(Path(local_path(table.location)).rglob("*.parquet"))


DEFAULTS: Mapping[str, tuple[str, Any]] = {
    "v tinyint": ("-128", -128),
    "v int": ("7", 7),
    "v bigint": ("9223372036854775807", 2**63 - 1),
    "v decimal(6,2)": ("1.5", Decimal("1.50")),
    "v double": ("1.5", 1.5),
    "v double ": ("-0.0D", -0.0),
    "v boolean": ("true", True),
    "v string": ("'it''s'", "it's"),
    "v varchar(3)": ("'abc'", "abc"),
    "v char(4)": ("'ab'", "ab  "),
    "v date": ("DATE '2024-02-29'", dt.date(2024, 2, 29)),
    "v timestamp": ("TIMESTAMP '2024-02-29 12:00:00Z'", dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)),
    "v bigint ": ("NULL", None),
}


@pytest.mark.parametrize("column", DEFAULTS)
@pytest.mark.usefixtures("no_spark")
def test_a_missing_column_gets_its_literal_default(lake: Connection, spark: SparkSession, column: str) -> None:
    text, value = DEFAULTS[column]
    table = lake.create_table("main.test.t", f"id bigint, {column} DEFAULT {text}")
    table.append(pa.table({"id": [1]}))
    table.append(spark.createDataFrame([(2,)], "id bigint"))
    table.append(pa.table({"id": [3], "v": pa.nulls(1)}))
    stored = table.to_arrow().sort_by("id")["v"].to_pylist()
    assert stored == [value, value, None] and list(map(str, stored[:2])) == [str(value)] * 2, "-0.0 equals 0.0"


@pytest.mark.usefixtures("no_spark")
def test_the_current_time_is_a_default(lake: Connection) -> None:
    table = lake.create_table("main.test.t", "id bigint, at timestamp DEFAULT current_timestamp()")
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    table.append(pa.table({"id": [1]}))
    (at,) = table.to_arrow()["at"].to_pylist()
    assert before <= at <= dt.datetime.now(dt.UTC)


@pytest.mark.usefixtures("no_spark")
def test_rows_are_numbered_by_both_engines(lake: Connection, spark: SparkSession) -> None:
    columns = (
        "id bigint GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY -5), "
        "k bigint GENERATED BY DEFAULT AS IDENTITY, v string"
    )
    table = lake.create_table("main.test.t", columns)
    table.append(pa.table({"v": ["a", "b"]}))
    assert [table.schema().field(name).metadata["delta.identity.highWaterMark"] for name in ("id", "k")] == [5, 2]
    table.append(spark.createDataFrame([("c",)], "v string").coalesce(1))
    table.append(pa.table({"v": ["d"], "k": [100]}))
    table.append(pa.table({"v": ["e"]}))
    rows = table.to_arrow().sort_by("v").to_pylist()
    assert [(row["v"], row["id"]) for row in rows] == [("a", 10), ("b", 5), ("c", 0), ("d", -5), ("e", -10)]
    assert [row["k"] for row in rows] == [1, 2, 3, 100, 4]


@pytest.mark.usefixtures("no_spark")
def test_a_used_up_identity_column_is_an_error(lake: Connection) -> None:
    table = lake.create_table(
        "main.test.t", "id bigint GENERATED ALWAYS AS IDENTITY (START WITH 9223372036854775806), v int"
    )
    table.append([{"v": 1}, {"v": 2}])
    for rows in ([{"v": 3}], [{"v": 3}, {"v": 4}]):
        with pytest.raises(InvalidDataError, match="used all 64-bit values"):
            table.append(rows)
    assert table.scan().count() == 2


@pytest.mark.usefixtures("no_spark")
def test_a_number_that_is_too_large_for_an_expression_is_an_error(lake: Connection) -> None:
    table = lake.create_table("main.test.t", "id bigint, v bigint GENERATED ALWAYS AS (id + 1)")
    table.alter.add_constraint("double", "id * 2 > 0")
    for number, rule in ((2**63 - 1, "generated column 'v'"), (2**62, "CHECK constraint 'double'")):
        with pytest.raises(InvalidDataError, match=f"values of which the {rule}.* cannot be computed: overflow"):
            table.append([{"id": number}])
    table.append([{"id": 1}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 2}]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(("zone", "day"), [(None, 1), ("UTC", 1), ("Europe/Berlin", 2), ("+02:30", 2)])
def test_dates_are_those_of_the_zone_of_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str | None, day: int
) -> None:
    monkeypatch.setattr("cm_delta_dagster.operations.writing.rows.running_session", lambda: None)
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", time_zone=zone) as lake:
        table = lake.create_table("main.test.t", "at timestamp, day date GENERATED ALWAYS AS (CAST(at AS DATE))")
        table.append([{"at": dt.datetime(2024, 6, 1, 23, tzinfo=dt.UTC)}])
        assert table.to_arrow()["day"].to_pylist() == [dt.date(2024, 6, day)]


@pytest.mark.usefixtures("no_spark")
def test_dates_are_those_of_the_zone_of_a_session_that_runs(lake: Connection, spark: SparkSession) -> None:
    """As Spark computes them, so that both engines store the same."""
    table = lake.create_table("main.test.t", "id int, at timestamp, day date GENERATED ALWAYS AS (CAST(at AS DATE))")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = pa.table({"id": pa.array([1], pa.int32()), "at": [dt.datetime(2024, 6, 1, 23, tzinfo=dt.UTC)]})
        table.append(rows)
        table.append(spark.createDataFrame(rows))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert table.to_arrow()["day"].to_pylist() == [dt.date(2024, 6, 2)] * 2


@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_the_caller_chooses_what_writes_rows_of_either_kind(lake: Connection, spark: SparkSession, engine: str) -> None:
    rows = pa.table({"id": [1, 2], "v": ["a", None]})
    frame = spark.createDataFrame(rows)
    table = lake.create_table_as("main.test.t", rows, engine=engine)
    table.append(frame, engine=engine)
    table.overwrite(rows, engine=engine)
    table.append(frame, engine=engine)
    assert sorted_rows(table.to_arrow()) == sorted_rows(pa.concat_tables([rows, rows]))
    writers = [entry.commit_info.engine_info for entry in table.history() if entry.commit_info is not None]
    assert len(writers) == 4
    assert all(writer is not None and writer.endswith(f" ({engine})") for writer in writers), writers


def test_rows_decide_what_writes_them_if_the_caller_does_not(lake: Connection, spark: SparkSession) -> None:
    rows = pa.table({"id": [1]})
    table = lake.create_table_as("main.test.t", rows)
    table.append(spark.createDataFrame(rows))
    table.delete("id = 5")
    table.alter.set_properties({"a.b": "c"})
    writers = [entry.commit_info.engine_info for entry in table.history() if entry.commit_info is not None]
    assert [str(writer).partition(" ")[2] for writer in writers] == ["", "(spark)", "(arrow)"]


def test_an_engine_that_cannot_write_the_rows_is_an_error(
    lake: Connection, spark: SparkSession, tmp_path: Path
) -> None:
    table = lake.create_table("main.test.t", "id bigint, v bigint GENERATED ALWAYS AS (abs(id))")
    for rows in (pa.table({"id": [1]}), spark.range(1)):
        with pytest.raises(InvalidArgumentError, match=r"evaluates the generated column 'v' .*, and Arrow was chosen"):
            table.append(rows, engine="arrow")
    with pytest.raises(InvalidArgumentError, match=r"evaluates the generated column 'v' .* and Arrow was chosen"):
        table.overwrite(pa.table({"id": [1]}), keys="id", engine="arrow")
    with pytest.raises(InvalidArgumentError, match="engine"):
        table.append(pa.table({"id": [1]}), engine="duckdb")
    assert table.snapshot().version == 0


@pytest.mark.usefixtures("no_spark")
def test_nan_is_equal_to_nan_in_a_generated_column(lake: Connection) -> None:
    table = lake.create_table("main.test.t", "f double, g double GENERATED ALWAYS AS (f)")
    rows = {"f": pa.array([NAN, -0.0, 1.0, None]), "g": pa.array([NAN, 0.0, 1.0, None])}
    table.append(pa.table(rows))
    for value in (1.0, None):
        with pytest.raises(InvalidDataError, match="generated column 'g' that is not that of its expression"):
            table.append(pa.table({"f": [NAN], "g": pa.array([value], pa.float64())}))
    assert table.scan().count() == 4


def test_a_generated_column_of_structs_is_left_to_spark(lake: Connection) -> None:
    table = lake.create_table("main.test.t", "f struct<a:int>, g struct<a:int> GENERATED ALWAYS AS (f)")
    values = pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))
    table.append(pa.table({"f": values, "g": values}))
    assert table.scan().count() == 2
    with pytest.raises(InvalidArgumentError, match=r"generated column 'g' .*, and Arrow was chosen"):
        table.append(pa.table({"f": values, "g": values}), engine="arrow")
