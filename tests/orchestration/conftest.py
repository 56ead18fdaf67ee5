"""A Dagster world on one machine: an instance, a catalog in SQLite, local files, the shared Spark session."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource
from tests.orchestration.log_tables import resource_at


class RunningSpark(dg.ConfigurableResource):
    """The session of the test run; any object with ``spark_session`` will do."""

    @property
    def spark_session(self) -> SparkSession:
        session = SparkSession.getActiveSession()
        assert session is not None
        return session


@dataclass
class World:
    """What a test acts on."""

    spark: SparkSession
    instance: dg.DagsterInstance
    client: DeltaClient
    catalog: CatalogResource
    returns_arrow: bool = False
    resources: dict[str, Any] = field(default_factory=dict)

    def materialize(self, *assets: Any, raises: bool = True, **arguments: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            list(assets), instance=self.instance, resources=self.resources, raise_on_error=raises, **arguments
        )

    def frame(self, rows: list[tuple[Any, ...]], columns: str) -> Any:
        """Rows for an output: a DataFrame of Spark, or a table of Arrow in tests that run with both."""
        frame = self.spark.createDataFrame(rows, columns).coalesce(1)
        return frame.toArrow() if self.returns_arrow else frame

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = read(open_scan(self.client.table(table)), spark=self.spark).collect()
        return sorted((tuple(row) for row in found), key=lambda row: [str(value) for value in row])

    def version(self, table: str) -> int:
        return self.client.table(table).snapshot().version

    def events(self, key: str) -> list[dg.AssetMaterialization]:
        """Materializations of an asset, oldest first."""
        found = self.instance.fetch_materializations(dg.AssetKey.from_user_string(key), limit=1000, ascending=True)
        return [record.asset_materialization for record in found.records if record.asset_materialization is not None]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogResource]:
    """For tables without rows."""
    resource = resource_at(tmp_path)
    yield resource
    resource.close()


_OF_BOTH_ENGINES = {
    "test_partitioned_outputs": pytest.mark.slow,
    "test_io_manager": pytest.mark.slow,
    "test_commit_together": pytest.mark.exhaustive,
    "test_declarations": pytest.mark.exhaustive,
    "test_partition_facts": pytest.mark.exhaustive,
    "test_shared_tables": pytest.mark.exhaustive,
}
"""Modules whose assets return :meth:`World.frame`: they run with outputs of Spark and of Arrow. Marks of the tests with Arrow."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = _OF_BOTH_ENGINES.get(metafunc.module.__name__.rpartition(".")[2])
    if mark is not None and "world" in metafunc.fixturenames:
        metafunc.parametrize("world", ["spark", pytest.param("arrow", marks=mark)], indirect=True)


@pytest.fixture
def world(
    spark: SparkSession, instance: dg.DagsterInstance, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    catalog = CatalogResource(url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    resources = {
        "catalog": catalog,
        "spark": RunningSpark(),
        "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=RunningSpark()),
    }
    yield World(
        spark=spark,
        instance=instance,
        client=catalog.client,
        catalog=catalog,
        returns_arrow=getattr(request, "param", "spark") == "arrow",
        resources=resources,
    )
    catalog.close()
