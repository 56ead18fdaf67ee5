"""Partition values of the log as partition keys of an asset."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.orchestration.sensor.changed_partitions import AssetParts, PartitionFinder, WatchedAsset

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-02-01-00:00")
BERLIN = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-02-01-00:00", timezone="Europe/Berlin")


def parts_of(
    definition: dg.PartitionsDefinition[Any] | None,
    changed: Sequence[Mapping[str, str | None]] | None,
    instance: dg.DagsterInstance,
    expr: Mapping[str, str] | None = None,
) -> AssetParts:
    asset = WatchedAsset(key=dg.AssetKey("t"), partitions=definition, partition_expr=expr or {"": "p"})
    return PartitionFinder(asset, instance).parts_of(changed)


def key_of(definition: dg.PartitionsDefinition[Any], text: str | None, instance: dg.DagsterInstance) -> str | None:
    found = parts_of(definition, [{"p": text}], instance)
    assert (found.unknown is None) == (len(found.keys) == 1)
    return found.keys[0] if found.keys else None


@pytest.mark.parametrize(
    ("keys", "text", "expected"),
    [
        (["a", "b"], "b", "b"),
        (["a", "b"], "c", None),
        (["1", "2"], "2", "2"),
        (["true", "false"], "true", "true"),
        (["2026-01-02"], "2026-01-02", "2026-01-02"),
        (["1.5", "2"], "1.50", "1.5"),
        (["1.0", "1.00"], "1.000", None),
        (["2026-01-02T03:00:00+01:00"], "2026-01-02T02:00:00.000000Z", "2026-01-02T03:00:00+01:00"),
        (["2026-01-02T03:00:00"], "2026-01-02 03:00:00", "2026-01-02T03:00:00"),
        (["nan", "1"], "NaN", None),
        (["a"], None, None),
    ],
)
def test_a_static_key_is_the_text_or_the_same_number_or_instant(
    instance: dg.DagsterInstance, keys: list[Any], text: str | None, expected: str | None
) -> None:
    assert key_of(dg.StaticPartitionsDefinition(keys), text, instance) == expected


@pytest.mark.parametrize(
    ("definition", "text", "expected"),
    [
        (DAYS, "2026-01-31", "2026-01-31"),
        (DAYS, "2026-02-01", None),
        (DAYS, "2025-12-31", None),
        (DAYS, "2026-13-01", None),
        (DAYS, "x", None),
        (DAYS, "2026-01-05T23:59:59.999999Z", "2026-01-05"),
        (dg.DailyPartitionsDefinition("01.01.2026", fmt="%d.%m.%Y"), "2026-01-03", "03.01.2026"),
        (dg.DailyPartitionsDefinition("01.01.2026", fmt="%d.%m.%Y"), "03.01.2026", "03.01.2026"),
        (dg.DailyPartitionsDefinition("20260101", fmt="%Y%m%d"), "20260103", "20260103"),
        # A date that is also the text of another key is ambiguous.
        (dg.DailyPartitionsDefinition("2026-01-01", fmt="%Y-%d-%m"), "2026-03-01", None),
        (dg.WeeklyPartitionsDefinition("2026-01-04"), "2026-01-07", "2026-01-04"),
        (dg.MonthlyPartitionsDefinition("2026-01-01"), "2026-01-31", "2026-01-01"),
        (HOURS, "2026-01-02-03:00", "2026-01-02-03:00"),
        (HOURS, "2026-01-02 03:30:00", "2026-01-02-03:00"),
        (HOURS, "2026-01-02T03:00:00.000000Z", "2026-01-02-03:00"),
        (HOURS, "2026-01-02-03:30", None),
        (BERLIN, "2026-01-02T03:00:00.000000Z", "2026-01-02-04:00"),
        # Without a zone it may be the wall time of Berlin or UTC.
        (BERLIN, "2026-01-02 03:00:00", None),
    ],
)
def test_a_time_belongs_to_its_window_whatever_the_format(
    instance: dg.DagsterInstance, definition: Any, text: str, expected: str | None
) -> None:
    assert key_of(definition, text, instance) == expected


def test_dynamic_keys_are_found_if_they_exist(instance: dg.DagsterInstance) -> None:
    definition = dg.DynamicPartitionsDefinition(name="tenants")
    instance.add_dynamic_partitions("tenants", ["acme"])
    found = parts_of(definition, [{"p": "acme"}, {"p": "zoo"}], instance)
    assert found.keys == ("acme",)
    assert '{"p": "zoo"}' in found.unknown and "no partition key" in found.unknown


def test_several_dimensions_make_one_multi_partition_key(instance: dg.DagsterInstance) -> None:
    definition = dg.MultiPartitionsDefinition({"day": DAYS, "who": dg.StaticPartitionsDefinition(["a", "b"])})
    changed = [{"D": "2026-01-02", "tenant": "a"}, {"D": "2026-01-03", "tenant": "?"}]
    found = parts_of(definition, changed, instance, {"day": "d", "who": "tenant"})
    assert found.keys == ("2026-01-02|a",)
    assert isinstance(found.keys[0], dg.MultiPartitionKey)
    assert "2026-01-03" in found.unknown


def test_a_table_partitioned_by_other_columns_has_unknown_changes(instance: dg.DagsterInstance) -> None:
    found = parts_of(HOURS, [{"day": "2026-01-02"}], instance, {"": "at"})
    assert found.keys == () and "partitioned by at" in found.unknown


def test_a_commit_without_partition_values_has_unknown_changes(instance: dg.DagsterInstance) -> None:
    assert "are unknown" in parts_of(DAYS, None, instance).unknown
    assert parts_of(None, None, instance).unknown is None


def test_a_long_list_of_values_without_a_key_is_shortened(instance: dg.DagsterInstance) -> None:
    found = parts_of(DAYS, [{"p": str(number)} for number in range(9)], instance)
    assert "6 more" in found.unknown


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "9999-12-31 23:59:59", "9999-12-31T23:59:59.999999Z"])
def test_a_date_at_the_end_of_the_calendar_has_no_window(instance: dg.DagsterInstance, zone: str, text: str) -> None:
    for definition in (
        dg.DailyPartitionsDefinition("2026-01-01", timezone=zone),
        dg.MonthlyPartitionsDefinition("2026-01-01", timezone=zone),
        dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone=zone),
    ):
        assert key_of(definition, text, instance) is None
