"""Commits of roles that wait for an approval, on a catalog whose grants PostgreSQL enforces."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest, ApprovalState
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.event_feed import EventFilter
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.protected_catalog import MAX_SENT_BYTES
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalClosedError,
    ApprovalRequiredError,
    CommitConflictError,
    CommitRefusedError,
    CommitRejectedError,
    InvalidArgumentError,
    OperationRefusedError,
)
from cm_delta_dagster.operations.tables.approve_commit import approve_commit
from cm_delta_dagster.operations.tables.create import create_table
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.database_roles import create_role, raw_client, url_as
from tests.support.lake import SCHEMA

pytestmark = pytest.mark.postgres

NAME = TableIdentifier("main", "sales", "orders")
REQUEST = ApprovalRequest(intent="{}")


@dataclass(frozen=True)
class Place:
    """A protected catalog with a pipeline that may modify ``orders``, a steward who owns it, and a reader."""

    url: str
    warehouse: str
    pipeline: str
    steward: str
    reader: str
    owner: DeltaClient

    @contextmanager
    def client(self, role: str) -> Iterator[DeltaClient]:
        client = client_of(url_as(self.url, role), self.warehouse)
        yield client
        client.close()

    @property
    def table(self) -> Table:
        return self.owner.table(NAME)

    def set_rule(self, on_violation: OnViolation = OnViolation.APPROVAL, **arguments: Any) -> None:
        rule = CommitRule(
            scope="main.sales",
            name="keep",
            kind=CommitRuleKind.MAX_REMOVED_ROWS,
            arguments=arguments or {"fraction": 0.4},
            on_violation=on_violation,
            reason="ask first",
        )
        self.owner.commit_rules.set_commit_rule(rule)


def client_of(url: str, warehouse: str) -> DeltaClient:
    settings = ClientSettings(retry_initial_seconds=0.001, publish_delay_seconds=0)
    return DeltaClient(SqlCatalog(url, warehouse=warehouse), stores=Stores(), settings=settings)


@pytest.fixture
def place(postgres_url: str, tmp_path: Path) -> Iterator[Place]:
    roles = {name: create_role(postgres_url, name) for name in ("pipeline", "steward", "reader")}
    warehouse = f"file://{tmp_path}/warehouse"
    owner = client_of(postgres_url, warehouse)
    create_table(owner, identifier=str(NAME), schema=SCHEMA)
    owner.access.enable_grants()
    owner.access.grant([Privilege.MODIFY], str(NAME), roles["pipeline"])
    owner.access.grant([Privilege.READ], str(NAME), roles["reader"])
    owner.access.transfer_table(owner.table(NAME).table_id, roles["steward"])
    place = Place(url=postgres_url, warehouse=warehouse, owner=owner, **roles)
    for name in ("a", "b", "c"):
        append(place.table, f"{name}.parquet")
    place.set_rule()
    yield place
    owner.close()


def append(table: Table, path: str) -> None:
    table.store.write(f"{table.location}/{path}", b"x" * 100)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(path, stats='{"numRecords":10}')])
    transaction.commit()


def remove(table: Table, *paths: str, work: int | None = None) -> None:
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="DELETE")
    if work is not None:
        transaction.note_transaction(SetTransaction(app_id="job", version=work))
    gone = snapshot.files.filter([path in paths for path in snapshot.files["path"].to_pylist()])
    transaction.remove_files(removes_of(gone, data_change=True))
    transaction.commit()


def parked(place: Place, *paths: str, work: int | None = None) -> str:
    """The id of the request for a removal by the pipeline."""
    with place.client(place.pipeline) as client, pytest.raises(ApprovalRequiredError) as caught:
        remove(client.table(NAME), *paths, work=work)
    assert caught.value.approval_id is not None
    return caught.value.approval_id


def live(place: Place) -> set[str]:
    return set(place.table.snapshot().files["path"].to_pylist())


def of(place: Place, approval_id: str) -> Approval:
    return place.owner.approvals.parked_commit(approval_id).approval


def test_an_owner_of_the_table_approves_what_a_pipeline_requests(place: Place) -> None:
    request = parked(place, "a.parquet", "b.parquet")
    assert live(place) == {"a.parquet", "b.parquet", "c.parquet"}
    append(place.table, "later.parquet")
    with place.client(place.steward) as steward:
        (waiting,) = steward.approvals.approvals("main.sales")
        assert (waiting.approval_id, waiting.requested_by) == (request, place.pipeline)
        assert "removes 20 of 30 rows" in waiting.what[0] and waiting.contacts == (place.steward, "postgres")
        done = approve_commit(steward, request)
        assert (done.repeated, done.approval.state) == (False, ApprovalState.COMMITTED)
        assert done.approval.decided_by == place.steward
        again = approve_commit(steward, request)
        assert (again.repeated, again.version) == (True, done.version)
        with pytest.raises(ApprovalClosedError, match="was approved"):
            steward.approvals.reject_approval(request, reason="too late")
    assert live(place) == {"c.parquet", "later.parquet"}
    audited = [(one.action, one.principal, one.after) for one in place.owner.catalog.audit(scope=str(NAME))][-2:]
    assert audited == [
        ("request approval", place.pipeline, f"request {request}"),
        ("approve", place.steward, f"request {request}: committed as version {done.version}"),
    ]
    events = place.owner.catalog.events(
        after=0, limit=99, wanted=EventFilter(kinds=frozenset({FeedKind.POLICY_CHANGED}))
    ).events
    assert [(one.actor, one.details["action"]) for one in events][-2:] == [
        (place.pipeline, "request approval"),
        (place.steward, "approve"),
    ]


def test_only_an_owner_decides_and_others_do_not_see_the_request(place: Place) -> None:
    request = parked(place, "a.parquet", "b.parquet")
    with place.client(place.pipeline) as pipeline:
        with pytest.raises(OperationRefusedError, match="does not have the privilege own"):
            approve_commit(pipeline, request)
        with pytest.raises(OperationRefusedError, match="does not have the privilege own"):
            pipeline.approvals.reject_approval(request, reason="mine")
    with place.client(place.reader) as reader:
        assert reader.approvals.approvals() == ()
        with pytest.raises(InvalidArgumentError, match="no request"):
            approve_commit(reader, request)
    assert of(place, request).state is ApprovalState.PENDING
    with place.client(place.steward) as steward:
        rejected = steward.approvals.reject_approval(request, reason="wrong day")
        assert (rejected.state, rejected.decided_by, rejected.reason) == (
            ApprovalState.REJECTED,
            place.steward,
            "wrong day",
        )
        assert steward.approvals.reject_approval(request, reason="again") == rejected
        with pytest.raises(ApprovalClosedError, match="was rejected"):
            approve_commit(steward, request)
    assert live(place) == {"a.parquet", "b.parquet", "c.parquet"}


def test_the_same_work_of_a_role_finds_its_request(place: Place) -> None:
    assert parked(place, "a.parquet", "b.parquet", work=1) == parked(place, "a.parquet", "b.parquet", work=1)
    assert len(place.owner.approvals.approvals()) == 1


def test_a_role_approves_no_other_rules_and_no_conflicting_commit(place: Place) -> None:
    request = parked(place, "a.parquet", "b.parquet")
    with place.client(place.steward) as steward:
        place.set_rule(fraction=0.3)
        with pytest.raises(CommitRefusedError, match="was not made for this rule"):
            approve_commit(steward, request)
        place.set_rule(OnViolation.REFUSE)
        with pytest.raises(CommitRefusedError, match="ask first"):
            approve_commit(steward, request)
        place.set_rule()
        assert of(place, request).state is ApprovalState.PENDING
        remove(place.table, "a.parquet")
        with pytest.raises(CommitConflictError):
            approve_commit(steward, request)
    assert of(place, request).state is ApprovalState.CONFLICTING
    assert live(place) == {"b.parquet", "c.parquet"}


def test_a_request_for_another_commit_closes_nothing(place: Place) -> None:
    request = parked(place, "a.parquet", "b.parquet")
    with place.client(place.steward) as steward:
        table = steward.table(NAME)
        snapshot = table.snapshot()
        forged = table.start_transaction(snapshot, operation="DELETE")
        forged.remove_files(removes_of(snapshot.files, data_change=True))
        forged.txn_id, forged.approval_id = of(place, request).txn_id, request
        with pytest.raises(ApprovalClosedError, match="made for another commit"):
            forged.commit()
    assert of(place, request).state is ApprovalState.PENDING and len(live(place)) == 3


def test_a_role_requests_only_what_it_may_commit(place: Place) -> None:
    one = commit_of(4, REMOVE)
    with place.client(place.reader) as reader:
        with pytest.raises(CommitRefusedError, match="does not have the privilege modify"):
            reader.coordinator.request_approval(place.table.table_id, one, REQUEST)
        place.owner.access.grant([Privilege.APPEND], str(NAME), place.reader)
        with pytest.raises(CommitRefusedError, match="does not have the privilege modify"):
            reader.coordinator.request_approval(place.table.table_id, one, REQUEST)
        assert reader.coordinator.request_approval(place.table.table_id, commit_of(4, ADD), REQUEST) is None
    assert place.owner.approvals.approvals() == ()


def test_a_malformed_request_of_a_raw_client_is_not_kept(place: Place) -> None:
    one = commit_of(4, REMOVE)
    assert one.content is not None
    proposal = {
        "version": 4,
        "mode": "inline",
        "file_name": one.file_name,
        "file_size": one.file_size,
        "file_modification_time": 1,
        "txn_id": one.summary.txn_id,
        "in_commit_timestamp": one.summary.in_commit_timestamp,
        "sha256": one.sha256,
    }
    good = {"what": [], "rules": [], "contacts": [], "fingerprint": "f" * 64, "intent": "{}", "duration_ms": 1000}
    wrong: dict[str, Any] = {
        "what": ("x", None, [1]),
        "rules": ({}, None),
        "contacts": (None,),
        "fingerprint": ("", None),
        "intent": ("", None),
        "duration_ms": (0, -1, None, 10**15),
        "app_id": ("only one of the two",),
    }
    call = "SELECT cm_delta_request_approval(%s, %s::jsonb, %s, %s::jsonb)"
    with raw_client(place.url, place.pipeline) as client:
        table_id = place.table.table_id
        timestamp = place.table.ratified().latest_in_commit_timestamp
        assert (
            client.execute(call, (table_id, json.dumps(proposal), one.content, json.dumps(good))).fetchone()[0][
                "answer"
            ]
            == "rejected"
        ), "its timestamp is before that of the table"
        late = commit_of(4, REMOVE, at=timestamp + 1)
        proposal |= {
            "file_name": late.file_name,
            "file_size": late.file_size,
            "txn_id": late.summary.txn_id,
            "in_commit_timestamp": timestamp + 1,
            "sha256": late.sha256,
        }
        for key, values in wrong.items():
            for value in values:
                sent = (table_id, json.dumps(proposal), late.content, json.dumps(good | {key: value}))
                assert client.execute(call, sent).fetchone()[0]["answer"] == "rejected", (key, value)
        unsent = client.execute(call, (table_id, json.dumps(proposal), None, json.dumps(good))).fetchone()[0]
        assert unsent["answer"] in ("rejected", "refused")
        assert place.owner.approvals.approvals() == ()
        kept = client.execute(call, (table_id, json.dumps(proposal), late.content, json.dumps(good))).fetchone()[0]
        assert kept["answer"] == "kept"
        for state, reason in (("committed", "x"), ("rejected", " "), ("rejected", "x"), (None, None)):
            closed = client.execute("SELECT cm_delta_close_approval(%s, %s, %s)", (kept["approval_id"], state, reason))
            assert closed.fetchone() == (False,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute("SELECT cm_delta_end_request(NULL, 'rejected', NULL, 'x')")
    assert of(place, kept["approval_id"]).state is ApprovalState.PENDING


def test_a_commit_too_large_to_be_sent_does_not_wait(place: Place) -> None:
    large = commit_of(4, {"remove": {"path": "a" * MAX_SENT_BYTES, "dataChange": True, "deletionTimestamp": 1}})
    with place.client(place.pipeline) as client, pytest.raises(CommitRejectedError, match="Split the write"):
        client.coordinator.request_approval(place.table.table_id, large, REQUEST)
    assert place.owner.approvals.approvals() == ()
