"""Readers of the feed: iteration, waiting, filters, and events that were deleted."""

import threading

import pytest

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.errors import FeedGapError, InvalidArgumentError, MaintenanceNotPermittedError
from cm_delta_dagster.operations.events.clean_feed import clean_feed
from cm_delta_dagster.operations.events.event_reader import EventReader, event_filter
from tests.support.lake import Lake


def test_a_reader_reads_every_event_once_and_goes_on_at_its_position(lake: Lake) -> None:
    table = lake.new_table()
    reader = EventReader(lake.catalog)
    assert [event.kind for event in reader] == [FeedKind.TABLE_CREATED] and list(reader) == []
    lake.append(table)
    other = EventReader(lake.catalog, after=reader.position)
    assert [event.version for event in other.read(limit=5)] == [1] and other.position == 2
    assert [event.version for event in reader.wait(60)] == [1]
    assert reader.wait(0.05) == ()


def test_a_waiting_reader_gets_the_next_event_of_its_filter(lake: Lake) -> None:
    first, second = lake.new_table("a"), lake.new_table("b")
    reader = EventReader(lake.catalog, wanted=event_filter(["commit"], ["main.test.b"]))
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.extend(event.position for event in reader.wait(60)))
    waiting.start()
    lake.append(first)
    lake.append(second)
    waiting.join(60)
    assert found == [4]


def test_following_yields_events_as_they_come(lake: Lake) -> None:
    table = lake.new_table()
    events = EventReader(lake.catalog).follow()
    assert next(events).kind is FeedKind.TABLE_CREATED
    lake.append(table)
    assert next(events).kind is FeedKind.COMMIT


def test_a_reader_behind_the_retention_gets_the_deleted_positions(lake: Lake) -> None:
    table = lake.new_table()
    behind = EventReader(lake.catalog)
    behind.read()
    lake.append(table)
    lake.clock.pass_days(31)
    with pytest.raises(MaintenanceNotPermittedError, match="cm-delta policy allow main FEED_CLEANUP"):
        clean_feed(lake.client)
    lake.allow(MaintenanceKind.FEED_CLEANUP)
    result = clean_feed(lake.client)
    assert (result.num_entries, result.deleted_up_to) == (2, 2)
    lake.append(table)
    with pytest.raises(FeedGapError, match="The events at the positions 2 to 2 were deleted") as caught:
        behind.read()
    assert behind.position == 1
    resumed = EventReader(lake.catalog, after=caught.value.resume_after)
    assert [event.version for event in resumed if event.kind is FeedKind.COMMIT] == [2]
    # A new reader begins with the oldest event that there is, and gets no error.
    assert [event.version for event in EventReader(lake.catalog) if event.kind is FeedKind.COMMIT] == [2]


@pytest.mark.parametrize("after", [-1, "3", 1.5, True, None])
def test_a_position_that_is_not_a_number_is_refused(lake: Lake, after: object) -> None:
    with pytest.raises(InvalidArgumentError, match="after is"):
        EventReader(lake.catalog, after=after)  # type: ignore[arg-type]


def test_unknown_kinds_and_texts_in_place_of_lists_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the kinds are COMMIT, TABLE_CREATED"):
        event_filter(["rename"], [])
    with pytest.raises(InvalidArgumentError, match=r"give a list, e.g. \['main'\]"):
        event_filter([], "main")
