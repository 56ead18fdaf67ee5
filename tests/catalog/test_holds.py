"""Requests for approval in a catalog on SQLite: their defaults, and which of them are listed when."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_rules import OnViolation
from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, PROTECTED_AFTER_EXPIRY_MS, Hold, HoldState
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.ratification.holds import check_duration
from cm_delta_dagster.errors import InvalidArgumentError
from tests.contracts.catalog_bench import Clock, create
from tests.contracts.commit_rules_contract import rule, with_actions
from tests.support.holds import hold_one

_DAY = 86_400_000


class _Requests:
    """A catalog with a table, whose commits that remove files wait for an approval."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse="memory://w", now_ms=self.clock)
        self.table_id = create(self.catalog).table_id
        self.catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))

    def made(
        self,
        version: int,
        *,
        app_id: str | None = None,
        app_version: int | None = None,
        duration_ms: int = HOLD_DURATION_MS,
    ) -> Hold:
        proposal = with_actions(version, removes=1)
        hold = hold_one(
            self.catalog, self.table_id, proposal, app_id=app_id, app_version=app_version, duration_ms=duration_ms
        )
        assert hold is not None
        return hold


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[_Requests]:
    made = _Requests(tmp_path)
    yield made
    made.catalog.close()


def test_a_request_expires_after_seven_days_unless_it_says_otherwise(requests: _Requests) -> None:
    now = requests.clock.now
    default, other = requests.made(1), requests.made(1, duration_ms=_DAY)
    assert (default.requested_ms, default.expires_ms) == (now, now + 7 * _DAY)
    assert other.expires_ms == now + _DAY


def test_a_request_expires_after_at_most_366_days() -> None:
    for duration_ms in (1, 366 * _DAY):
        check_duration(duration_ms)
    for duration_ms in (0, -1, 366 * _DAY + 1):
        with pytest.raises(InvalidArgumentError, match="366 days"):
            check_duration(duration_ms)


def test_a_request_says_which_version_its_commit_was_to_follow(requests: _Requests) -> None:
    assert requests.made(1).tables[0].read_version == 0
    assert isinstance(requests.catalog.coordinator.commit(requests.table_id, with_actions(1)), Ratified)
    assert requests.made(2).tables[0].read_version == 1


def test_only_pending_requests_are_listed_unless_closed_ones_are_asked_for(requests: _Requests) -> None:
    catalog_holds = requests.catalog.holds
    rejected, expired, pending = (
        requests.made(1),
        requests.made(1, duration_ms=_DAY),
        requests.made(1),
    )
    catalog_holds.reject_hold(rejected.hold_id, reason="not now")
    requests.clock.now += _DAY
    assert [hold.hold_id for hold in catalog_holds.holds()] == [pending.hold_id]
    assert {hold.hold_id: hold.state for hold in catalog_holds.holds(with_closed=True)} == {
        rejected.hold_id: HoldState.REJECTED,
        expired.hold_id: HoldState.EXPIRED,
        pending.hold_id: HoldState.PENDING,
    }


def test_the_files_of_a_request_are_kept_for_an_hour_after_its_expiry(requests: _Requests) -> None:
    """An approval that began before may still be committed."""
    expires_ms = requests.made(1).expires_ms
    for now, kept in ((expires_ms, 1), (expires_ms + 3_600_000 - 1, 1), (expires_ms + 3_600_000, 0)):
        requests.clock.now = now
        assert len(requests.catalog.holds.protected_commits(requests.table_id)) == kept
    assert PROTECTED_AFTER_EXPIRY_MS == 3_600_000


def test_the_request_of_a_write_is_found_by_both_parts_of_its_id(requests: _Requests) -> None:
    """Another version, or another application, is another write. Of several requests the newest counts."""
    find = requests.catalog.holds.find_hold
    first = requests.made(1, app_id="job", app_version=3)
    assert find(requests.table_id, app_id="job", app_version=3) == first
    for app_id, app_version in (("job", 2), ("job", 4), ("other", 3)):
        assert find(requests.table_id, app_id=app_id, app_version=app_version) is None
    assert find("another table", app_id="job", app_version=3) is None
    requests.catalog.holds.reject_hold(first.hold_id, reason="not now")
    requests.clock.now += 1
    second = requests.made(1, app_id="job", app_version=3)
    assert second.hold_id != first.hold_id
    assert find(requests.table_id, app_id="job", app_version=3) == second
