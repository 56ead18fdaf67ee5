"""Leases and the feed of roles with few privileges, on a catalog whose grants PostgreSQL enforces."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.event_feed import EventFilter
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, LeaseLost, MaintenanceKind
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.catalog.webhooks import Webhook
from cm_delta_dagster.errors import (
    CommitRefusedError,
    InvalidArgumentError,
    LeaseNotHeldError,
    OperationRefusedError,
    PermissionDeniedError,
    TableNotFoundError,
)
from tests.contracts.catalog_bench import create
from tests.support.commit_builder import ADD, REARRANGE, commit_of
from tests.support.database_roles import create_role, raw_client, url_as
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

ORDERS = TableIdentifier("main", "sales", "orders")
HIDDEN = TableIdentifier("main", "secret", "salaries")
KIND = MaintenanceKind.DATA_REORGANIZATION
LONG_MS = 3_600_000


@dataclass(frozen=True)
class Roles:
    """A protected catalog, and roles that may maintain and read ``orders``."""

    url: str
    owner: SqlCatalog
    maintainer: str
    reader: str
    orders: TableEntry
    hidden: TableEntry

    def client(self, role: str) -> SqlCatalog:
        return SqlCatalog(url_as(self.url, role))


@pytest.fixture
def roles(postgres_url: str) -> Iterator[Roles]:
    maintainer, reader = create_role(postgres_url, "maintainer"), create_role(postgres_url, "reader")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        orders, hidden = create(owner, ORDERS), create(owner, HIDDEN)
        owner.enable_grants()
        owner.grant([Privilege.MAINTAIN], str(ORDERS), maintainer)
        owner.grant([Privilege.READ], str(ORDERS), reader)
        yield Roles(postgres_url, owner, maintainer, reader, orders, hidden)


def acquired(catalog: SqlCatalog, table_id: str, owner: str = "run") -> LeaseGranted:
    lease = catalog.acquire_maintenance_lease(table_id, KIND, owner=owner, duration_ms=LONG_MS)
    assert isinstance(lease, LeaseGranted)
    return lease


def test_a_maintainer_commits_under_its_lease(roles: Roles) -> None:
    orders = roles.orders.table_id
    with roles.client(roles.maintainer) as catalog:
        lease = acquired(catalog, orders)
        again = acquired(catalog, orders)
        assert again.token == lease.token and again.expires_ms >= lease.expires_ms
        renewed = catalog.renew_lease(orders, token=lease.token, duration_ms=2 * LONG_MS)
        assert isinstance(renewed, LeaseGranted) and renewed == catalog.check_lease(orders, token=lease.token)
        proposal = replace(commit_of(1, REARRANGE), lease_token=lease.token)
        assert isinstance(catalog.commit(orders, proposal), Ratified)
        catalog.release_maintenance_lease(orders, owner="run")
        assert catalog.leases() == ()
        assert acquired(catalog, orders).token == lease.token + 1
    audited = [(one.action, one.principal, one.after) for one in roles.owner.audit(scope=str(ORDERS))]
    assert audited[-3:] == [
        ("acquire lease", roles.maintainer, f"run for {KIND.value}, token 1"),
        ("release lease", roles.maintainer, None),
        ("acquire lease", roles.maintainer, f"run for {KIND.value}, token 2"),
    ]
    events = roles.owner.events(after=0, limit=99, wanted=EventFilter(kinds=frozenset({FeedKind.LEASE_CHANGED}))).events
    assert [(one.actor, one.details["action"]) for one in events] == [
        (roles.maintainer, action) for action in ("acquire lease", "release lease", "acquire lease")
    ]


def test_a_stale_token_is_refused_by_the_function(roles: Roles) -> None:
    """The function refuses with the text of the transaction."""
    orders, kept = roles.orders.table_id, commit_of(1, REARRANGE)
    with roles.client(roles.maintainer) as catalog:
        first = acquired(catalog, orders)
        roles.owner.expire_lease(orders, owner="run", reason="its machine is gone")
        audited = len(roles.owner.audit())
        with pytest.raises(CommitRefusedError) as ended:
            catalog.commit(orders, replace(kept, lease_token=first.token))
        assert str(ended.value) == (
            "The commit of version 1 to main.sales.orders was refused: it belongs to a maintenance run whose lease (token 1) "
            "expired or was ended. Nothing was committed. Start the maintenance run again."
        )
        assert ended.value.refusal is not None and ended.value.refusal.rule == "lease"
        recorded = roles.owner.audit()[audited:]
        assert [(one.principal, one.outcome) for one in recorded] == [(roles.maintainer, AuditOutcome.REFUSED)]
        second = acquired(roles.owner, orders, owner="other")
        with pytest.raises(CommitRefusedError, match=f"other holds the lease for {KIND.value} now"):
            catalog.commit_together({orders: replace(kept, lease_token=first.token)})
        assert catalog.renew_lease(orders, token=first.token, duration_ms=LONG_MS) == LeaseLost(
            token=first.token, holder=LeaseHeldByAnother(owner="other", kind=KIND, expires_ms=second.expires_ms)
        )
        assert catalog.load_table(ORDERS).ratified.latest_version == 0
        assert isinstance(catalog.commit(orders, kept), Ratified)


def test_an_expired_lease_is_free_and_gets_a_new_token(roles: Roles) -> None:
    orders = roles.orders.table_id
    with roles.client(roles.maintainer) as catalog:
        short = catalog.acquire_maintenance_lease(orders, KIND, owner="run", duration_ms=1)
        assert isinstance(short, LeaseGranted)
        until(lambda: catalog.now_ms() > short.expires_ms)
        assert isinstance(catalog.renew_lease(orders, token=short.token, duration_ms=LONG_MS), LeaseLost)
        assert acquired(catalog, orders).token == short.token + 1
    entry = roles.owner.audit(scope=str(ORDERS))[-1]
    assert entry.action == "take over lease" and f"token {short.token}, which expired at 2" in str(entry.before)


def test_a_lease_belongs_to_the_role_that_acquired_it(roles: Roles) -> None:
    """Who knows the owner and the token of a lease neither extends nor ends it."""
    orders = roles.orders.table_id
    with roles.client(roles.maintainer) as catalog, roles.client(roles.reader) as other:
        lease = acquired(catalog, orders)
        held = LeaseHeldByAnother(owner="run", kind=KIND, expires_ms=lease.expires_ms)
        with pytest.raises(OperationRefusedError, match="does not have the privilege append"):
            other.acquire_maintenance_lease(orders, KIND, owner="run", duration_ms=2 * LONG_MS)
        assert other.renew_lease(orders, token=lease.token, duration_ms=2 * LONG_MS) == LeaseLost(
            token=lease.token, holder=held
        )
        other.release_maintenance_lease(orders, owner="run")
        with pytest.raises(OperationRefusedError, match="does not have the privilege maintain"):
            other.expire_lease(orders, owner="run")
        assert catalog.check_lease(orders, token=lease.token) == lease
        with raw_client(roles.url, roles.reader) as client:
            answer = client.execute("SELECT cm_delta_expire_lease(%s, 'run', '')", (orders,)).fetchone()[0]
            assert answer == {"answer": "refused"}
            for kind, owner, duration in (("X", "a", 1), (KIND.value, "", 1), (KIND.value, "a", 0), (None, None, None)):
                call = "SELECT cm_delta_acquire_lease(%s, %s, %s, %s)"
                assert client.execute(call, (orders, kind, owner, duration)).fetchone()[0]["answer"] == "rejected"
        assert catalog.check_lease(orders, token=lease.token) == lease
        with pytest.raises(LeaseNotHeldError, match="run holds it"):
            catalog.expire_lease(orders, owner="other")
        catalog.expire_lease(orders, owner="run", reason="it is stuck")
        assert acquired(catalog, orders, owner="clone").token == lease.token + 2


def test_the_lease_of_a_hidden_table_is_that_of_no_table(roles: Roles) -> None:
    with roles.client(roles.maintainer) as catalog:
        acquired(roles.owner, roles.hidden.table_id)
        for attempt in (
            lambda: catalog.acquire_maintenance_lease(roles.hidden.table_id, KIND, owner="run", duration_ms=1),
            lambda: catalog.renew_lease(roles.hidden.table_id, token=1, duration_ms=1),
            lambda: catalog.expire_lease(roles.hidden.table_id, owner="run"),
        ):
            with pytest.raises(TableNotFoundError):
                attempt()
        with pytest.raises(InvalidArgumentError, match="positive duration"):
            catalog.acquire_maintenance_lease(roles.orders.table_id, KIND, owner="run", duration_ms=0)
        assert catalog.leases() == ()
    assert len(roles.owner.leases()) == 1


def test_a_reader_sees_each_commit_of_its_tables_once(roles: Roles) -> None:
    """The reader places the entries by itself: no other client reads the feed."""
    seen: list[tuple[str, int]] = []
    position = 0
    with roles.client(roles.reader) as catalog:
        for version in range(1, 6):
            roles.owner.commit(roles.orders.table_id, commit_of(version, ADD))
            roles.owner.commit(roles.hidden.table_id, commit_of(version, ADD))
            page = catalog.feed_page(after=position, limit=100)
            seen += [(entry.table_id, entry.version) for entry in page.entries]
            position = page.latest_position
        events = catalog.events(after=0, limit=100)
    assert seen == [(roles.orders.table_id, version) for version in range(6)]
    assert {event.table_id for event in events.events} == {roles.orders.table_id}
    of_owner = roles.owner.feed(after=0, limit=100)
    assert sorted({entry.table_id for entry in of_owner}) == sorted([roles.orders.table_id, roles.hidden.table_id])
    assert len({entry.position for entry in of_owner}) == len(of_owner) == 12


def test_a_reader_waits_for_the_commit_of_another_role(roles: Roles) -> None:
    with roles.client(roles.reader) as reader, roles.client(roles.maintainer) as maintainer:
        after = reader.latest_feed_position()
        assert not reader.wait_for_events(after=after, seconds=0)
        committed = threading.Thread(
            target=maintainer.commit, args=(roles.orders.table_id, commit_of(1, REARRANGE)), daemon=True
        )
        committed.start()
        assert reader.wait_for_events(after=after, seconds=60)
        committed.join()


def test_the_owner_is_notified_of_a_commit_by_the_function(roles: Roles) -> None:
    after = roles.owner.latest_feed_position()
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(roles.owner.wait_for_events(after=after, seconds=60)))
    waiting.start()
    with roles.client(roles.maintainer) as maintainer:
        assert isinstance(maintainer.commit(roles.orders.table_id, commit_of(1, REARRANGE)), Ratified)
    waiting.join()
    assert answers == [True]


def test_entries_without_a_table_are_those_of_the_actor(roles: Roles) -> None:
    roles.owner.grant([Privilege.READ], "main.sales", "ana")
    with raw_client(roles.url, roles.reader) as client:
        client.execute("SELECT cm_delta_record_refusal('x', 'main', NULL, 'mine')")
        client.execute("SELECT cm_delta_record_refusal('x', 'main', %s, 'of a hidden table')", (roles.hidden.table_id,))
        found = client.execute("SELECT table_id, actor FROM cm_delta_feed WHERE table_id IS NULL").fetchall()
        assert found == [(None, roles.reader)] * 2
    with raw_client(roles.url, roles.maintainer) as client:
        query = "SELECT DISTINCT table_id FROM cm_delta_feed"
        assert client.execute(query).fetchall() == [(roles.orders.table_id,)]


def test_webhooks_are_those_of_owners(roles: Roles) -> None:
    hook = Webhook(name="w", url="http://x/y?key=1", secret="env:S", wanted=EventFilter(), position=0)
    roles.owner.put_webhook(hook)
    with roles.client(roles.reader) as catalog:
        assert catalog.webhooks() == () == catalog.webhook_failures("w")
        for attempt in (
            lambda: catalog.put_webhook(hook),
            lambda: catalog.lease_webhook("w", owner="x", duration_ms=1),
            lambda: catalog.delete_old_entries(before_ms=2**62),
        ):
            with pytest.raises(PermissionDeniedError):
                attempt()
        roles.owner.grant([Privilege.OWN], "*", roles.reader)
        assert catalog.webhooks() == (hook,) == roles.owner.webhooks()


def test_requests_for_approval_are_those_of_requesters_and_maintainers(roles: Roles) -> None:
    """Maintenance must see the files of a pending request, so that it keeps them."""
    orders = roles.orders.table_id
    engine = sa.create_engine(roles.url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for approval, requester in (("mine", roles.reader), ("other", "ana")):
            connection.execute(
                sa.text(
                    "INSERT INTO cm_delta_approvals (approval_id, table_id, state, operation, txn_id, read_version, what, "
                    "contacts, requested_by, requested_ms, expires_ms, intent, mode, file_name, file_size, fingerprint, reason) "
                    "VALUES "
                    "(:approval, :of_table, 'pending', 'WRITE', 't', 0, '[]', '[]', :requester, 0, 9999999999999, '{}', "
                    "'staged', 'f', 1, 'p', '')"
                ),
                {"of_table": orders, "approval": approval, "requester": requester},
            )
    with roles.client(roles.reader) as reader, roles.client(roles.maintainer) as maintainer:
        assert [one.approval_id for one in reader.approvals()] == ["mine"]
        kept = maintainer.protected_commits(orders)
        assert [one.approval.approval_id for one in kept] == ["mine", "other"]
        with pytest.raises(PermissionDeniedError):
            reader.reject_approval("mine", reason="no")
