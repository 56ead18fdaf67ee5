"""Roles of PostgreSQL: what they need to use a catalog, as whom they act, and who migrates it."""

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.access import CallerSource, Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database import migrate
from cm_delta_dagster.catalog.sql.database.migrations import from_0013
from cm_delta_dagster.catalog.sql.database.schema import APPLICATION_IDS, HELD_COMMITS, METADATA, NAMESPACES, TOKENS
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitRefusedError, OperationRefusedError, PermissionDeniedError
from tests.contracts.catalog_bench import NAME, OTHER, create
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.database_roles import create_role, raw_client, url_as
from tests.support.holds import hold_one
from tests.support.old_catalogs import NOW_MS, make_old_postgres_catalog

pytestmark = pytest.mark.postgres

DOCS = Path(__file__).parents[2] / "docs" / "permissions.md"
STAFF = TableIdentifier("main", "staff", "salaries")


def grant_as_documented(url: str, role: str, documented: str) -> None:
    """Run the statements for the role ``documented`` of the page about permissions for ``role``."""
    blocks = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if f"TO {documented};" in block)
    database = sa.make_url(url).database
    block = block.replace("DATABASE lake", f"DATABASE {database}").replace(documented, role)
    with raw_client(url, "postgres") as client:
        client.execute(block)


def test_a_role_with_the_documented_rights_writes(postgres_url: str) -> None:
    writer = create_role(postgres_url, "writer")
    waits = CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        table_id = create(owner).table_id
        grant_as_documented(postgres_url, writer, "load_orders")
        owner.commit_rules.set_commit_rule(waits)
        owner.access.enable_grants()
        owner.access.grant([Privilege.OWN], "main", writer)
        with SqlCatalog(url_as(postgres_url, writer), warehouse="memory://w") as catalog:
            assert isinstance(catalog.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
            kept = hold_one(catalog, table_id, commit_of(2, REMOVE))
            assert kept is not None
            catalog.holds.reject_hold(kept.hold_id, reason="no")
            lease = catalog.leases.acquire_maintenance_lease(
                table_id, MaintenanceKind.CHECKPOINT, owner="run", duration_ms=1000
            )
            assert isinstance(lease, LeaseGranted)
            catalog.coordinator.set_published_version(table_id, 1)
            catalog.pins.pin_version(table_id, 1, owner="run")
            created = create(catalog, OTHER)
            catalog.coordinator.commit_together({table_id: commit_of(2, ADD), created.table_id: commit_of(1, ADD)})
            catalog.access.grant([Privilege.READ], str(OTHER), "public")
            catalog.registry.drop_table(OTHER)
            assert [entry.principal for entry in catalog.feed.feed(after=0, limit=9)][-1] == writer
    with raw_client(postgres_url, writer) as client, pytest.raises(Exception, match="permission denied"):
        client.execute(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '0'")


def test_a_role_with_the_documented_rights_reads(postgres_url: str) -> None:
    reader = create_role(postgres_url, "reader")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        table_id = create(owner).table_id
        grant_as_documented(postgres_url, reader, "reports")
        owner.feed.latest_feed_position()
        with SqlCatalog(url_as(postgres_url, reader)) as catalog:
            assert (
                catalog.registry.load_table(NAME).table_id == table_id and len(catalog.feed.feed(after=0, limit=9)) == 1
            )
            assert catalog.pins.pin_version(table_id, 0, owner="run") == 0
            assert catalog.pins.raise_pinned_version(table_id, 0, owner="run") == 0
            with pytest.raises(PermissionDeniedError, match="Ask postgres, the role that owns"):
                catalog.coordinator.commit(table_id, commit_of(1, ADD))


def test_the_stated_principal_counts_and_else_the_role_that_logs_in(postgres_url: str) -> None:
    """Grants trust the client; without one of its own it is not asked who it is."""
    writer = create_role(postgres_url, "writer")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        table_id = create(owner).table_id
        grant_as_documented(postgres_url, writer, "load_orders")
        assert owner.access.whoami().source is CallerSource.DATABASE
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], str(NAME), "ana")
        with SqlCatalog(url_as(postgres_url, writer)) as catalog:
            assert (catalog.access.whoami().principal, catalog.access.whoami().source) == (
                writer,
                CallerSource.DATABASE,
            )
            with pytest.raises(CommitRefusedError, match=f"the principal {writer} does not have"):
                catalog.coordinator.commit(table_id, commit_of(1, ADD))
            with pytest.raises(OperationRefusedError):
                catalog.registry.load_table(NAME)
            assert catalog.registry.list_tables() == (NAME,) and len(catalog.feed.feed(after=0, limit=9)) == 1
        with SqlCatalog(url_as(postgres_url, writer), principal="ana") as catalog:
            assert (catalog.access.whoami().principal, catalog.access.whoami().source) == (
                "ana",
                CallerSource.CONNECTION,
            )
            assert isinstance(catalog.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
        assert [entry.principal for entry in owner.feed.feed(after=1, limit=9)] == ["ana"]


_RIGHTS = sa.text(
    "SELECT c.relname, a.grantee::regrole::text, a.privilege_type FROM pg_class c LEFT JOIN pg_attribute t ON t.attrelid = c.oid, "
    "LATERAL (SELECT * FROM aclexplode(c.relacl) UNION ALL SELECT * FROM aclexplode(t.attacl)) a "
    "WHERE c.relname LIKE 'cm!_delta!_%' ESCAPE '!' AND a.grantee <> c.relowner"
)
_ENFORCEMENT = sa.text(
    "SELECT proname FROM pg_proc WHERE proname LIKE 'cm!_delta!_%' ESCAPE '!' UNION ALL SELECT polname FROM pg_policy "
    "UNION ALL SELECT relname FROM pg_class WHERE relrowsecurity"
)
_RESTRICTED = sa.text("SELECT relname FROM pg_class WHERE relrowsecurity")

_UNRESTRICTED = sa.text(
    "SELECT relname FROM pg_class WHERE NOT relrowsecurity AND relkind = 'r' AND relname LIKE 'cm!_delta!_%' ESCAPE '!'"
)


def of_database(url: str, query: sa.TextClause) -> list[str]:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return sorted(map(str, connection.execute(query)))


def test_the_owner_of_the_tables_migrates_an_enforced_catalog(postgres_url: str) -> None:
    """Functions and policies are gone, no role has a right more than before, and nothing else has changed."""
    roles = make_old_postgres_catalog(postgres_url, "0013", rename_rows=True)
    assert len(of_database(postgres_url, _ENFORCEMENT)) > 50
    writer = url_as(postgres_url, roles["load_orders"])
    for _ in range(2):
        with (
            SqlCatalog(writer) as catalog,
            pytest.raises(PermissionDeniedError, match="The owner of the tables has to migrate: ") as caught,
        ):
            catalog.registry.list_tables()
        assert f"{roles['lake_owner']}, or a member of it" in str(caught.value)
    tables = METADATA.tables.keys() - {
        NAMESPACES.name,
        APPLICATION_IDS.name,
        TOKENS.name,
        HELD_COMMITS.name,
    }  # The migration creates them.
    approvals = of_database(postgres_url, sa.text("SELECT count(*) FROM cm_delta_approvals"))
    counts = {name: of_database(postgres_url, sa.text(f"SELECT count(*) FROM {name}")) for name in tables}
    with SqlCatalog(url_as(postgres_url, roles["lake_owner"]), warehouse="memory://w", now_ms=lambda: NOW_MS) as owner:
        assert owner.registry.list_tables() == (NAME, STAFF)
        assert of_database(postgres_url, _ENFORCEMENT) == [] == of_database(postgres_url, _RIGHTS)
        after = {name: of_database(postgres_url, sa.text(f"SELECT count(*) FROM {name}")) for name in tables}
        assert after == counts
        assert of_database(postgres_url, sa.text(f"SELECT count(*) FROM {HELD_COMMITS.name}")) == approvals
        caller = owner.access.whoami()
        assert caller.grants_enabled and caller.principal == roles["lake_owner"]
        assert [one.name for one in owner.commit_rules.commit_rules("main.sales")] == ["columns", "keep"]
        principals = (roles["load_orders"],), tuple(sorted(("pipelines", roles["steward_rosa"])))
        assert {one.name: one.members for one in owner.access.roles()} == dict(
            zip(("pipelines", "everything"), principals, strict=True)
        )
        (waiting,) = owner.holds.holds()
        assert waiting.requested_by == roles["load_orders"]
        assert [one.version for one in owner.feed.feed(after=0, limit=99)] == [0, 0, 1, 1, 2]
    with SqlCatalog(writer) as catalog, pytest.raises(PermissionDeniedError, match="permission denied for table"):
        catalog.registry.list_tables()
    grant_as_documented(postgres_url, roles["load_orders"], "load_orders")
    with SqlCatalog(writer, now_ms=lambda: NOW_MS) as catalog:
        orders = catalog.registry.load_table(NAME).table_id
        assert isinstance(catalog.coordinator.commit(orders, commit_of(3, ADD)), Ratified)
        staff = catalog.registry.load_table(STAFF).table_id
        with pytest.raises(CommitRefusedError, match="privilege append on"):
            catalog.coordinator.commit(staff, commit_of(2, ADD))


def test_no_role_keeps_rights_on_tables_of_a_catalog_that_enforced_grants(postgres_url: str) -> None:
    """Rights on tables or columns, also those that another role gave with the grant option, and on tables without policies."""
    roles = make_old_postgres_catalog(postgres_url, "0013", rename_rows=True)
    analyst, clerk, auditor = (create_role(postgres_url, name) for name in ("analyst", "clerk", "auditor"))
    restricted = re.findall(r"cm_delta_\w+", " ".join(of_database(postgres_url, _RESTRICTED)))
    assert {"cm_delta_tables", "cm_delta_commits"} <= set(restricted)
    unrestricted = re.findall(r"cm_delta_\w+", " ".join(of_database(postgres_url, _UNRESTRICTED)))
    assert "cm_delta_grants" in unrestricted
    with raw_client(postgres_url, roles["lake_owner"]) as client:
        client.execute(f"GRANT SELECT, UPDATE, DELETE ON {', '.join(restricted)} TO {analyst} WITH GRANT OPTION")
        client.execute(f"GRANT SELECT (table_id), UPDATE (table_id) ON cm_delta_tables TO {auditor}")
        client.execute(f"GRANT SELECT, INSERT ON {', '.join(unrestricted)} TO {auditor} WITH GRANT OPTION")
    with raw_client(postgres_url, analyst) as client:
        client.execute(f"GRANT SELECT, DELETE ON {', '.join(restricted)} TO {clerk}")
        assert client.execute("DELETE FROM cm_delta_commits").rowcount == 0, "policies let it delete no row"
    with SqlCatalog(url_as(postgres_url, roles["lake_owner"]), warehouse="memory://w", now_ms=lambda: NOW_MS) as owner:
        assert owner.registry.list_tables() == (NAME, STAFF)
    assert of_database(postgres_url, _RIGHTS) == []
    for role in (analyst, clerk, auditor):
        for statement in (
            "SELECT table_id FROM cm_delta_tables",
            "DELETE FROM cm_delta_commits",
            "SELECT grantee FROM cm_delta_grants",
            "INSERT INTO cm_delta_grants VALUES ('clerk', '*', 'own', 'clerk', 0)",
        ):
            with (
                raw_client(postgres_url, role) as client,
                pytest.raises(Exception, match="permission denied for table"),
            ):
                client.execute(statement)


def test_rights_that_were_granted_without_enforcement_stay(postgres_url: str) -> None:
    writer = create_role(postgres_url, "writer")
    with SqlCatalog(postgres_url, warehouse="memory://w") as owner:
        create(owner)
        grant_as_documented(postgres_url, writer, "load_orders")
    before = of_database(postgres_url, _RIGHTS)
    engine = sa.create_engine(postgres_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        from_0013.upgrade(connection)
    assert of_database(postgres_url, _RIGHTS) == before != []
