"""The explorer finds every deliberately broken client and catalog, and prints the schedule that shows the fault."""

import re

import pytest

from tests.model.explorer import CounterExample, Explorer
from tests.model.mutants import MUTANTS


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, mutant in MUTANTS.items() for mode in mutant.modes])
def test_a_mutant_is_caught(name: str, mode: str) -> None:
    mutant = MUTANTS[name]
    with Explorer(mutant.cast(mode)) as explorer, pytest.raises(CounterExample) as caught:
        explorer.explore()
    print(f"{name}: {caught.value}")
    assert re.search(mutant.violation, caught.value.violation), caught.value.violation
    assert caught.value.schedule
