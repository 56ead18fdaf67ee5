"""The catalog over HTTP fulfils the contract of each catalog interface, on SQLite and on PostgreSQL.

Three things are not on the wire: the commit lock, the backup, and the clock, which the server of the test takes. What the
databases do differently, and which contents of commits are legal, is decided in the process of the server; therefore
PostgreSQL and the rules about contents are tested with the slow tests, and both together with the exhaustive ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from _pytest.mark import MarkDecorator, ParameterSet

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.rest import codec
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.server.settings import ServerSettings
from tests.catalog.test_catalog_contract import (
    CONTRACT,
    contract_case,
    postgres_url,  # noqa: F401  # A fixture, with the one after it: one database for all rules.
    reused_database,  # noqa: F401
)
from tests.contracts.access_control_contract import a_commit_requires_what_its_content_does
from tests.contracts.catalog_bench import Bench, Clock, Rule
from tests.contracts.commit_coordinator_lock_contract import COMMIT_COORDINATOR_LOCK_CONTRACT
from tests.contracts.commit_coordinator_types_contract import COMMIT_COORDINATOR_TYPES_CONTRACT
from tests.contracts.commit_coordinator_unread_content_contract import COMMIT_COORDINATOR_UNREAD_CONTENT_CONTRACT
from tests.contracts.commit_coordinator_validation_contract import COMMIT_COORDINATOR_VALIDATION_CONTRACT
from tests.support.live_server import LiveServer, live_server

ON_THE_WIRE = tuple(rule for rule in CONTRACT if rule not in COMMIT_COORDINATOR_LOCK_CONTRACT)
ABOUT_CONTENTS = (
    *COMMIT_COORDINATOR_VALIDATION_CONTRACT,
    *COMMIT_COORDINATOR_TYPES_CONTRACT,
    *COMMIT_COORDINATOR_UNREAD_CONTENT_CONTRACT,
    a_commit_requires_what_its_content_does,
)


def _case(database: str, rule: Rule) -> ParameterSet:
    marks: list[MarkDecorator] = [pytest.mark.postgres] if database == "postgres" else []
    if rule in ABOUT_CONTENTS:
        marks.append(pytest.mark.exhaustive if database == "postgres" else pytest.mark.slow)
    elif database == "postgres":
        marks.append(pytest.mark.slow)
    return pytest.param(database, rule, id=f"{database}-{rule.__name__}", marks=[*marks, *contract_case(rule).marks])


@dataclass
class _Connect:
    """Opens clients of a server that takes a token for the name of its principal."""

    url: str

    def __call__(self, clock: Callable[[], int]) -> Catalog:
        return HttpCatalog(self.url, "client", now_ms=clock)

    def as_principal(self, clock: Callable[[], int], name: str) -> Catalog:
        return HttpCatalog(self.url, name, now_ms=clock)


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(catalog_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """A server that reads no files: the contents that the rules state are those that the catalog checks, large ones too."""
    monkeypatch.setattr(codec, "_MAX_SENT_BYTES", 2**30)
    settings = ServerSettings(catalog=catalog_url, warehouse="memory://warehouse", max_body_bytes=2**28)
    with live_server(settings, now_ms=clock, trusts_names=True, reads_files=False) as live:
        yield live


@pytest.mark.parametrize(
    ("catalog_url", "rule"),
    [_case(database, rule) for database in ("sqlite", "postgres") for rule in ON_THE_WIRE],
    indirect=["catalog_url"],
)
def test_the_catalog_over_http_fulfils_its_contract(rule: Rule, server: LiveServer, clock: Clock) -> None:
    connect = _Connect(server.url)
    rule(Bench(connect=connect, connect_as=connect.as_principal, clock=clock, recorded_together=9_900))
