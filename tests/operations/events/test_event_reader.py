"""Readers of the feed: iteration, waiting, filters, and events that were deleted."""

import threading
from datetime import timedelta

import pytest

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.errors import (
    FeedGapError,
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    RetentionTooShortError,
)
from cm_delta_dagster.operations.events.clean_feed import clean_feed
from cm_delta_dagster.operations.events.event_reader import EventReader, event_filter
from tests.support.lake import DAY_MS, Lake


def test_a_reader_reads_every_event_once_and_goes_on_at_its_position(lake: Lake) -> None:
    table = lake.new_table()
    reader = EventReader(lake.catalog.events)
    assert [event.kind for event in reader] == [FeedKind.TABLE_CREATED] and list(reader) == []
    lake.append(table)
    other = EventReader(lake.catalog.events, after=reader.position)
    assert [event.version for event in other.read(limit=5)] == [1] and other.position == 2
    assert [event.version for event in reader.wait(300)] == [1]
    assert reader.wait(0.05) == ()


def test_a_waiting_reader_gets_the_next_event_of_its_filter(lake: Lake) -> None:
    first, second = lake.new_table("a"), lake.new_table("b")
    reader = EventReader(lake.catalog.events, event_filter=event_filter(["commit"], ["main.test.b"]))
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.extend(event.position for event in reader.wait(300)))
    waiting.start()
    lake.append(first)
    lake.append(second)
    waiting.join(300)
    assert found == [4]


def test_following_yields_events_as_they_come(lake: Lake) -> None:
    table = lake.new_table()
    events = EventReader(lake.catalog.events).follow()
    assert next(events).kind is FeedKind.TABLE_CREATED
    lake.append(table)
    assert next(events).kind is FeedKind.COMMIT


def test_a_reader_behind_the_retention_gets_the_deleted_positions(lake: Lake) -> None:
    table = lake.new_table()
    behind = EventReader(lake.catalog.events)
    behind.read()
    lake.append(table)
    lake.clock.pass_days(31)
    with pytest.raises(MaintenanceNotPermittedError, match=r"lake\.maintenance\.set_policy\('main', 'FEED_CLEANUP'\)"):
        clean_feed(lake.client)
    lake.allow(MaintenanceKind.FEED_CLEANUP)
    result = clean_feed(lake.client)
    assert (result.num_entries, result.deleted_up_to) == (2, 2)
    lake.append(table)
    with pytest.raises(FeedGapError, match="The events at the positions 2 to 2 were deleted") as caught:
        behind.read()
    assert behind.position == 1
    resumed = EventReader(lake.catalog.events, after=caught.value.resume_after)
    assert [event.version for event in resumed if event.kind is FeedKind.COMMIT] == [2]
    # A new reader begins with the oldest event that there is, and gets no error.
    assert [event.version for event in EventReader(lake.catalog.events) if event.kind is FeedKind.COMMIT] == [2]


def test_no_entry_is_deleted_before_the_retention_that_a_rule_demands(lake: Lake) -> None:
    lake.new_table()
    lake.allow(MaintenanceKind.FEED_CLEANUP)
    week = MaintenanceConditions(min_retention=timedelta(days=7))
    rule = MaintenanceRule(scope="main.test", kind=MaintenanceKind.FEED_CLEANUP, allowed=True, conditions=week)
    lake.catalog.maintenance_policies.set_maintenance_rule(rule)
    lake.clock.pass_days(8)
    with pytest.raises(RetentionTooShortError, match=r"the rules of main\.test demand at least 7 days"):
        clean_feed(lake.client, retention_ms=7 * DAY_MS - 1)
    assert clean_feed(lake.client, retention_ms=7 * DAY_MS).num_entries == 3


def test_a_rule_of_a_schema_denies_the_cleanup_of_the_feed(lake: Lake) -> None:
    lake.new_table()
    lake.allow(MaintenanceKind.FEED_CLEANUP)
    lake.deny(MaintenanceKind.FEED_CLEANUP, scope="main.test", reason="the auditors read it")
    lake.clock.pass_days(31)
    with pytest.raises(MaintenanceNotPermittedError, match=r"not permitted in main.test .the auditors read it"):
        clean_feed(lake.client)
    assert (
        len([event for event in EventReader(lake.catalog.events) if event.details.get("action") != "maintenance"]) == 3
    )
    decisions = [(one.scope, one.after) for one in lake.sql_catalog.audit_log.audit() if one.action == "maintenance"]
    assert decisions == [
        ("main", "FEED_CLEANUP: allowed by main"),
        ("main.test", "FEED_CLEANUP: denied by main.test"),
    ]
    assert [event.scope for event in EventReader(lake.catalog.events)][-2:] == ["main", "main.test"]


@pytest.mark.parametrize("after", [-1, "3", 1.5, True, None, 2**63])
def test_a_position_that_is_not_a_number_is_refused(lake: Lake, after: object) -> None:
    with pytest.raises(InvalidArgumentError, match="after is"):
        EventReader(lake.catalog.events, after=after)  # type: ignore[arg-type]


def test_a_position_after_the_end_of_the_feed_is_refused(lake: Lake) -> None:
    table = lake.new_table()
    strayed = EventReader(lake.catalog.events, after=9)
    for read in (strayed.read, lambda: strayed.wait(300), lambda: list(strayed)):
        with pytest.raises(
            InvalidArgumentError, match=r"ends at position 1, and this reader is at 9: .* another catalog"
        ):
            read()
    lake.append(table)
    assert strayed.position == 9 and [event.version for event in EventReader(lake.catalog.events, after=1)] == [1]


@pytest.mark.parametrize("value", [None, "5", True, float("nan"), 0, 2**63])
def test_a_limit_or_timeout_that_is_not_a_number_is_refused(lake: Lake, value: object) -> None:
    reader = EventReader(lake.catalog.events)
    with pytest.raises(InvalidArgumentError, match="limit is"):
        reader.read(value)  # type: ignore[arg-type]
    if not isinstance(value, int) or value is True:
        with pytest.raises(InvalidArgumentError, match="timeout is"):
            reader.wait(value)  # type: ignore[arg-type]


def test_a_reader_can_wait_without_an_end(lake: Lake) -> None:
    lake.new_table()
    assert [event.version for event in EventReader(lake.catalog.events).wait(float("inf"))] == [0]


def test_unknown_kinds_and_texts_in_place_of_lists_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the kinds are COMMIT, TABLE_CREATED"):
        event_filter(["rename"], [])
    with pytest.raises(InvalidArgumentError, match=r"give a list, e.g. \['main'\]"):
        event_filter([], "main")
    with pytest.raises(InvalidArgumentError, match="kinds is 5; give a list"):
        event_filter(5, [])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="scopes has 5"):
        event_filter([], [5])  # type: ignore[list-item]
