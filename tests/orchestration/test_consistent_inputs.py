"""The inputs of a step are read at versions that belong together: a commit over several tables is in all of them or in none."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster import Snapshot
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from cm_delta_dagster.orchestration.runs.runs import pinned_version
from tests.orchestration.log_tables import make_table, resource_at
from tests.support.actions import add_file

TABLES = ("main.default.orders", "main.default.totals")
UPSTREAM = (dg.AssetSpec("orders"), dg.AssetSpec("totals"))
INPUTS = {"orders": dg.AssetIn("orders"), "totals": dg.AssetIn("totals")}


def commit_both(client: DeltaClient) -> None:
    """One transaction that adds a file to both tables."""
    parts = []
    for name in TABLES:
        table = client.table(name)
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add_file(f"part-{table.snapshot().version}.parquet", size=10)])
        parts.append(TableCommit(committer=table.committer, transaction=transaction))
    commit = MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings)
    commit.finish(commit.ratify())


class CommitsAfterEachInput(CatalogManagedDeltaIOManager):
    """Another writer commits to both tables after each input that is loaded."""

    def load_input(self, context: dg.InputContext) -> Any:
        loaded = super().load_input(context)
        commit_both(self.catalog.client)
        return loaded


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogResource:
    """A catalog with both tables; inputs that are snapshots need no Spark."""
    resource = resource_at(tmp_path)
    for name in TABLES:
        make_table(resource.client, name)
    return resource


def read(catalog: CatalogResource, **ins: dg.AssetIn) -> list[tuple[int, int]]:
    """The versions of both tables that an asset reads."""
    seen = []

    @dg.asset(ins=INPUTS | ins)
    def report(orders: Snapshot, totals: Snapshot) -> None:
        seen.append((orders.version, totals.version))

    manager = CommitsAfterEachInput(catalog=catalog, spark=SparkResource())
    dg.materialize([*UPSTREAM, report], resources={"io_manager": manager})
    return seen


def test_no_input_of_a_step_sees_a_later_transaction_than_another(catalog: CatalogResource) -> None:
    assert read(catalog) == [(0, 0)]
    assert read(catalog) == [(2, 2)]


def test_an_input_with_a_version_of_its_own_is_read_at_that_version(catalog: CatalogResource) -> None:
    assert read(catalog) == [(0, 0)]
    assert read(catalog, totals=dg.AssetIn("totals", metadata={"version": 1})) == [(2, 1)]


def test_an_input_of_another_io_manager_does_not_prevent_the_read(catalog: CatalogResource) -> None:
    seen = []

    @dg.asset(io_manager_key="files", metadata={"version": "seven"})
    def notes() -> str:
        return "text"

    @dg.asset(ins=INPUTS)
    def report(context: dg.AssetExecutionContext, notes: str, orders: Snapshot, totals: Snapshot) -> None:
        step = context.op_execution_context.get_step_execution_context()
        seen.append((notes, orders.version, pinned_version(step, catalog.client.table(TABLES[1]))))

    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=SparkResource())
    dg.materialize([*UPSTREAM, notes, report], resources={"io_manager": manager, "files": dg.mem_io_manager})
    assert seen == [("text", 0, 0)]
