"""One catalog serves many principals: who calls is a value of each call, not of a connection."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CatalogError, CommitRefusedError, InvalidArgumentError, OperationRefusedError
from tests.contracts.catalog_bench import NAME, create
from tests.support.commit_builder import ADD, REMOVE, commit_of


def test_calls_of_many_principals_share_the_connections(catalog_url: str) -> None:
    """Each call has the privileges of its own principal, also on a connection that another one has just used."""
    with SqlCatalog(catalog_url, warehouse="memory://w", principal="ana") as ana:
        bob, eve = ana.acting_as("bob"), ana.acting_as("eve")
        assert ana._database.shared is bob._database.shared is eve._database.shared
        table_id = create(ana).table_id
        ana.access.enable_grants()
        ana.access.grant([Privilege.APPEND], str(NAME), "bob")
        assert [one.access.whoami().principal for one in (ana, bob, eve)] == ["ana", "bob", "eve"]
        assert isinstance(bob.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
        with pytest.raises(OperationRefusedError, match="the principal eve"):
            eve.registry.load_table(NAME)
        with pytest.raises(CommitRefusedError, match="the principal bob"):
            bob.coordinator.commit(table_id, commit_of(2, REMOVE))
        assert isinstance(ana.coordinator.commit(table_id, commit_of(2, REMOVE)), Ratified)
        refused = [one.principal for one in ana.audit_log.audit() if one.outcome is AuditOutcome.REFUSED]
        assert refused == ["eve", "bob"]
        assert [entry.principal for entry in ana.feed.feed(after=0, limit=9)] == ["ana", "bob", "ana"]
        bob.close()
        assert eve.access.whoami().principal == "eve" and ana.registry.list_tables() == (NAME,)
    with pytest.raises(CatalogError, match="closed"):
        bob.registry.list_tables()


def test_concurrent_calls_have_their_own_principals(catalog_url: str) -> None:
    names = [f"user{number}" for number in range(8)]
    with SqlCatalog(catalog_url, warehouse="memory://w", principal="ana") as ana, ThreadPoolExecutor(8) as threads:
        clients = [ana.acting_as(name) for name in names]
        tables = [create(one, TableIdentifier("main", "sales", name)) for one, name in zip(clients, names, strict=True)]
        ana.access.enable_grants()

        def work(number: int) -> list[str | None]:
            found = []
            for version in range(1, 6):
                assert isinstance(
                    clients[number].coordinator.commit(tables[number].table_id, commit_of(version, ADD)), Ratified
                )
                found.append(clients[number].access.whoami().principal)
            return found

        assert list(threads.map(work, range(8))) == [[name] * 5 for name in names]
        entries = {(entry.identifier.table, entry.principal) for entry in ana.feed.feed(after=0, limit=99)}
        assert entries == {(name, name) for name in names}


def test_an_impossible_principal_is_refused(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog, pytest.raises(InvalidArgumentError):
        catalog.acting_as("a\nb")
