"""A session in UTC, in which times that state no zone mean what the model says."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.differential.conftest import delta_spark

__all__ = ["delta_spark"]


@pytest.fixture
def utc_spark(spark: SparkSession) -> Iterator[SparkSession]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(zone))
