"""Space-filling curves: Spark computes what numpy computes."""

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.statistics.curves import Curve, hilbert_curve, z_order
from cm_delta_dagster.spark.write.curve_expressions import place_column


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
    found = frame.coalesce(1).select(place_column(curve, [F.col(name) for name in names])).collect()
    assert [row[0] for row in found] == curve.places(ranges).tolist()
