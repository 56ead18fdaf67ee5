"""Space-filling curves: their shape."""

import itertools

import numpy as np
import pytest

from cm_delta_dagster.protocol.statistics.curves import hilbert_curve, z_order

pytestmark = pytest.mark.fast


@pytest.mark.requirements("CLUST-5")
@pytest.mark.parametrize(("dimensions", "bits"), [(1, 6), (2, 4), (3, 3), (4, 2)])
def test_the_hilbert_curve_visits_each_cell_once_and_goes_on_in_a_neighbour(dimensions: int, bits: int) -> None:
    cells = np.array(list(itertools.product(range(1 << bits), repeat=dimensions)))
    places = hilbert_curve(dimensions, bits).places([cells[:, number] for number in range(dimensions)])
    assert sorted(places.tolist()) == list(range(len(cells)))
    steps = np.abs(np.diff(cells[np.argsort(places)], axis=0)).sum(axis=1)
    assert steps.tolist() == [1] * (len(cells) - 1)


@pytest.mark.requirements("OPT-5")
def test_the_z_order_interleaves_bits() -> None:
    places = z_order(2, 3).places([np.array([0, 1, 0, 5]), np.array([0, 0, 1, 3])])
    assert places.tolist() == [0, 0b10, 0b01, 0b100111]
