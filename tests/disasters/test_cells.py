"""Every disaster of the table, on real files and databases, with a new client."""

from itertools import product

import pytest

from tests.disasters.conftest import Places
from tests.disasters.place import Place
from tests.disasters.runner import findings_of_a_healthy_place, run
from tests.disasters.selection import DIFFERENT, Kind, cells, pairs_of, sample
from tests.disasters.vocabulary import Cell, Expected, Harm, Mode, Object

EVERY = [(kind, mode, *pair) for kind, mode in product(Kind, Mode) for pair in pairs_of(kind, mode)]
SAMPLE = [each for each in EVERY if sample(*each)][::2]


def name(value: Kind | Mode | Object | Harm) -> str:
    return value.value.replace(" ", "_")


_HEALTHY: dict[str, frozenset[str]] = {}


def differences(place: Place, chosen: list[tuple[Cell, Expected]]) -> list[str]:
    """Cells with another outcome than expected, and known differences that have the expected outcome."""
    key = str(place.root)
    if key not in _HEALTHY:
        _HEALTHY[key] = findings_of_a_healthy_place(place)
    found = []
    for cell, expected in chosen:
        wrong = run(place, cell, expected, healthy=_HEALTHY[key]).differences(expected)
        if cell in DIFFERENT and not wrong:
            found.append(f"{cell}: it has the expected outcome; remove it from the known differences")
        if cell not in DIFFERENT:
            found += [f"{cell}: {what}" for what in wrong]
    return found


@pytest.mark.parametrize(("kind", "mode", "object_", "harm"), SAMPLE, ids=name)
def test_a_disaster_has_the_outcome_of_the_table(
    places: Places, kind: Kind, mode: Mode, object_: Object, harm: Harm
) -> None:
    found = differences(places(kind, mode), sample(kind, mode, object_, harm))
    assert not found, "\n".join(found)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "mode", "object_", "harm"), EVERY, ids=name)
def test_every_disaster_has_the_outcome_of_the_table(
    places: Places, kind: Kind, mode: Mode, object_: Object, harm: Harm
) -> None:
    found = differences(places(kind, mode), cells(kind, mode, object_, harm))
    assert not found, "\n".join(found)
