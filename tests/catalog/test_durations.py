"""Durations that users give have a limit, so that the times they lead to are dates, and fit into the database."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from cm_delta_dagster.catalog.durations import LONGEST_MS, duration_text, is_duration, parse_duration
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import MAINTENANCE_LEASES
from cm_delta_dagster.catalog.sql.ratification.holds import check_duration
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import check_milliseconds, duration_ms
from tests.contracts.catalog_bench import create

TOO_LONG = (LONGEST_MS + 1, 287_000 * 366 * 24 * 60 * 60 * 1000, 2**63, 10**30)


@pytest.mark.parametrize("duration", TOO_LONG)
def test_no_duration_may_be_longer_than_a_hundred_years(tmp_path: Path, duration: int) -> None:
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w")
    table = create(catalog).table_id
    for give in (
        lambda: catalog.leases.acquire_maintenance_lease(
            table, MaintenanceKind.DATA_CLEANUP, owner="o", duration_ms=duration
        ),
        lambda: catalog.leases.renew_lease(table, token=1, duration_ms=duration),
        lambda: check_duration(duration),
        lambda: MaintenanceConditions(min_retention=timedelta.max),
        lambda: check_milliseconds(duration, name="retention_ms"),
        lambda: duration_ms(timedelta.max, name="retention"),
        lambda: ClientSettings(maintenance_lease=timedelta.max),
        lambda: ClientSettings(max_clock_difference=timedelta.max),
        lambda: ClientSettings(publish_delay=timedelta.max),
    ):
        with pytest.raises(InvalidArgumentError, match=r"hundred years|366 days|2\*\*63"):
            give()
    assert catalog.leases.leases() == ()


def test_a_hundred_years_are_a_duration() -> None:
    assert is_duration(LONGEST_MS) and is_duration(0) and not is_duration(0, at_least=1)
    assert not any(map(is_duration, (-1, True, 1.0, "1", None)))
    assert duration_ms(timedelta(days=36600), name="retention") == LONGEST_MS


@pytest.mark.parametrize(
    ("text", "duration", "iso"),
    [
        ("7 days", timedelta(days=7), "P7D"),
        ("1 hour 30 minutes", timedelta(minutes=90), "PT1H30M"),
        ("1 Hour, 30 Minutes", timedelta(minutes=90), "PT1H30M"),
        ("2weeks", timedelta(weeks=2), "P14D"),
        ("1.5 seconds", timedelta(seconds=1.5), "PT1.5S"),
        ("50 milliseconds", timedelta(milliseconds=50), "PT0.05S"),
        (" 0 days ", timedelta(0), "PT0S"),
        ("P7D", timedelta(days=7), "P7D"),
        ("P1W", timedelta(days=7), "P7D"),
        ("PT90M", timedelta(minutes=90), "PT1H30M"),
        ("p1dt0.5s", timedelta(days=1, seconds=0.5), "P1DT0.5S"),
    ],
)
def test_a_duration_is_given_in_words_or_in_iso_8601(text: str, duration: timedelta, iso: str) -> None:
    assert parse_duration(text, name="retention") == duration == parse_duration(iso, name="retention")
    assert duration_text(duration) == iso


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "7",
        "seven days",
        "7 day s",
        "-1 days",
        "7 months",
        "P1M",
        "P1Y",
        "P",
        "PT",
        "P7",
        "36601 days",
        7,
        None,
    ],
)
def test_a_text_that_is_no_duration_is_refused_with_the_name_of_the_argument(text: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^retention is .*; give a duration up to a hundred years"):
        parse_duration(text, name="retention")


def test_a_lease_of_another_release_that_ends_after_the_calendar_is_listed_and_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    catalog = SqlCatalog(url, warehouse=f"file://{tmp_path}/w")
    entry = create(catalog)
    catalog.leases.acquire_maintenance_lease(entry.table_id, MaintenanceKind.DATA_CLEANUP, owner="o", duration_ms=1000)
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute(f"UPDATE {MAINTENANCE_LEASES.name} SET expires_ms = {TOO_LONG[1]}")
    shown = CliRunner().invoke(main, ["--catalog", url, "maintenance", "leases"])
    assert shown.exit_code == 0 and f"{TOO_LONG[1]} ms since 1970" in shown.output
    ended = CliRunner().invoke(
        main, ["--catalog", url, "maintenance", "expire-lease", str(entry.identifier), "--owner", "o"]
    )
    assert ended.exit_code == 0, ended.output
