"""The file index in Java on the cases that it shares with the rule in Python; and what Spark says about the cases themselves."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.spark.expressions.schema import spark_type
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.storage.local_store import LocalStore
from tests.support.skipping_cases import SKIPPING_TABLES, SkippingTable

_ZONE = "spark.sql.session.timeZone"
_RELEASE = "4.2."
"""The Spark whose optimizer the cases know; another one may give the index other forms of the conditions."""


@pytest.fixture
def session_of(spark: SparkSession) -> Iterator[Any]:
    """Sets the time zone of the session to that of a table."""
    before = spark.conf.get(_ZONE)

    def with_zone(table: SkippingTable) -> SparkSession:
        spark.conf.set(_ZONE, table.zone)
        return spark

    yield with_zone
    spark.conf.set(_ZONE, before)


def frame_of(session: SparkSession, table: SkippingTable, root: Path) -> DataFrame:
    """The table as a DataFrame. No query opens its files, which hold nothing that can be read."""
    adds = table.adds(size=100)
    for add in adds:
        (root / add.path).write_bytes(b"x" * add.size)
    layout = TableLayout(
        location=f"file://{root}",
        schema=table.schema,
        partition_columns=table.partition_columns,
        mapping=table.mapping,
    )
    return scan(session, store=LocalStore(), layout=layout, request=ScanRequest(files=adds_to_table(adds)))


def listed_files(frame: DataFrame) -> Sequence[int]:
    """The files that the index gives Spark for the query, once Spark has planned it."""
    names = []
    leaves: Any = frame._jdf.queryExecution().sparkPlan().collectLeaves()  # type: ignore[operator]
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "FileSourceScanExec":
            continue
        directories = leaf.relation().location().listFiles(leaf.partitionFilters(), leaf.dataFilters())
        for directory in (directories.apply(place) for place in range(directories.size())):
            files = directory.files()
            names += [files.apply(place).getPath().getName() for place in range(files.size())]
    return sorted(int(re.findall(r"\d+", name)[0]) for name in names)


@pytest.mark.requirements("SKIP-1", "SKIP-2", "STATS-3", "COLMAP-9", "DV-22", "PART-1")
@pytest.mark.parametrize("name", SKIPPING_TABLES)
def test_the_index_keeps_the_files_of_the_shared_cases(session_of: Any, tmp_path: Path, name: str) -> None:
    table = SKIPPING_TABLES[name]
    session = session_of(table)
    frame = frame_of(session, table, tmp_path)
    answers = {condition: listed_files(frame.where(condition)) for condition in table.conditions}
    needed = needed_files(session, table)
    assert not {condition: files for condition, files in needed.items() if not files <= set(answers[condition])}
    if pyspark.__version__.startswith(_RELEASE):
        assert answers == {condition: sorted((*kept.keeps, *kept.java)) for condition, kept in table.conditions.items()}


def needed_files(session: SparkSession, table: SkippingTable) -> dict[str, set[int]]:
    """The files with a row that satisfies the condition, by condition."""
    rows = [f"({number}, {row})" for number, file in enumerate(table.files) for row in file.rows]
    if not rows:
        return {}
    fields = table.schema.fields
    names = ", ".join(f"c{number}" for number in range(len(fields)))
    frame = session.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS rows(file_number, {names})")
    typed = [F.col(f"c{number}").cast(spark_type(item.type)).alias(item.name) for number, item in enumerate(fields)]
    frame = frame.select("file_number", *typed)
    answers = [f"coalesce({condition}, false) AS a{number}" for number, condition in enumerate(table.conditions)]
    needed: dict[str, set[int]] = {condition: set() for condition in table.conditions}
    for number, *satisfied in frame.selectExpr("file_number", *answers).collect():
        for condition, is_satisfied in zip(table.conditions, satisfied, strict=True):
            needed[condition] |= {number} if is_satisfied else set()
    return needed


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("name", SKIPPING_TABLES)
def test_the_shared_cases_keep_every_file_with_a_row_that_satisfies_the_condition(session_of: Any, name: str) -> None:
    table = SKIPPING_TABLES[name]
    needed = needed_files(session_of(table), table)
    dropped = {
        condition: files - set(table.conditions[condition].keeps)
        for condition, files in needed.items()
        if not files <= set(table.conditions[condition].keeps)
    }
    assert not dropped
