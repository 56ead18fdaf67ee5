"""Contract of ``CatalogOverview``: pages of tables and of commits, with what the caller may read and nothing else.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, OperationRefusedError, TableNotFoundError
from tests.contracts.catalog_bench import NAME, Bench, Rule, create, proposal

STAFF = TableIdentifier("main", "staff", "people")
OF_OTHERS = TableIdentifier("other", "sales", "orders")


def _names(catalog: Catalog, scope: str = "") -> list[TableIdentifier]:
    return [table.identifier for table in catalog.overview.table_overviews(scope)]


def an_overview_of_tables_has_what_their_newest_commits_state(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        for name in (OF_OTHERS, NAME, STAFF):
            create(owner, name)
        table = owner.registry.load_table(NAME)
        counted = proposal(1)
        counts = TableCounts(num_rows=None, num_files=3, size_bytes=77)
        bench.clock.now += 5
        owner.coordinator.commit(
            table.table_id, replace(counted, summary=replace(counted.summary, counts=counts, operation="MERGE"))
        )
        assert _names(owner) == [NAME, STAFF, OF_OTHERS]
        (overview,) = owner.overview.table_overviews("main", limit=1)
        assert (overview.version, overview.published_version, overview.unpublished_commits) == (1, 0, 1)
        assert (overview.operation, overview.counts, overview.ratified_ms) == ("MERGE", counts, bench.clock.now)
        assert overview.table_id == table.table_id
        others = owner.overview.table_overviews(after=overview.identifier)
        assert [(entry.identifier, entry.version, entry.counts) for entry in others] == [
            (STAFF, 0, None),
            (OF_OTHERS, 0, None),
        ]
        assert owner.overview.table_overviews("main", after=STAFF) == ()
        owner.registry.drop_table(NAME)
        assert _names(owner, "main") == [STAFF]


def pages_of_commits_begin_with_the_newest(bench: Bench) -> None:
    with bench.client() as catalog:
        table, other = create(catalog).table_id, create(catalog, STAFF).table_id
        for version in (1, 2):
            catalog.coordinator.commit(table, proposal(version))
        first = catalog.overview.newest_commits(limit=2)
        assert [(entry.identifier, entry.version) for entry in first] == [(NAME, 2), (NAME, 1)]
        rest = catalog.overview.newest_commits(before=first[-1].position)
        assert [(entry.identifier, entry.version) for entry in rest] == [(STAFF, 0), (NAME, 0)]
        assert (*rest[::-1], *first[::-1]) == tuple(catalog.feed.feed(after=0, limit=9))
        assert [entry.table_id for entry in catalog.overview.newest_commits("main.staff")] == [other]
        newest = catalog.overview.table_commits(table, limit=2)
        oldest = catalog.overview.table_commits(table, before=newest[-1].version)
        assert [commit.version for commit in (*newest, *oldest)] == [2, 1, 0]
        assert [commit.summary for commit in newest] == [entry.summary for entry in first]
        assert catalog.overview.table_commits(table, before=0) == ()


def an_overview_has_only_what_the_caller_may_read(bench: Bench) -> None:
    """Each way to get the privilege: by a scope, by a table, by a role, by a privilege that includes it, as an owner."""
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana:
        for name in (NAME, STAFF, OF_OTHERS):
            create(owner, name)
        owner.access.enable_grants(owner="owner")
        table_id = owner.registry.load_table(STAFF).table_id
        owner.access.add_to_role("team", ["ana"])
        for privilege, scope, grantee, names in (
            (Privilege.READ, "main", "ana", [NAME, STAFF]),
            (Privilege.MAINTAIN, "main.sales", "ana", [NAME]),
            (Privilege.APPEND, str(OF_OTHERS), "ana", [OF_OTHERS]),
            (Privilege.READ, "*", "role:team", [NAME, STAFF, OF_OTHERS]),
            (Privilege.OWN, "main.staff", "role:public", [STAFF]),
        ):
            assert _names(ana) == [] and ana.overview.newest_commits() == ()
            with pytest.raises(OperationRefusedError):
                ana.overview.table_commits(table_id)
            owner.access.grant([privilege], scope, grantee)
            assert _names(ana) == names
            assert {entry.identifier for entry in ana.overview.newest_commits()} == {*names}
            owner.access.revoke([privilege], scope, grantee)
        owner.access.transfer_table(table_id, "ana")
        assert _names(ana) == [STAFF] and len(ana.overview.table_commits(table_id)) == 1
        assert _names(owner) == [NAME, STAFF, OF_OTHERS]


def impossible_pages_are_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        for call in (
            lambda: catalog.overview.table_overviews("a.b.c.d"),
            lambda: catalog.overview.table_overviews(limit=-1),
            lambda: catalog.overview.newest_commits("a..b"),
            lambda: catalog.overview.newest_commits(before=-1),
            lambda: catalog.overview.newest_commits(limit=2**63),
            lambda: catalog.overview.table_commits(table_id, before=2**63),
            lambda: catalog.overview.table_commits(table_id, limit=-1),
        ):
            with pytest.raises(InvalidArgumentError):
                call()
        with pytest.raises(TableNotFoundError):
            catalog.overview.table_commits("none")
        catalog.registry.drop_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.overview.table_commits(table_id)


OVERVIEW_CONTRACT: tuple[Rule, ...] = (
    an_overview_of_tables_has_what_their_newest_commits_state,
    pages_of_commits_begin_with_the_newest,
    an_overview_has_only_what_the_caller_may_read,
    impossible_pages_are_refused,
)
