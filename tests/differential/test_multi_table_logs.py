"""Which other engines read and write tables that transactions over several tables have changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.differential.other_readers import duckdb_rows, sail_server
from tests.differential.peers import DeltaSpark, canonical, deltalake_rows, published_copy
from tests.support.cached_folders import or_skip
from tests.support.peer_environments import peer_environment

pytestmark = [pytest.mark.slow, pytest.mark.peers]

FEATURE = "multiTableTransaction-dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A table after a transaction over several tables, and its rows by version as this package reads them."""

    location: Path
    expected: dict[int, pa.Table]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[dict[str, Changed]]:
    """Two tables, the second of which lists the writer feature."""
    home = tmp_path_factory.mktemp("groups")
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id int, v string").coalesce(1)
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as lake:
        names = ("main.test.plain", "main.test.listed")
        tables = [lake.create_table_as(name, frame) for name in names]
        tables[1].alter.set_properties({f"delta.feature.{FEATURE}": "supported"})
        with lake.transaction() as tx:
            tx.table(names[0]).append(frame)
            tx.table(names[1]).delete("id = 1")
        lake.client.wait_for_background()
        for table in tables:
            table.maintenance.publish()
        yield {
            table.name: Changed(
                location=Path(table.location.removeprefix("file://")),
                expected={version: table.to_arrow(version=version) for version in range(table.version() + 1)},
            )
            for table in tables
        }


def assert_equal(answers: dict[int, pa.Table | str], expected: dict[int, pa.Table]) -> None:
    for version, table in expected.items():
        answer = answers[version]
        assert not isinstance(answer, str), answer
        assert canonical(answer) == canonical(table), version


@pytest.mark.requirements("MTX-3")
def test_the_logs_have_groups(changed: dict[str, Changed]) -> None:
    for table in changed.values():
        log = table.location / "_delta_log" / f"{max(table.expected):020d}.json"
        assert log.read_text().count('{"transactionGroup":') == 1


@pytest.mark.requirements("MTX-3")
def test_deltalake_and_delta_spark_read_every_version(
    changed: dict[str, Changed], delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    for name, table in changed.items():
        copy = published_copy(str(table.location), tmp_path / name)
        assert_equal({version: deltalake_rows(copy, version) for version in table.expected}, table.expected)
        assert_equal({version: delta_spark.rows(copy, version) for version in table.expected}, table.expected)


@pytest.mark.requirements("MTX-3", "MTX-5")
def test_delta_spark_writes_only_to_the_table_without_the_feature(
    changed: dict[str, Changed], delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    plain, listed = (
        published_copy(str(changed[name].location), tmp_path / name) for name in ("main.test.plain", "main.test.listed")
    )
    delta_spark.sql(f"INSERT INTO delta.`{plain}` VALUES (10, 'y')")
    assert delta_spark.sql(f"SELECT count(*) AS n FROM delta.`{plain}`")["n"].to_pylist() == [5]
    with pytest.raises(RuntimeError, match=FEATURE):
        delta_spark.sql(f"INSERT INTO delta.`{listed}` VALUES (10, 'y')")


@pytest.mark.requirements("MTX-3")
def test_duckdb_reads_every_version(changed: dict[str, Changed], tmp_path: Path) -> None:
    for name, table in changed.items():
        directory = tmp_path / name
        directory.mkdir()
        assert_equal(or_skip(duckdb_rows, table.location, table.expected, directory), table.expected)


@pytest.mark.requirements("MTX-3")
def test_sail_reads_versions_before_the_transaction_only(changed: dict[str, Changed], tmp_path: Path) -> None:
    """Sail 0.7.2 refuses every action that it does not know."""
    with sail_server(or_skip(peer_environment, "sail"), tmp_path) as sail:
        for name, table in changed.items():
            copy = published_copy(str(table.location), tmp_path / name.replace(".", "_"))
            *before, latest = sorted(table.expected)
            answers = sail.rows(copy, table.expected)
            assert_equal(answers, {version: table.expected[version] for version in before})
            assert isinstance(answers[latest], str) and "Invalid JSON in log record" in answers[latest]
