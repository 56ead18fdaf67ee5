"""DuckDB and Sail read what this package writes: equal rows at every version, with each table feature."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import Connection, DeltaTable, connect
from tests.differential.other_readers import Sail, duckdb_answers, duckdb_rows, sail_server
from tests.differential.peers import canonical, published_copy
from tests.differential.test_our_tables import SCHEMA, rows
from tests.support.cached_folders import or_skip
from tests.support.peer_environments import peer_environment

pytestmark = [pytest.mark.slow, pytest.mark.peers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A table whose history needs a feature of a reader."""

    properties: Mapping[str, str]
    change: Callable[[DeltaTable, DataFrame], object] = lambda table, frame: None


def rename(table: DeltaTable, frame: DataFrame) -> None:
    table.alter.rename_column("x", "X y")
    table.alter.drop_column("raw")
    table.append(frame.where("id > 8").withColumnRenamed("x", "X y").drop("raw"))


def widen(table: DeltaTable, frame: DataFrame) -> None:
    table.alter.change_type("small", "bigint")
    table.alter.change_type("s.a", "bigint")
    table.append(frame.where("id > 8").withColumn("small", frame["id"] + 2**40))


CASES = {
    "v2Checkpoint": Case(properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"}),
    "deletionVectors-typeWidening": Case(
        properties={
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.enableTypeWidening": "true",
        },
        change=widen,
    ),
    "columnMapping-name-rowTracking": Case(
        properties={"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}, change=rename
    ),
    "columnMapping-id": Case(properties={"delta.columnMapping.mode": "id"}, change=rename),
}
"""Sail finds no table in a directory whose name has a blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Tables of ours by case: their locations, and their rows at each version as we read them."""

    locations: Mapping[str, Path]
    expected: Mapping[str, Mapping[int, pa.Table]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Written]:
    home = tmp_path_factory.mktemp("ours")
    # Sail takes the value of a file with one row from the statistics of our log, where -0.0 as an upper bound is 0.0.
    frame = (
        spark.createDataFrame(rows(), SCHEMA)
        .withColumn("x", F.col("x") + 0.0)
        .where("id in (0, 1, 3, 5, 8, 9, 10)")
        .coalesce(1)
    )
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as lake:
        tables = {name: write(lake, f"main.test.t{at}", frame, CASES[name]) for at, name in enumerate(CASES)}
        lake.client.wait_for_background()
        for table in tables.values():
            table.maintenance.publish()
        expected = {
            name: {version: table.to_arrow(version=version) for version in range(table.version() + 1)}
            for name, table in tables.items()
        }
        locations = {name: Path(table.location.removeprefix("file://")) for name, table in tables.items()}
        yield Written(locations=locations, expected=expected)


def write(lake: Connection, name: str, frame: DataFrame, case: Case) -> DeltaTable:
    table = lake.create_table(name, frame.schema, partition_by=["p"], properties=case.properties)
    table.append(frame)
    table.delete("id % 3 = 1")
    table.append(frame.where("id < 2"))
    case.change(table, frame)
    return table


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sail]:
    environment = or_skip(peer_environment, "sail")
    with sail_server(environment, tmp_path_factory.mktemp("sail")) as running:
        yield running


def differences(answers: Mapping[int, pa.Table | str], expected: Mapping[int, pa.Table]) -> dict[int, object]:
    """By version, the error of a reader, or the rows that it does not read and those that it reads instead."""
    found: dict[int, object] = {}
    for version, answer in answers.items():
        lines = [answer] if isinstance(answer, str) else canonical(answer)
        wanted = canonical(expected[version])
        if lines != wanted:
            found[version] = (sorted(set(wanted) - set(lines)), sorted(set(lines) - set(wanted)))
    return found


@pytest.mark.client("DuckDB", "read", "read a version", by="path")
@pytest.mark.parametrize("case", CASES)
def test_duckdb_reads_every_version_up_to_the_published_one(case: str, written: Written, tmp_path: Path) -> None:
    expected = written.expected[case]
    answers = or_skip(duckdb_rows, written.locations[case], expected, tmp_path)
    if case.startswith("columnMapping"):  # DuckDB looks for partition values under the names of the columns.
        assert {value for table in answers.values() for value in table["p"].to_pylist()} == {None}
        answers, expected = (
            {version: table.drop_columns("p") for version, table in tables.items()} for tables in (answers, expected)
        )
    assert differences(answers, expected) == {}


@pytest.mark.client("Sail", "read", "read a version", by="path")
@pytest.mark.parametrize("case", CASES)
def test_sail_reads_every_version_of_a_copy_without_the_catalog(
    case: str, written: Written, sail: Sail, tmp_path: Path
) -> None:
    copy = published_copy(str(written.locations[case]), tmp_path / "copy")
    assert differences(sail.rows(copy, written.expected[case]), written.expected[case]) == {}


@pytest.mark.client(
    "Sail",
    "read",
    by="path",
    refuses="tables of a catalog themselves, whose commits it would have to get from the catalog",
)
def test_sail_refuses_a_catalog_managed_table_by_path(written: Written, sail: Sail) -> None:
    answers = sail.answers(*(f"SELECT * FROM delta.`{location}`" for location in written.locations.values()))
    assert {str(answer) for answer in answers} == {
        "Reading catalog-managed Delta tables requires catalog commit replay context"
    }


def test_duckdb_asks_for_a_version_and_refuses_one_that_is_not_published(written: Written) -> None:
    location, versions = written.locations["v2Checkpoint"], written.expected["v2Checkpoint"]
    beyond = max(versions) + 1
    _, later, without = or_skip(
        duckdb_answers,
        f"ATTACH '{location}' AS later (TYPE delta, MAX_CATALOG_VERSION {beyond})",
        "SELECT * FROM later",
        f"SELECT * FROM delta_scan('{location}')",
    )
    assert f"not the same as the specified end version {beyond}" in later
    assert "max_catalog_version" in without
