"""Every store of the package fulfils the contract of ``Store``."""

import pytest

from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.store import Store
from tests.contracts.store_contract import STORE_CONTRACT, Rule


@pytest.mark.requirements("LOG-5", "LOG-18")
@pytest.mark.parametrize("rule", STORE_CONTRACT, ids=lambda rule: rule.__name__)
def test_the_store_fulfils_its_contract(rule: Rule, store_and_root: tuple[Store, str]) -> None:
    rule(*store_and_root)


@pytest.mark.requirements("LOG-5", "LOG-18")
@pytest.mark.parametrize("rule", STORE_CONTRACT, ids=lambda rule: rule.__name__)
def test_the_memory_store_fulfils_its_contract(rule: Rule) -> None:
    rule(MemoryStore(), "memory://root")
