"""A catalog of the revision before principals and roles had namespaces: whose its names are after the migration."""

import json
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege, Role
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitRefusedError
from tests.contracts.catalog_bench import NAME
from tests.support.commit_builder import ADD, commit_of
from tests.support.old_catalogs import NOW_MS, make_old_catalog

STAFF = TableIdentifier("main", "staff", "salaries")


@pytest.fixture
def old_url(catalog_url: str) -> str:
    """URL of a catalog of revision 0013, in which the same calls were made on both databases."""
    make_old_catalog(catalog_url, "0013")
    return catalog_url


@pytest.fixture
def migrated(old_url: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(old_url, warehouse="memory://w", now_ms=lambda: NOW_MS, principal="lake_owner") as catalog:
        catalog.registry.list_tables()
        yield catalog


def test_names_stay_those_of_roles_or_of_users(migrated: SqlCatalog) -> None:
    everything = Role(name="everything", members=("pipelines", "steward_rosa"))
    assert migrated.access.roles() == (everything, Role(name="pipelines", members=("load_orders",)))
    assert {(one.grantee, one.scope, one.privilege) for one in migrated.access.grants()} == {
        ("lake_owner", "*", Privilege.OWN),
        ("pipelines", "main.sales", Privilege.MODIFY),
        ("report_reader", str(STAFF), Privilege.READ),
        ("public", "main", Privilege.READ),
        ("alter_ana", str(NAME), Privilege.ALTER),
    }
    owners = [migrated.access.table_owner(migrated.registry.load_table(name).table_id) for name in (NAME, STAFF)]
    assert owners == ["everything", "steward_rosa"]
    columns, keep = migrated.commit_rules.commit_rules()
    assert (columns.arguments, keep.arguments) == ({"principals": ("everything", "report_reader", "public")}, {})
    assert migrated.maintenance_policies.maintenance_rules()[0].conditions.principals == ("pipelines", "report_reader")
    (waiting,) = migrated.holds.holds()
    assert (waiting.requested_by, waiting.state) == ("load_orders", HoldState.PENDING)
    assert {entry.principal for entry in migrated.feed.feed(after=0, limit=99)} == {"lake_owner", "load_orders"}


def test_members_keep_their_privileges_and_users_named_like_roles_have_none(migrated: SqlCatalog) -> None:
    orders = migrated.registry.load_table(NAME).table_id
    loader, named_alike = migrated.acting_as("load_orders"), migrated.acting_as("pipelines")
    assert loader.access.whoami().roles == ("everything", "pipelines") and named_alike.access.whoami().roles == ()
    assert isinstance(loader.coordinator.commit(orders, commit_of(3, ADD)), Ratified)
    with pytest.raises(CommitRefusedError, match="does not have the privilege append"):
        named_alike.coordinator.commit(orders, commit_of(4, ADD))
    kind = MaintenanceKind.DATA_CLEANUP
    assert loader.maintenance_policies.maintenance_decision(NAME, kind, table_id=orders).allowed
    assert not named_alike.maintenance_policies.maintenance_decision(NAME, kind, table_id=orders).allowed


def test_a_name_that_begins_like_one_in_storage_stays_another_one(old_url: str) -> None:
    engine = sa.create_engine(old_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE cm_delta_grants SET grantee = 'user:report_reader' WHERE grantee = 'alter_ana'")
        )
    with SqlCatalog(old_url, now_ms=lambda: NOW_MS, principal="lake_owner") as catalog:
        grants = {(one.grantee, one.privilege) for one in catalog.access.grants() if "report_reader" in one.grantee}
    assert grants == {("report_reader", Privilege.READ), ("user:user:report_reader", Privilege.ALTER)}


def test_a_request_covers_the_same_rules(old_url: str) -> None:
    """The names in the rules that a request was made for are converted as those of the rules are."""
    demand = {
        "scope": "main",
        "name": "columns",
        "kind": "schema_change",
        "arguments": {"principals": ["everything", "report_reader", "public"]},
    }
    engine = sa.create_engine(old_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE cm_delta_approvals SET rules = :rules"), {"rules": json.dumps([json.dumps(demand)])}
        )
    with SqlCatalog(old_url, now_ms=lambda: NOW_MS, principal="lake_owner") as catalog:
        catalog.registry.list_tables()
    with engine.begin() as connection:
        rules = connection.execute(sa.text("SELECT rules FROM cm_delta_held_commits")).scalar_one()
        arguments = connection.execute(
            sa.text("SELECT arguments FROM cm_delta_commit_rules WHERE name = 'columns'")
        ).scalar_one()
    assert json.loads(json.loads(rules)[0]) == {**demand, "arguments": json.loads(arguments)}
    assert json.loads(arguments) == {"principals": ["role:everything", "user:report_reader", "role:public"]}
