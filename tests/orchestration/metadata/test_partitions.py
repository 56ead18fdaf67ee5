"""Partition keys as predicates and back."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.metadata.partitions import (
    PartitionSlice,
    keys_text,
    merge_intervals,
    partition_columns,
    partition_slice,
)
from cm_delta_dagster.protocol.predicates.predicates import And, Comparison, ComparisonOperator, In, Or
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA
from cm_delta_dagster.protocol.schema.types import STRING, DataType, DecimalType, PrimitiveType, StructField, StructType

GE, LT, EQ = ComparisonOperator.GE, ComparisonOperator.LT, ComparisonOperator.EQ


def schema_of(**types: str | DataType) -> StructType:
    fields = [StructField(name, PrimitiveType(kind) if isinstance(kind, str) else kind) for name, kind in types.items()]
    return StructType(tuple(fields))


def between(column: str, start: date, end: date) -> And:
    return And((Comparison(column, GE, start), Comparison(column, LT, end)))


def slice_for(definition: dg.PartitionsDefinition[Any], keys: Sequence[str], kind: str | DataType) -> PartitionSlice:
    return partition_slice(definition, keys=keys, partition_expr={"": "p"}, schema=schema_of(p=kind))


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("string", "a", "a"),
        ("string", "01", "01"),
        ("integer", "1", 1),
        ("long", "-7", -7),
        ("date", "2026-02-28", date(2026, 2, 28)),
        ("boolean", "true", True),
        (DecimalType(5, 2), "1.50", Decimal("1.50")),
        ("timestamp_ntz", "2026-02-28T01:00:00", datetime(2026, 2, 28, 1)),
        ("timestamp", "2026-02-28T01:00:00+00:00", datetime(2026, 2, 28, 1, tzinfo=UTC)),
    ],
)
def test_a_static_key_takes_the_type_of_its_column(kind: Any, key: str, value: Any) -> None:
    found = slice_for(dg.StaticPartitionsDefinition([key]), [key], kind)
    assert found.where == Comparison("p", EQ, value)
    assert found.key_of({"p": value}) == key


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("integer", "one"),
        ("integer", "01"),
        ("byte", "128"),
        ("date", "2026-13-01"),
        ("boolean", "yes"),
        ("timestamp", "2026-02-28T01:00:00"),
        (DecimalType(3, 1), "1.25"),
        (DecimalType(3, 1), "100"),
        ("double", "1.5"),
        ("binary", "x"),
    ],
)
def test_a_key_without_an_exact_value_in_the_type_of_its_column_is_refused(kind: Any, key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="p"):
        slice_for(dg.StaticPartitionsDefinition([key]), [key], kind)


def test_several_static_keys_become_one_list() -> None:
    found = slice_for(dg.StaticPartitionsDefinition(list("abcd")), ["a", "d"], "string")
    assert found.where == In("p", ("a", "d"))
    assert found.key_of({"p": "b"}) is None


def test_no_key_matches_no_row() -> None:
    assert slice_for(dg.StaticPartitionsDefinition(["a"]), [], "string").where == Or(())


def test_adjacent_intervals_are_joined_and_others_are_not() -> None:
    assert merge_intervals([(3, 4), (1, 2), (2, 3), (6, 7)]) == [(1, 4), (6, 7)]


@pytest.mark.parametrize(
    ("definition", "keys", "kind", "expected"),
    [
        (
            dg.HourlyPartitionsDefinition("2026-01-01-00:00"),
            ["2026-01-01-01:00"],
            "timestamp",
            between("p", datetime(2026, 1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=UTC)),
        ),
        (
            dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone="Europe/Berlin"),
            ["2026-01-01-01:00"],
            "timestamp",
            between("p", datetime(2026, 1, 1, 0, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)),
        ),
        (
            dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone="Europe/Berlin"),
            ["2026-01-01-01:00"],
            "timestamp_ntz",
            between("p", datetime(2026, 1, 1, 1), datetime(2026, 1, 1, 2)),
        ),
        (
            dg.DailyPartitionsDefinition("01.01.2026", fmt="%d.%m.%Y"),
            ["03.01.2026", "02.01.2026"],
            "date",
            between("p", date(2026, 1, 2), date(2026, 1, 4)),
        ),
        (
            dg.WeeklyPartitionsDefinition("2026-01-04"),
            ["2026-01-11"],
            "date",
            between("p", date(2026, 1, 11), date(2026, 1, 18)),
        ),
        (
            dg.MonthlyPartitionsDefinition("2026-01-01"),
            ["2026-01-01", "2026-03-01"],
            "date",
            Or((between("p", date(2026, 1, 1), date(2026, 2, 1)), between("p", date(2026, 3, 1), date(2026, 4, 1)))),
        ),
        (dg.DailyPartitionsDefinition("2026-01-01"), ["2026-01-02"], "string", Comparison("p", EQ, "2026-01-02")),
        (
            dg.DailyPartitionsDefinition("20260101", fmt="%Y%m%d"),
            ["20260102"],
            "integer",
            Comparison("p", EQ, 20260102),
        ),
    ],
)
def test_time_windows_follow_format_zone_and_column_type(
    definition: Any, keys: list[Any], kind: str, expected: Any
) -> None:
    assert slice_for(definition, keys, kind).where == expected


@pytest.mark.parametrize(
    ("definition", "key", "kind"),
    [
        (dg.HourlyPartitionsDefinition("2026-01-01-00:00"), "2026-01-01-01:00", "date"),
        (dg.DailyPartitionsDefinition("2026-01-01", hour_offset=5), "2026-01-02", "date"),
        (dg.DailyPartitionsDefinition("2026-01-01"), "2026-01-02", "integer"),
        (dg.DailyPartitionsDefinition("2026-01-01"), "2026-01-02", "double"),
        (dg.DailyPartitionsDefinition("2026-01-01"), "not a day", "date"),
        (dg.WeeklyPartitionsDefinition("2026-01-04"), "2026-01-13", "date"),
    ],
)
def test_a_window_that_the_column_cannot_hold_is_refused(definition: Any, key: str, kind: str) -> None:
    with pytest.raises(InvalidArgumentError):
        slice_for(definition, [key], kind)


def test_the_repeated_hour_of_a_time_zone_is_exact_in_a_timestamp_and_refused_without_a_zone() -> None:
    hourly = dg.HourlyPartitionsDefinition("2026-10-01-00:00", timezone="Europe/Berlin")
    keys = [
        key
        for key in hourly.get_partition_keys(datetime(2026, 10, 25, 12, tzinfo=UTC))
        if key.startswith("2026-10-25-02")
    ]
    assert len(keys) == 2
    first, second = (slice_for(hourly, [key], "timestamp").where for key in keys)
    assert first == between("p", datetime(2026, 10, 25, 0, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC))
    assert second == between("p", datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC))
    for key in keys:
        with pytest.raises(InvalidArgumentError, match="repeat"):
            slice_for(hourly, [key], "timestamp_ntz")


def test_a_day_begins_at_its_first_instant_even_where_midnight_is_skipped() -> None:
    daily = dg.DailyPartitionsDefinition("2018-11-01", timezone="America/Sao_Paulo")
    expected = between("p", date(2018, 11, 4), date(2018, 11, 5))
    assert slice_for(daily, ["2018-11-04"], "date").where == expected


def multi(region_keys: Sequence[str] = ("eu", "us")) -> dg.MultiPartitionsDefinition:
    return dg.MultiPartitionsDefinition(
        {"day": dg.DailyPartitionsDefinition("2026-01-01"), "region": dg.StaticPartitionsDefinition(list(region_keys))}
    )


def test_a_product_of_dimensions_is_one_conjunction() -> None:
    keys = [f"2026-01-0{day}|{region}" for day in (1, 2) for region in ("eu", "us")]
    found = partition_slice(
        multi(), keys=keys, partition_expr={"day": "d", "region": "r"}, schema=schema_of(d="date", r="string")
    )
    assert found.where == And((between("d", date(2026, 1, 1), date(2026, 1, 3)), In("r", ("eu", "us"))))
    assert found.key_of({"d": date(2026, 1, 2), "r": "us"}) == "2026-01-02|us"


def test_keys_of_dimensions_with_holes_match_only_their_own_combinations() -> None:
    found = partition_slice(
        multi(),
        keys=["2026-01-01|eu", "2026-01-02|us"],
        partition_expr={"day": "d", "region": "r"},
        schema=schema_of(d="date", r="string"),
    )
    assert found.where == Or(
        (
            And((between("d", date(2026, 1, 1), date(2026, 1, 2)), Comparison("r", EQ, "eu"))),
            And((between("d", date(2026, 1, 2), date(2026, 1, 3)), Comparison("r", EQ, "us"))),
        )
    )
    assert found.key_of({"d": date(2026, 1, 1), "r": "us"}) is None


def test_a_dynamic_dimension_needs_no_instance() -> None:
    definition = dg.MultiPartitionsDefinition(
        {"tenant": dg.DynamicPartitionsDefinition(name="tenants"), "n": dg.StaticPartitionsDefinition(["1", "2"])}
    )
    found = partition_slice(
        definition,
        keys=[dg.MultiPartitionKey({"tenant": "acme", "n": "1"})],
        partition_expr={"tenant": "t", "n": "n"},
        schema=schema_of(t="string", n="integer"),
    )
    assert found.where == And((Comparison("n", EQ, 1), Comparison("t", EQ, "acme")))


@pytest.mark.parametrize("expression", [{"": "d"}, {"day": "d"}, {"day": "d", "region": "r", "x": "y"}])
def test_every_dimension_needs_its_own_column(expression: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="day, region"):
        partition_slice(multi(), keys=[], partition_expr=expression, schema=schema_of(d="date", r="string"))


def test_an_unknown_column_is_named_with_those_that_exist() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'q'.*Columns: p"):
        partition_slice(
            dg.StaticPartitionsDefinition(["a"]), keys=["a"], partition_expr={"": "q"}, schema=schema_of(p="string")
        )


def test_a_new_table_is_not_partitioned_by_instants() -> None:
    hourly = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    assert partition_columns(hourly, partition_expr={"": "P"}, schema=schema_of(p="timestamp")) == ()
    daily = dg.DailyPartitionsDefinition("2026-01-01")
    assert partition_columns(daily, partition_expr={"": "P"}, schema=schema_of(p="date")) == ("p",)
    assert partition_columns(None, partition_expr={}, schema=schema_of(p="date")) == ()


def test_the_text_of_many_keys_stays_short() -> None:
    assert keys_text(["a", "b"]) == "a,b"
    many = [f"key-{number}" for number in range(1000)]
    assert keys_text(many) == "key-0...key-999 (1000 keys)"


def test_keys_of_a_char_column_are_values_with_blanks() -> None:
    """Keys that are one value, and keys that are too long for the column, are refused."""
    schema = StructType((StructField("p", STRING, metadata={CHAR_METADATA: "char(3)"}),))
    keys = dg.StaticPartitionsDefinition(["a", "b"])
    found = partition_slice(keys, keys=["a"], partition_expr={"": "p"}, schema=schema)
    assert found.where == Comparison("p", EQ, "a  ")
    assert [found.key_of({"p": value}) for value in ("a  ", "a", "b  ")] == ["a", "a", None]
    with pytest.raises(InvalidArgumentError, match="same value of the column p"):
        partition_slice(dg.StaticPartitionsDefinition(["a", "a "]), keys=["a"], partition_expr={"": "p"}, schema=schema)
    for declared in ("char(3)", "varchar(3)"):
        schema = StructType((StructField("p", STRING, metadata={CHAR_METADATA: declared}),))
        with pytest.raises(InvalidArgumentError, match=re.escape(f"not the usual text of a {declared}")):
            partition_slice(
                dg.StaticPartitionsDefinition(["abcd"]), keys=["abcd"], partition_expr={"": "p"}, schema=schema
            )
