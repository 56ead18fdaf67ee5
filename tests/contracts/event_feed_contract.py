"""Contract of ``EventFeed``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import threading
import time
from datetime import timedelta

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.event_feed import EventFilter
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import (
    NO_CONDITIONS,
    MaintenanceConditions,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, MaintenanceNotPermittedError, RetentionTooShortError
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, allow_purge, create, proposal

_DAY_MS = 24 * 60 * 60 * 1000


def every_change_of_a_table_or_policy_is_an_event(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        catalog.registry.rename_table(table, OTHER)
        catalog.registry.drop_table(OTHER)
        catalog.registry.undrop_table(table)
        policy = CommitPolicy(kind=CommitPolicyKind.INLINE)
        catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main.sales", policy=policy))
        catalog.registry.drop_table(OTHER)
        allow_purge(catalog)
        catalog.registry.begin_purge(table, min_age_ms=0)
        catalog.registry.finish_purge(table)
        page = catalog.events.events(after=0, limit=100)
        kinds = [event.kind for event in page.events]
        assert kinds == [
            FeedKind.TABLE_CREATED,
            FeedKind.COMMIT,
            FeedKind.TABLE_RENAMED,
            FeedKind.TABLE_DROPPED,
            FeedKind.TABLE_RESTORED,
            FeedKind.POLICY_CHANGED,
            FeedKind.TABLE_DROPPED,
            FeedKind.POLICY_CHANGED,
            FeedKind.TABLE_PURGED,
        ]
        positions = [event.position for event in page.events]
        assert positions == sorted(set(positions)) and page.reached == page.latest_position == positions[-1]
        renamed, committed = page.events[2], page.events[1]
        assert renamed.details == {"from": str(NAME), "to": str(OTHER)} and renamed.at_ms == bench.clock.now
        assert committed.summary is not None and committed.as_json()["operation"] == "WRITE"
        assert page.events[5].scope == "main.sales"
        # The reader of commits sees commits alone.
        assert [entry.version for entry in catalog.feed.feed(after=0, limit=100)] == [0, 1]


def events_are_selected_by_kind_and_scope(bench: Bench) -> None:
    with bench.client() as catalog:
        other = TableIdentifier("main", "hr", "staff")
        create(catalog)
        create(catalog, other)
        catalog.registry.drop_table(other)

        def positions(**wanted: object) -> list[int]:
            page = catalog.events.events(after=0, limit=9, matching=EventFilter(**wanted))  # type: ignore[arg-type]
            assert page.reached == page.latest_position == 3
            return [event.position for event in page.events]

        assert positions(scopes=("main.hr",)) == [2, 3] and positions(scopes=("main",)) == [1, 2, 3]
        assert positions(scopes=("main.sales.orders",)) == [1] and positions(scopes=("main.h",)) == []
        assert positions(kinds=frozenset({FeedKind.TABLE_DROPPED})) == [3]
        first = catalog.events.events(after=0, limit=1)
        assert (first.reached, len(first.events)) == (1, 1)
        with pytest.raises(InvalidArgumentError):
            catalog.events.events(after=0, limit=1, matching=EventFilter(scopes=("a..b",)))


def a_waiting_reader_is_woken_by_a_commit(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as reader:
        table = create(catalog).table_id
        position = reader.feed.latest_feed_position()
        assert reader.events.wait_for_events(after=0, seconds=0) and not reader.events.wait_for_events(
            after=position, seconds=0.05
        )
        answers: list[bool] = []
        waiting = threading.Thread(
            target=lambda: answers.append(reader.events.wait_for_events(after=position, seconds=60))
        )
        waiting.start()
        time.sleep(0.2)
        catalog.coordinator.commit(table, proposal(1))
        waiting.join(300)
        assert answers == [True] and not waiting.is_alive()


def old_entries_are_deleted_and_positions_go_on(bench: Bench) -> None:
    """The rule is the first entry, and each deletion adds one, which the audit has."""
    with bench.client() as catalog:
        _permit_cleanup(catalog)
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        bench.clock.now += _DAY_MS
        other = TableIdentifier("main", "sales", "other")
        create(catalog, other)
        assert catalog.events.delete_old_entries(before_ms=bench.clock.now) == 3
        assert catalog.events.delete_old_entries(before_ms=bench.clock.now) == 0
        page = catalog.events.events(after=0, limit=9)
        assert (page.deleted_up_to, [event.position for event in page.events]) == (3, [4, 5, 6])
        commits = catalog.feed.feed_page(after=0, limit=9)
        assert (commits.deleted_up_to, [entry.position for entry in commits.entries]) == (3, [4])
        # The record of the commit stays, and says what a reader has missed.
        (newest,) = catalog.feed.newest_deleted_commits([NAME, other])
        assert (newest.identifier, newest.version, newest.position) == (NAME, 1, 3)
        catalog.coordinator.commit(table, proposal(2))
        assert catalog.feed.latest_feed_position() == 7 and catalog.feed.newest_deleted_commits([NAME, other]) == ()


def an_entry_after_a_younger_one_is_not_deleted(bench: Bench) -> None:
    with bench.client() as catalog:
        _permit_cleanup(catalog)
        table = create(catalog).table_id
        bench.clock.now += _DAY_MS
        catalog.coordinator.commit(table, proposal(1))
        bench.clock.now -= _DAY_MS  # As a clock that was wrong, or a transaction that was open for long.
        catalog.coordinator.commit(table, proposal(2))
        bench.clock.now += 1
        assert catalog.events.delete_old_entries(before_ms=bench.clock.now) == 2
        page = catalog.events.events(after=0, limit=2)
        assert (page.deleted_up_to, [event.version for event in page.events]) == (2, [1, 2])


def no_entry_is_deleted_that_the_rules_keep(bench: Bench) -> None:
    """Without a rule nothing is permitted, and the longest retention of the rules applies."""
    with bench.client() as catalog:
        create(catalog)
        bench.clock.now += 2 * _DAY_MS
        with pytest.raises(MaintenanceNotPermittedError, match="FEED_CLEANUP is not permitted in main"):
            catalog.events.delete_old_entries(before_ms=bench.clock.now)
        assert [entry.after for entry in catalog.audit_log.audit()] == ["FEED_CLEANUP: denied by default"]
        _permit_cleanup(catalog, MaintenanceConditions(min_retention=timedelta(days=1)))
        with pytest.raises(RetentionTooShortError, match="the rules of main demand at least"):
            catalog.events.delete_old_entries(before_ms=bench.clock.now)
        with pytest.raises(InvalidArgumentError, match="after the catalog's clock"):
            catalog.events.delete_old_entries(before_ms=bench.clock.now + 1)
        assert catalog.events.events(after=0, limit=9).deleted_up_to == 0
        assert catalog.events.delete_old_entries(before_ms=-(2**70)) == 0
        assert catalog.events.delete_old_entries(before_ms=bench.clock.now - _DAY_MS) == 1


def an_impossible_position_limit_or_time_is_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        create(catalog)
        for after, limit in ((2**70, 1), (-1, 1), (0, -1), (0, 2**70)):
            with pytest.raises(InvalidArgumentError, match=r"(after|limit) is -?\d+; give"):
                catalog.events.events(after=after, limit=limit)
            with pytest.raises(InvalidArgumentError, match=r"(after|limit) is -?\d+; give"):
                catalog.feed.feed(after=after, limit=limit)
        for after, seconds in ((2**70, 0.0), (1, float("nan")), (1, float("inf")), (1, 1e300)):
            with pytest.raises(InvalidArgumentError):
                catalog.events.wait_for_events(after=after, seconds=seconds)


def _permit_cleanup(catalog: Catalog, conditions: MaintenanceConditions = NO_CONDITIONS) -> None:
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.FEED_CLEANUP, allowed=True, conditions=conditions)
    catalog.maintenance_policies.set_maintenance_rule(rule)


EVENT_FEED_CONTRACT: tuple[Rule, ...] = (
    every_change_of_a_table_or_policy_is_an_event,
    events_are_selected_by_kind_and_scope,
    a_waiting_reader_is_woken_by_a_commit,
    old_entries_are_deleted_and_positions_go_on,
    an_entry_after_a_younger_one_is_not_deleted,
    no_entry_is_deleted_that_the_rules_keep,
    an_impossible_position_limit_or_time_is_refused,
)
