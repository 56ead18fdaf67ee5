"""Fixtures of the tests of rows of Arrow."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.operations.writing.rows import WriteRows


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        yield connection


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that hands rows of Arrow to Spark fails."""
    unchanged = WriteRows.spark

    def spark_only(self: WriteRows, reason: str) -> DataFrame:
        assert isinstance(self._rows, DataFrame), f"rows of Arrow are handed to Spark: {reason}"
        return unchanged(self, reason)

    monkeypatch.setattr(WriteRows, "spark", spark_only)
