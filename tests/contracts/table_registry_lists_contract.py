"""Contract of the lists of ``TableRegistry`` and ``NamespaceRegistry``: their order, their parts, and what the caller may read.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from tests.contracts.catalog_bench import Bench, Rule, create, proposal

T = TypeVar("T")
TABLES = tuple(
    TableIdentifier.parse(text) for text in ("b.s.t", "a.s.t", "a.S.t", "a.s-2.t", "a.s.Ü", "a.s.a_1", "a-1.x.t")
)
"""Their order is another one by most collations, and another one by their text."""

SCOPES = ("", "a", "a.s", "a.s.t", "a-1", "c", "a.x")
IMPOSSIBLE = (0, -1, 2**63)


def in_parts(read: Callable[[T | None], Sequence[T]]) -> Iterator[T]:
    """What is read part by part, each after the last value of the one before."""
    last = None
    while part := read(last):
        yield from part
        last = part[-1]


def of_scope(scope: str) -> list[TableIdentifier]:
    return sorted(name for name in TABLES if f"{name}.".startswith(f"{scope}." if scope else ""))


def tables_are_listed_by_scope_in_order_of_name(bench: Bench) -> None:
    with bench.client() as catalog:
        for name in (*TABLES, TableIdentifier("a", "s", "gone")):
            create(catalog, name)
        registry = catalog.registry
        registry.drop_table(TableIdentifier("a", "s", "gone"))
        for scope in SCOPES:
            expected = of_scope(scope)
            assert list(registry.list_tables(scope)) == expected
            entries = registry.readable_tables(scope)
            assert [entry.identifier for entry in entries.entries] == expected and entries.last is None
            for limit in (1, 2, 100, 2**62):
                listed = in_parts(lambda last: registry.list_tables(scope, after=last, limit=limit))  # noqa: B023
                assert list(listed) == expected
            for after in (*TABLES, TableIdentifier("a", "s", "gone"), TableIdentifier("a", "zz", "z")):
                following = [name for name in expected if name > after]
                assert list(registry.list_tables(scope, after=after)) == following
                assert [entry.identifier for entry in registry.readable_tables(scope, after=after).entries] == following


def an_impossible_part_of_a_list_is_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        name = create(catalog, TABLES[0]).identifier
        malformed = TableIdentifier("a", "s", "a b")
        for read in (catalog.registry.list_tables, catalog.registry.readable_tables):
            for limit in IMPOSSIBLE:
                with pytest.raises(InvalidArgumentError, match="limit of a list"):
                    read(after=name, limit=limit)
            for scope in ("a b", "a.s.t.x", ".", "a."):
                with pytest.raises(InvalidArgumentError):
                    read(scope, limit=1)
            with pytest.raises(InvalidArgumentError):
                read(after=malformed)
        for limit in IMPOSSIBLE:
            for schemas in (catalog.namespaces.list_catalogs, catalog.namespaces.list_schemas):
                with pytest.raises(InvalidArgumentError, match="limit of a list"):
                    schemas(limit=limit)
        for after in ("a b", "b", "a.b.c"):
            with pytest.raises(InvalidArgumentError):
                catalog.namespaces.list_schemas(after=after)
        with pytest.raises(InvalidArgumentError):
            catalog.namespaces.list_catalogs(after="b.s")


def catalogs_and_schemas_are_listed_in_parts(bench: Bench) -> None:
    with bench.client() as catalog:
        for name in TABLES:
            create(catalog, name)
        namespaces = catalog.namespaces
        names = sorted({(name.catalog, name.schema) for name in TABLES})
        expected = {scope: [".".join(name) for name in names if scope in ("", name[0])] for scope in ("", "a", "c")}
        expected_catalogs = sorted({name.catalog for name in TABLES})
        for limit in (1, 2, 100):

            def catalogs(last: Namespace | None, limit: int = limit) -> Sequence[Namespace]:
                return namespaces.list_catalogs(after=last.name if last else "", limit=limit)

            assert [listed.name for listed in in_parts(catalogs)] == expected_catalogs
            for scope, schemas in expected.items():

                def read(last: Namespace | None, scope: str = scope, limit: int = limit) -> Sequence[Namespace]:
                    return namespaces.list_schemas(scope, after=last.name if last else "", limit=limit)

                assert [listed.name for listed in in_parts(read)] == schemas
        assert [schema.name for schema in namespaces.list_schemas("a", after="a.dropped")] == ["a.s", "a.s-2"]


def the_readable_tables_are_those_that_are_loaded(bench: Bench) -> None:
    """An entry has the commits that are not published, and a part ends after a number of tables, not of commits."""
    with bench.client() as catalog:
        names = [TableIdentifier("main", "s", name) for name in ("a", "b", "c")]
        for name in names:
            table = create(catalog, name)
            for version in (1, 2, 3):
                catalog.coordinator.commit(table.table_id, proposal(version))
        page = catalog.registry.readable_tables("main.s", limit=2)
        assert page.entries == tuple(map(catalog.registry.load_table, names[:2])) and page.last == names[1]
        assert [commit.version for commit in page.entries[0].ratified.unpublished] == [1, 2, 3]
        rest = catalog.registry.readable_tables("main.s", after=page.last, limit=2)
        assert rest.entries == (catalog.registry.load_table(names[2]),) and rest.last is None


def tables_that_the_caller_may_not_read_are_left_out(bench: Bench) -> None:
    """By any privilege, on any scope, of the caller, a role of its, or everybody. Nothing of it is a refusal."""
    with bench.client_of("owner") as owner, bench.client_of("reader") as reader:
        names = [TableIdentifier("main", "s", name) for name in ("a", "b", "c", "d", "e")]
        for name in names:
            create(owner, name)
        create(owner, TableIdentifier("main", "other", "t"))
        owner.access.enable_grants()
        assert _readable(reader) == []
        grantee = reader.access.whoami().principal
        assert grantee is not None
        owner.access.add_to_role("team", [grantee])
        owner.access.grant([Privilege.READ], "main.s.b", grantee)
        owner.access.grant([Privilege.MAINTAIN], "main.s.d", "team")
        owner.access.grant([Privilege.APPEND], "main.s.e", "public")
        assert _readable(reader) == ["b", "d", "e"]
        page = reader.registry.readable_tables("main.s", limit=3)
        assert [entry.identifier for entry in page.entries] == [names[1]] and page.last == names[2]
        owner.access.grant([Privilege.READ], "main.s", grantee)
        assert _readable(reader) == ["a", "b", "c", "d", "e"] == _readable(owner)
        assert [entry for entry in owner.audit_log.audit() if entry.outcome is AuditOutcome.REFUSED] == []


def _readable(catalog: Catalog) -> list[str]:
    entries: Sequence[TableEntry] = catalog.registry.readable_tables("main.s").entries
    return [entry.identifier.table for entry in entries]


TABLE_REGISTRY_LISTS_CONTRACT: tuple[Rule, ...] = (
    tables_are_listed_by_scope_in_order_of_name,
    an_impossible_part_of_a_list_is_refused,
    catalogs_and_schemas_are_listed_in_parts,
    the_readable_tables_are_those_that_are_loaded,
    tables_that_the_caller_may_not_read_are_left_out,
)
