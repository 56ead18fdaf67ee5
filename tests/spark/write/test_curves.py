"""Space-filling curves: their shape, and that Spark computes what numpy computes."""

import itertools

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.spark.write.curves import Curve, hilbert_curve, z_order


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


@pytest.mark.parametrize(
    "curve",
    [hilbert_curve(4, 10), z_order(3, 10)],
    ids=lambda curve: f"{curve.dimensions}x{curve.bits}",
)
def test_spark_computes_the_same_places(spark: SparkSession, curve: Curve) -> None:
    generator = np.random.default_rng(1)
    ranges = [generator.integers(0, 1 << curve.bits, 50) for _ in range(curve.dimensions)]
    names = [f"r{number}" for number in range(curve.dimensions)]
    frame = spark.createDataFrame([tuple(map(int, row)) for row in zip(*ranges, strict=True)], names)
    found = frame.coalesce(1).select(curve.place_column([F.col(name) for name in names])).collect()
    assert [row[0] for row in found] == curve.places(ranges).tolist()
