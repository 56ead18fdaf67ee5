"""Requests and answers that are lost on their way: what is repeated, and which error the caller gets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.errors import CatalogError, CatalogUnavailableError, CommitRejectedError
from cm_delta_dagster.server.settings import ServerSettings
from tests.contracts.catalog_bench import NAME, create, inline, proposal
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.live_server import live_server

LOST = [Effect.RESET_BEFORE, Effect.RESET_AFTER, Effect.ANSWER_BEFORE, Effect.ANSWER_AFTER, Effect.TRUNCATED]
AFTER = [Effect.RESET_AFTER, Effect.ANSWER_AFTER, Effect.TRUNCATED]


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://w")
    with live_server(settings, trusts_names=True, reads_files=False) as server, fault_proxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def catalog(proxy: FaultProxy) -> Iterator[HttpCatalog]:
    with HttpCatalog(proxy.url, "etl") as catalog:
        yield catalog


def _lose(proxy: FaultProxy, effect: Effect, path: str, *, times: int = 1) -> None:
    proxy.inject(Fault(effect=effect, path=path, times=times, status=502))


@pytest.mark.parametrize("effect", LOST)
def test_a_commit_without_an_answer_is_proposed_again_and_ratified_once(
    effect: Effect, proxy: FaultProxy, catalog: HttpCatalog
) -> None:
    table = create(catalog).table_id
    _lose(proxy, effect, "/coordinator/commit", times=2)
    answer = catalog.coordinator.commit(table, inline(1))
    assert isinstance(answer, Ratified) and (answer.version, answer.repeated) == (1, effect in AFTER)
    assert proxy.count("POST", "/coordinator/commit") == 3
    assert catalog.coordinator.get_ratified_commits(table).latest_version == 1


@pytest.mark.parametrize("effect", LOST)
def test_a_read_without_an_answer_is_sent_again(effect: Effect, proxy: FaultProxy, catalog: HttpCatalog) -> None:
    create(catalog)
    _lose(proxy, effect, "/registry/load_table", times=3)
    assert catalog.registry.load_table(NAME).identifier == NAME


@pytest.mark.parametrize("effect", LOST)
def test_what_must_not_be_repeated_has_an_unknown_outcome(
    effect: Effect, proxy: FaultProxy, catalog: HttpCatalog
) -> None:
    create(catalog)
    _lose(proxy, effect, "/registry/drop_table")
    with pytest.raises(CatalogUnavailableError, match=r"is unknown\. Check the state"):
        catalog.registry.drop_table(NAME)
    assert proxy.count("POST", "/registry/drop_table") == 1
    assert catalog.registry.list_tables() == (() if effect in AFTER else (NAME,))


def test_a_refusal_of_a_repeated_commit_is_not_the_answer_to_the_first_proposal(
    proxy: FaultProxy, catalog: HttpCatalog
) -> None:
    table = create(catalog).table_id
    _lose(proxy, Effect.RESET_BEFORE, "/coordinator/commit")
    with pytest.raises(CatalogUnavailableError, match="is unknown"):
        catalog.coordinator.commit(table, proposal(7))
    with pytest.raises(CommitRejectedError):
        catalog.coordinator.commit(table, proposal(7))


@pytest.mark.parametrize("status", [200, 302, 404])
def test_an_answer_that_is_not_of_the_server_is_an_error(status: int, proxy: FaultProxy, catalog: HttpCatalog) -> None:
    proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, status=status))
    with pytest.raises(CatalogError, match=f"with the status {status}"):
        catalog.access.grant([Privilege.READ], "*", "ana")


def test_a_fault_of_the_server_is_reported_once(proxy: FaultProxy, catalog: HttpCatalog) -> None:
    """The same call would fail again; whether it took effect is not known."""
    proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, status=500, times=10))
    with pytest.raises(CatalogUnavailableError, match="500"):
        catalog.registry.drop_table(NAME)
    assert proxy.count("POST") == 1
