"""The SQL catalog keeps every rule of the catalog contract, on SQLite and on PostgreSQL."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.sql import SqlCatalog
from tests.contracts.catalog_bench import Bench, Rule
from tests.contracts.commit_lock_contract import TURN_CONTRACT
from tests.contracts.commit_mode_contract import COMMIT_MODE_CONTRACT
from tests.contracts.feed_contract import FEED_CONTRACT
from tests.contracts.maintenance_contract import MAINTENANCE_CONTRACT
from tests.contracts.name_contract import NAME_CONTRACT
from tests.contracts.ratification_contract import RATIFICATION_CONTRACT
from tests.contracts.reader_contract import READER_CONTRACT
from tests.contracts.recovery_contract import RECOVERY_CONTRACT
from tests.contracts.state_contract import STATE_CONTRACT

CONTRACT = (
    *NAME_CONTRACT,
    *RATIFICATION_CONTRACT,
    *FEED_CONTRACT,
    *MAINTENANCE_CONTRACT,
    *COMMIT_MODE_CONTRACT,
    *READER_CONTRACT,
    *STATE_CONTRACT,
    *TURN_CONTRACT,
    *RECOVERY_CONTRACT,
)


@dataclass
class _Connect:
    url: str

    def __call__(self, clock: Callable[[], int]) -> Catalog:
        return SqlCatalog(self.url, warehouse="memory://warehouse", now_ms=clock)


@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
def test_catalog_keeps_the_contract(rule: Rule, catalog_url: str) -> None:
    """CM-C1 to CM-C15, CM-M4, CM-M5, CM-M7, CM-D1 to CM-D8, CM-W6"""
    rule(Bench(connect=_Connect(catalog_url)))
