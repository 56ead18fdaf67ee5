"""Auto compaction after writes."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.compaction_hook import compactable_files
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease
from cm_delta_dagster.operations.maintenance.auto_compaction import compacting_client
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.actions.file_columns import REMOVE_SCHEMA, adds_to_table
from cm_delta_dagster.protocol.features.clustering import PROVIDER
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol
from cm_delta_dagster.protocol.log.action_reconciliation import FileState
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.builders import TableBuilder

AUTO = {"delta.autoOptimize.autoCompact": "true"}


@pytest.fixture
def lake_client(tmp_path: Path, spark: SparkSession) -> Iterator[DeltaClient]:
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}/own")
    client = compacting_client(DeltaClient(catalog, stores=Stores()), lambda: spark)
    yield client
    client.close()


@pytest.fixture
def build(lake_client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    def make(columns: str = "id long, p int", **arguments: Any) -> TableBuilder:
        return TableBuilder(lake_client, spark, columns, **arguments)

    return make


def _allow(client: DeltaClient) -> None:
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    client.catalog.maintenance_policies.set_maintenance_rule(rule)


def _fill(lake: TableBuilder, files: int, *, p: int = 0) -> None:
    """Append one row of partition ``p`` in each of that many files."""
    frame = lake.spark.range(0, files, 1, files).selectExpr("id", f"{p} as p")
    append(lake.table, frame=frame)


@pytest.mark.requirements("OPT-7")
def test_many_small_files_are_compacted_after_the_write(
    build: Callable[..., TableBuilder], lake_client: DeltaClient
) -> None:
    """In a commit of its own that changes no row."""
    _allow(lake_client)
    lake = build(properties=AUTO)
    _fill(lake, 49)
    lake_client.wait_for_background()
    assert lake.table.snapshot().version == 1, "49 small files are too few"
    before = lake.rows()
    lake.append((1000, 0))
    lake_client.wait_for_background()
    snapshot = lake.table.snapshot()
    assert (snapshot.version, snapshot.num_files, snapshot.num_rows) == (3, 1, 50)
    assert lake.rows() == [*before, (1000, 0)]
    (entry,) = history(lake.table, limit=1)
    assert entry.commit_info is not None and entry.commit_info.operation == "OPTIMIZE"
    assert dict(entry.commit_info.operation_parameters or {})["auto"] == "true"


@pytest.mark.requirements("OPT-7")
@pytest.mark.slow
def test_a_write_succeeds_where_compaction_is_not_permitted_or_a_lease_is_held(
    build: Callable[..., TableBuilder], lake_client: DeltaClient, caplog: pytest.LogCaptureFixture
) -> None:
    lake = build(properties=AUTO, cluster_by=["id"])
    with caplog.at_level(logging.INFO, logger="cm_delta_dagster"):
        _fill(lake, 50)
        lake_client.wait_for_background()
    assert "does not permit DATA_REORGANIZATION" in caplog.text
    _allow(lake_client)
    with maintenance_lease(lake.table, MaintenanceKind.DATA_REORGANIZATION), caplog.at_level(logging.INFO):
        lake.append((1000, 0))
        lake_client.wait_for_background()
    assert "holds the maintenance lease" in caplog.text
    assert lake.table.snapshot().version == 2
    lake.append((1001, 0))
    lake_client.wait_for_background()
    snapshot = lake.table.snapshot()
    assert (snapshot.version, snapshot.num_files) == (4, 1)
    assert snapshot.files["clusteringProvider"].to_pylist() == [PROVIDER], "a clustered table is clustered"


def _compactable(*counts: int, size: int = 100) -> list[str]:
    """The paths of chosen files of a table with that many files in each partition."""
    metadata = Metadata(
        id="x", schema_string='{"type":"struct","fields":[{"name":"p","type":"integer","nullable":true,"metadata":{}}]}',
        partition_columns=("p",),
    )  # fmt: skip
    empty = Snapshot.before_creation(
        identifier="t",
        table_id="x",
        location="file:///t",
        protocol=catalog_managed_protocol(),
        metadata=metadata,
        domains={},
    )
    adds = [
        add_file(f"{p}-{number}", partition_values={"p": str(p)}, size=size)
        for p, count in enumerate(counts)
        for number in range(count)
    ]
    state = replace(
        empty.state, files=FileState.of(adds_to_table(adds), REMOVE_SCHEMA.empty_table(), location="file:///t")
    )
    found: list[str] = compactable_files(replace(empty, state=state))["path"].to_pylist()
    return found


@pytest.mark.requirements("OPT-7")
def test_the_small_files_of_partitions_with_many_of_them_are_found() -> None:
    assert _compactable(49, 49) == []
    assert {path[0] for path in _compactable(49, 50, 3)} == {"1"}
    assert len(_compactable(60, 70)) == 130
    assert _compactable(60, size=64 << 20) == []
