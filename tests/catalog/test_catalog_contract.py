"""The SQL catalog fulfils the contract of each catalog interface, on SQLite and on PostgreSQL."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from _pytest.mark import ParameterSet

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.sql import SqlCatalog
from tests.contracts.access_control_contract import ACCESS_CONTROL_CONTRACT
from tests.contracts.access_guards_contract import ACCESS_GUARDS_CONTRACT
from tests.contracts.application_ids_contract import APPLICATION_IDS_CONTRACT
from tests.contracts.catalog_bench import Bench, Rule
from tests.contracts.commit_coordinator_concurrency_contract import COMMIT_COORDINATOR_CONCURRENCY_CONTRACT
from tests.contracts.commit_coordinator_content_contract import COMMIT_COORDINATOR_CONTENT_CONTRACT
from tests.contracts.commit_coordinator_contract import COMMIT_COORDINATOR_CONTRACT
from tests.contracts.commit_coordinator_lock_contract import COMMIT_COORDINATOR_LOCK_CONTRACT
from tests.contracts.commit_coordinator_together_contract import COMMIT_COORDINATOR_TOGETHER_CONTRACT
from tests.contracts.commit_coordinator_types_contract import COMMIT_COORDINATOR_TYPES_CONTRACT
from tests.contracts.commit_coordinator_unread_content_contract import COMMIT_COORDINATOR_UNREAD_CONTENT_CONTRACT
from tests.contracts.commit_coordinator_validation_contract import COMMIT_COORDINATOR_VALIDATION_CONTRACT
from tests.contracts.commit_feed_contract import COMMIT_FEED_CONTRACT
from tests.contracts.commit_policies_contract import COMMIT_POLICIES_CONTRACT
from tests.contracts.commit_rules_contract import COMMIT_RULES_CONTRACT
from tests.contracts.event_feed_contract import EVENT_FEED_CONTRACT
from tests.contracts.holds_contract import HOLDS_CONTRACT
from tests.contracts.leases_contract import LEASES_CONTRACT
from tests.contracts.maintenance_policies_contract import MAINTENANCE_POLICIES_CONTRACT
from tests.contracts.namespaces_contract import NAMESPACES_CONTRACT
from tests.contracts.onboarding_contract import ONBOARDING_CONTRACT
from tests.contracts.overview_contract import OVERVIEW_CONTRACT
from tests.contracts.recoverable_catalog_contract import RECOVERABLE_CATALOG_CONTRACT
from tests.contracts.table_registry_clones_contract import TABLE_REGISTRY_CLONES_CONTRACT
from tests.contracts.table_registry_contract import TABLE_REGISTRY_CONTRACT
from tests.contracts.table_registry_definition_contract import TABLE_REGISTRY_DEFINITION_CONTRACT
from tests.contracts.table_registry_lists_contract import TABLE_REGISTRY_LISTS_CONTRACT
from tests.contracts.tokens_contract import TOKENS_CONTRACT
from tests.contracts.version_pins_contract import VERSION_PINS_CONTRACT
from tests.support.waiting import until

CONTRACT = (
    *TABLE_REGISTRY_CONTRACT,
    *TABLE_REGISTRY_DEFINITION_CONTRACT,
    *TABLE_REGISTRY_CLONES_CONTRACT,
    *TABLE_REGISTRY_LISTS_CONTRACT,
    *NAMESPACES_CONTRACT,
    *COMMIT_COORDINATOR_CONTRACT,
    *COMMIT_COORDINATOR_CONCURRENCY_CONTRACT,
    *COMMIT_COORDINATOR_LOCK_CONTRACT,
    *COMMIT_COORDINATOR_CONTENT_CONTRACT,
    *COMMIT_COORDINATOR_TOGETHER_CONTRACT,
    *COMMIT_COORDINATOR_TYPES_CONTRACT,
    *COMMIT_COORDINATOR_UNREAD_CONTENT_CONTRACT,
    *COMMIT_COORDINATOR_VALIDATION_CONTRACT,
    *COMMIT_POLICIES_CONTRACT,
    *COMMIT_RULES_CONTRACT,
    *HOLDS_CONTRACT,
    *MAINTENANCE_POLICIES_CONTRACT,
    *LEASES_CONTRACT,
    *COMMIT_FEED_CONTRACT,
    *EVENT_FEED_CONTRACT,
    *VERSION_PINS_CONTRACT,
    *RECOVERABLE_CATALOG_CONTRACT,
    *ONBOARDING_CONTRACT,
    *ACCESS_CONTROL_CONTRACT,
    *ACCESS_GUARDS_CONTRACT,
    *APPLICATION_IDS_CONTRACT,
    *TOKENS_CONTRACT,
    *OVERVIEW_CONTRACT,
)


@dataclass
class _Connect:
    url: str

    def __call__(self, clock: Callable[[], int]) -> Catalog:
        return SqlCatalog(self.url, warehouse="memory://warehouse", now_ms=clock)

    def as_principal(self, clock: Callable[[], int], name: str) -> Catalog:
        return SqlCatalog(self.url, warehouse="memory://warehouse", now_ms=clock, principal=name)


def contract_case(rule: Rule) -> ParameterSet:
    is_slow = any(word in rule.__name__ for word in ("process", "thousand"))
    return pytest.param(rule, id=rule.__name__, marks=[pytest.mark.slow] if is_slow else [])


@pytest.fixture(scope="module")
def reused_database(postgres_server: str) -> Iterator[sa.Engine]:
    """A database of PostgreSQL for all rules: to create and drop a database takes twice as long as most rules."""
    name = f"t{uuid.uuid4().hex}"
    server = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with server.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    url = sa.make_url(postgres_server).set(database=name)
    yield sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with server.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name}"))


@pytest.fixture
def postgres_url(reused_database: sa.Engine) -> Iterator[str]:
    """URL of a database without tables."""
    yield reused_database.url.render_as_string(hide_password=False)
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with reused_database.connect() as connection:
        # A connection that the catalog left open makes this fail.
        until(lambda: connection.execute(sa.text(others)).scalar_one() == 0)
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))


@pytest.mark.requirements(
    "CM-C1",
    "CM-C2",
    "CM-C3",
    "CM-C4",
    "CM-C5",
    "CM-C6",
    "CM-C7",
    "CM-C8",
    "CM-C9",
    "CM-C10",
    "CM-C11",
    "CM-C12",
    "CM-C13",
    "CM-C14",
    "CM-C15",
    "CM-M4",
    "CM-M5",
    "CM-M7",
    "CM-D1",
    "CM-D2",
    "CM-D3",
    "CM-D4",
    "CM-D5",
    "CM-D6",
    "CM-D7",
    "CM-D8",
    "CM-W6",
)
@pytest.mark.parametrize("rule", [contract_case(rule) for rule in CONTRACT])
def test_the_catalog_fulfils_its_contract(rule: Rule, catalog_url: str) -> None:
    connect = _Connect(catalog_url)
    rule(Bench(connect=connect, connect_as=connect.as_principal))
