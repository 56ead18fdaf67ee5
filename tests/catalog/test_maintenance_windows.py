"""Windows of time of maintenance rules."""

from datetime import UTC, datetime

import pytest

from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.errors import InvalidArgumentError


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "moment", "is_open"),
    [
        ("22:00-06:00", "2026-03-10T23:00", True),
        ("22:00-06:00", "2026-03-10T05:59", True),
        ("22:00-06:00", "2026-03-10T06:00", False),
        ("00:00-24:00", "2026-03-10T23:59", True),
        ("Fri 22:00-06:00", "2026-03-14T05:00", True),
        ("Fri 22:00-06:00", "2026-03-13T05:00", False),
        ("Sat-Mon 08:00-10:00", "2026-03-15T09:00", True),
        ("Sat-Mon 08:00-10:00", "2026-03-10T09:00", False),
        ("08:00-10:00 Europe/Berlin", "2026-03-10T07:30", True),
        ("08:00-10:00 Europe/Berlin", "2026-07-10T06:30", True),
        ("08:00-10:00 Europe/Berlin", "2026-07-10T08:30", False),
    ],
)
def test_a_window_is_open_in_its_time_and_zone(text: str, moment: str, is_open: bool) -> None:
    window = MaintenanceWindow.parse(text)
    assert window.contains(at(moment)) is is_open
    assert MaintenanceWindow.parse(str(window)) == window


@pytest.mark.parametrize(
    "text", ["", "night", "25:00-26:00", "10:00-9:00", "Xyz 10:00-11:00", "10:60-11:00", "24:00-01:00"]
)
def test_any_other_text_is_no_window(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a maintenance window"):
        MaintenanceWindow.parse(text)


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="'Mars/Base' is not a time zone"):
        MaintenanceWindow.parse("10:00-11:00 Mars/Base")
