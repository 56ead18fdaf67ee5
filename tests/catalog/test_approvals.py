"""Requests for approval in a catalog on SQLite: their defaults, and which of them are listed when."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.approvals import PROTECTED_AFTER_EXPIRY_MS, Approval, ApprovalRequest, ApprovalState
from cm_delta_dagster.catalog.commit_rules import OnViolation
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.ratification.approval_requests import check_duration
from cm_delta_dagster.errors import InvalidArgumentError
from tests.contracts.catalog_bench import Clock, create
from tests.contracts.commit_rules_contract import rule, with_actions

_DAY = 86_400_000


class _Requests:
    """A catalog with a table, whose commits that remove files wait for an approval."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse="memory://w", now_ms=self.clock)
        self.table_id = create(self.catalog).table_id
        self.catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))

    def made(self, version: int, request: ApprovalRequest | None = None) -> Approval:
        approval = self.catalog.coordinator.request_approval(
            self.table_id, with_actions(version, removes=1), request or ApprovalRequest(intent="{}")
        )
        assert approval is not None
        return approval


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[_Requests]:
    made = _Requests(tmp_path)
    yield made
    made.catalog.close()


def test_a_request_expires_after_seven_days_unless_it_says_otherwise(requests: _Requests) -> None:
    now = requests.clock.now
    default, other = requests.made(1), requests.made(1, ApprovalRequest(intent="{}", duration_ms=_DAY))
    assert (default.requested_ms, default.expires_ms) == (now, now + 7 * _DAY)
    assert other.expires_ms == now + _DAY


def test_a_request_expires_after_at_most_366_days() -> None:
    for duration_ms in (1, 366 * _DAY):
        check_duration(ApprovalRequest(intent="{}", duration_ms=duration_ms))
    for duration_ms in (0, -1, 366 * _DAY + 1):
        with pytest.raises(InvalidArgumentError, match="366 days"):
            check_duration(ApprovalRequest(intent="{}", duration_ms=duration_ms))


def test_a_request_says_which_version_its_commit_was_to_follow(requests: _Requests) -> None:
    assert requests.made(1).read_version == 0
    assert isinstance(requests.catalog.coordinator.commit(requests.table_id, with_actions(1)), Ratified)
    assert requests.made(2).read_version == 1


def test_only_pending_requests_are_listed_unless_closed_ones_are_asked_for(requests: _Requests) -> None:
    approvals = requests.catalog.approvals
    rejected, expired, pending = (
        requests.made(1),
        requests.made(1, ApprovalRequest(intent="{}", duration_ms=_DAY)),
        requests.made(1),
    )
    approvals.reject_approval(rejected.approval_id, reason="not now")
    requests.clock.now += _DAY
    assert [approval.approval_id for approval in approvals.approvals()] == [pending.approval_id]
    assert {approval.approval_id: approval.state for approval in approvals.approvals(with_closed=True)} == {
        rejected.approval_id: ApprovalState.REJECTED,
        expired.approval_id: ApprovalState.EXPIRED,
        pending.approval_id: ApprovalState.PENDING,
    }


def test_the_files_of_a_request_are_kept_for_an_hour_after_its_expiry(requests: _Requests) -> None:
    """An approval that began before may still be committed."""
    expires_ms = requests.made(1).expires_ms
    for now, kept in ((expires_ms, 1), (expires_ms + 3_600_000 - 1, 1), (expires_ms + 3_600_000, 0)):
        requests.clock.now = now
        assert len(requests.catalog.approvals.protected_commits(requests.table_id)) == kept
    assert PROTECTED_AFTER_EXPIRY_MS == 3_600_000


def test_the_request_of_a_write_is_found_by_both_parts_of_its_id(requests: _Requests) -> None:
    """Another version, or another application, is another write. Of several requests the newest counts."""
    find = requests.catalog.approvals.find_approval
    first = requests.made(1, ApprovalRequest(intent="{}", app_id="job", app_version=3))
    assert find(requests.table_id, app_id="job", app_version=3) == first
    for app_id, app_version in (("job", 2), ("job", 4), ("other", 3)):
        assert find(requests.table_id, app_id=app_id, app_version=app_version) is None
    assert find("another table", app_id="job", app_version=3) is None
    requests.catalog.approvals.reject_approval(first.approval_id, reason="not now")
    requests.clock.now += 1
    second = requests.made(1, ApprovalRequest(intent="{}", app_id="job", app_version=3))
    assert second.approval_id != first.approval_id
    assert find(requests.table_id, app_id="job", app_version=3) == second
