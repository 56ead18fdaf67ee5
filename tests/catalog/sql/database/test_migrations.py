"""Catalogs of earlier revisions: which are migrated with everything in them, and which are refused."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyRule
from cm_delta_dagster.catalog.holds import HoldState, WaitsFor
from cm_delta_dagster.catalog.maintenance import LeaseHeldByAnother, MaintenanceKind
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.migrate import COMMIT_FOR_REFUSED, HEAD, REFUSED, VERSION_TABLE, create
from cm_delta_dagster.catalog.sql.database.schema import METADATA
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CatalogVersionError
from cm_delta_dagster.protocol.commits.proposal_checks.marks import IdentityMark, Marks
from tests.contracts.catalog_bench import NAME, proposal
from tests.support.commit_builder import ADD, commit_of
from tests.support.old_catalogs import NOW_MS, make_old_catalog, make_old_postgres_catalog
from tests.support.stated_marks import numbered

SALARIES = TableIdentifier("main", "staff", "salaries")
RENAMED = TableIdentifier("Lake", "Sales", "renamed")


def test_a_catalog_of_release_0_1_keeps_its_tables_rules_and_feed(catalog_url: str) -> None:
    make_old_catalog(catalog_url, "0004")
    with SqlCatalog(catalog_url, warehouse="memory://w", now_ms=lambda: NOW_MS) as catalog:
        assert catalog.registry.list_tables() == (RENAMED, NAME, SALARIES)
        assert [(table.identifier.table, table.state.value) for table in catalog.registry.inactive_tables()] == [
            ("old", "dropped"),
            ("reserved", "staging"),
        ]
        assert catalog.commit_policies.commit_policies() == (
            CommitPolicyRule(scope="main.staff", policy=CommitPolicy.parse("inline")),
        )
        (rule,) = catalog.maintenance_policies.maintenance_rules()
        assert (rule.scope, rule.kind, rule.allowed, rule.reason) == (
            "main",
            MaintenanceKind.DATA_CLEANUP,
            False,
            "kept for the audit",
        )
        assert [schema.name for schema in catalog.namespaces.list_schemas()] == [
            "Lake.Sales",
            "main.sales",
            "main.staff",
        ]
        assert {namespace.created_ms for namespace in catalog.namespaces.list_catalogs()} == {
            1_763_800_000_000,
            1_763_800_002_000,
        }
        orders, salaries = catalog.registry.load_table(NAME), catalog.registry.load_table(SALARIES)
        assert orders.definition is not None and orders.definition.version == 2
        assert [commit.version for commit in orders.ratified.commits] == [2]
        (inline,) = salaries.ratified.commits
        assert inline.version == 2 and inline.content is not None and len(inline.content) == inline.file_size
        assert catalog.pins.pinned_version(orders.table_id, owner="run") == 1
        lease = catalog.leases.acquire_maintenance_lease(
            orders.table_id, MaintenanceKind.CHECKPOINT, owner="other", duration_ms=1000
        )
        assert isinstance(lease, LeaseHeldByAnother) and lease.owner == "run"
        feed = catalog.feed.feed(after=0, limit=99)
        assert [(entry.position, str(entry.identifier), entry.version) for entry in feed] == [
            (1, "main.sales.orders", 0),
            (2, "main.staff.salaries", 0),
            (3, "main.sales.orders", 1),
            (4, "main.staff.salaries", 1),
            (5, "main.sales.orders", 2),
            (6, "main.staff.salaries", 2),
            (7, "main.sales.old", 0),
            (8, "Lake.Sales.renamed", 0),
        ]
        assert isinstance(catalog.coordinator.commit(orders.table_id, proposal(3)), Ratified)
        assert [(entry.position, entry.version) for entry in catalog.feed.feed(after=8, limit=9)] == [(9, 3)]
        assert catalog.registry.undrop_table(catalog.registry.inactive_tables()[0].table_id).identifier.table == "old"


def test_a_catalog_of_revision_0013_keeps_its_tables_grants_rules_approvals_and_feed(catalog_url: str) -> None:
    """Whose the names in it are says ``test_namespaces``."""
    make_old_catalog(catalog_url, "0013")
    before = _counts(catalog_url)
    with SqlCatalog(catalog_url, warehouse="memory://w", now_ms=lambda: NOW_MS, principal="lake_owner") as catalog:
        assert catalog.registry.list_tables() == (NAME, TableIdentifier("main", "staff", "salaries"))
        kept = {name: count for name, count in before.items() if "webhook" not in name}
        kept["cm_delta_held_commits"] = kept.pop("cm_delta_approvals")
        assert _counts(catalog_url) == {
            **kept,
            "cm_delta_namespaces": 3,
            "cm_delta_application_ids": 0,
            "cm_delta_tokens": 0,
        }
        assert [namespace.name for namespace in catalog.namespaces.list_catalogs()] == ["main"]
        assert [namespace.name for namespace in catalog.namespaces.list_schemas()] == ["main.sales", "main.staff"]
        assert len(catalog.access.grants()) == 5 and [
            rule.name for rule in catalog.commit_rules.commit_rules("main.sales")
        ] == [
            "columns",
            "keep",
        ]
        assert [(held.state, held.waits_for, len(held.tables)) for held in catalog.holds.holds()] == [
            (HoldState.PENDING, WaitsFor.APPROVAL, 1)
        ]
        assert [entry.version for entry in catalog.feed.feed(after=0, limit=99)] == [0, 0, 1, 1, 2]
        orders = catalog.registry.load_table(NAME).table_id
        assert isinstance(catalog.acting_as("load_orders").coordinator.commit(orders, commit_of(3, ADD)), Ratified)
        lease = catalog.leases.acquire_maintenance_lease(
            orders, MaintenanceKind.CHECKPOINT, owner="x", duration_ms=1000
        )
        assert isinstance(lease, LeaseHeldByAnother) and lease.kind is MaintenanceKind.DATA_REORGANIZATION


@pytest.mark.parametrize("revision", ["0004", "0013"])
@pytest.mark.parametrize(
    ("metadata", "marks"),
    [(json.dumps(numbered(5, name="Number")), {"number": IdentityMark(1, 1, 5)}), ("{", {}), (None, {})],
    ids=["identity", "damaged", "unknown"],
)
def test_a_migrated_catalog_knows_the_marks_of_identity_columns(
    catalog_url: str, revision: str, metadata: str | None, marks: Mapping[str, IdentityMark]
) -> None:
    make_old_catalog(catalog_url, revision)
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE cm_delta_definitions SET metadata = :metadata"), {"metadata": metadata})
    with SqlCatalog(catalog_url, warehouse="memory://w", now_ms=lambda: NOW_MS) as catalog:
        catalog.registry.identity()
    query = "SELECT t.row_id_mark, t.identity_marks FROM cm_delta_tables t JOIN cm_delta_definitions d ON d.table_id = t.table_id"
    with engine.connect() as connection:
        rows = connection.execute(sa.text(query)).all()
    assert {Marks.stored(*row).identity_text() for row in rows} == {Marks(identity=marks).identity_text()}
    assert {row.row_id_mark for row in rows} == {None}


def _counts(url: str) -> dict[str, int]:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return {
            name: connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in sa.inspect(connection).get_table_names()
        }


@pytest.mark.parametrize("revision", ["0004", "0013"])
def test_a_migrated_database_has_the_schema_of_a_new_one(catalog_url: str, revision: str) -> None:
    make_old_catalog(catalog_url, revision)
    with SqlCatalog(catalog_url) as catalog:
        catalog.registry.identity()
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        migrated = _described(connection)
        METADATA.drop_all(connection)
        connection.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")
        create(connection)
        assert _described(connection) == migrated
        connection.rollback()
    assert migrated.keys() == {*METADATA.tables, VERSION_TABLE}


def _described(connection: sa.Connection) -> dict[str, object]:
    """Of each table its columns, keys, constraints and indexes, without the order of columns."""
    inspector = sa.inspect(connection)
    return {
        name: (
            {column["name"]: {**column, "type": str(column["type"])} for column in inspector.get_columns(name)},
            inspector.get_pk_constraint(name),
            sorted(inspector.get_foreign_keys(name), key=str),
            sorted(inspector.get_unique_constraints(name), key=str),
            sorted(inspector.get_check_constraints(name), key=str),
            sorted(_as_texts(index) for index in inspector.get_indexes(name)),
        )
        for name in inspector.get_table_names()
    }


def _as_texts(index: Mapping[str, Any]) -> list[str]:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return [str(index["name"]), str(index["column_names"]), str(index["unique"]), str(options)]


@pytest.mark.parametrize("revision", ["0007", "0012"])
def test_a_catalog_that_no_release_made_is_refused_with_the_commit_that_migrates_it(
    catalog_url: str, revision: str
) -> None:
    make_old_catalog(catalog_url, "0004")
    _set_revision(catalog_url, revision)
    before = _counts(catalog_url)
    with SqlCatalog(catalog_url) as catalog, pytest.raises(CatalogVersionError) as refused:
        catalog.registry.list_tables()
    shown = "sqlite:///" if catalog_url.startswith("sqlite") else "postgresql"
    message = str(refused.value)
    assert message.startswith(f"The catalog {shown}")
    assert message.partition(" has schema revision ")[2] == (
        f"{revision}, which this release does not migrate: no release had it. Nothing was changed. Install commit "
        f"{COMMIT_FOR_REFUSED} of this package, open the catalog once, and use this release again. "
        "This release itself migrates the revisions 0004, 0013, 0014, 0015, 0016, 0017, 0018, 0019, 0020, 0021."
    )
    assert _counts(catalog_url) == before and HEAD not in REFUSED


def _set_revision(url: str, revision: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))


@pytest.mark.postgres
def test_tables_that_a_member_of_the_owner_adds_belong_to_the_owner(postgres_url: str) -> None:
    owner = make_old_postgres_catalog(postgres_url, "0004")["lake_owner"]
    with SqlCatalog(postgres_url) as catalog:  # As a superuser, who is a member of every role.
        catalog.registry.identity()
    engine = sa.create_engine(postgres_url, poolclass=sa.pool.NullPool)
    query = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relname LIKE 'cm!_delta!_%' ESCAPE '!'"
    with engine.connect() as connection:
        assert connection.execute(sa.text(query)).scalars().all() == [owner]
