"""PySpark logs no exception, with its Java stack trace, that the package catches or reports itself."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cm_delta_dagster import InvalidArgumentError, connect


@contextmanager
def logged() -> Iterator[list[str]]:
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield texts
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def test_caught_exceptions_are_not_logged(spark: SparkSession, tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path), spark=spark) as lake:
        rows = spark.sql("SELECT 1 AS id, 2.50BD AS amount")
        table = lake.create_table_as("main.s.t", rows)
        with logged() as texts:
            table.update({"amount": "amount * 2"})
            with pytest.raises(InvalidArgumentError, match="amont"):
                table.update({"amount": "amont * 2"})
            with pytest.raises(InvalidArgumentError, match="amont"):
                lake.sql("SELECT amont FROM main.s.t")
        assert texts == []
        assert str(table.to_arrow()["amount"][0]) == "5.00"


def test_exceptions_of_other_queries_are_logged(spark: SparkSession) -> None:
    with logged() as texts, pytest.raises(AnalysisException):
        spark.sql("SELECT amont FROM VALUES (1) AS t(amount)")
    assert len(texts) == 1
