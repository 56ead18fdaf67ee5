"""Row tracking: rows that move or change keep their ids, and only rows that change get a new commit version."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import overwrite
from cm_delta_dagster.protocol.features.row_tracking import (
    ENABLED,
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
    PRESERVED_TAG,
)
from tests.support.builders import TableBuilder

COLUMNS = {ENABLED: "true", MATERIALIZED_ROW_ID: "_row-id-col-1", MATERIALIZED_ROW_COMMIT_VERSION: "_row-version-col-1"}


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[[str], TableBuilder]:
    def tracked(vectors: str) -> TableBuilder:
        builder = TableBuilder(client, spark, "id long, v string")
        return builder.with_properties({**COLUMNS, "delta.enableDeletionVectors": vectors}, "rowTracking")

    return tracked


def _ids(builder: TableBuilder) -> dict[int, tuple[str, int, int]]:
    """Value, row id and commit version by key."""
    columns = ["id", "v", "_row_id", "_row_commit_version"]
    frame = read(open_scan(builder.table, columns=columns), spark=builder.spark)
    return {row["id"]: (row["v"], row["_row_id"], row["_row_commit_version"]) for row in frame.collect()}


def _is_preserved(builder: TableBuilder) -> str | None:
    info = history(builder.table, limit=1)[0].commit_info
    assert info is not None and info.tags is not None
    return info.tags.get(PRESERVED_TAG)


@pytest.mark.requirements("ROWTRK-12", "ROWTRK-13", "ROWTRK-14", "OPT-4")
@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_rows_keep_their_ids(build: Callable[[str], TableBuilder], client: DeltaClient, vectors: str) -> None:
    """Through each verb, by deletion vectors and by rewriting files."""
    builder = build(vectors)
    table, spark = builder.table, builder.spark
    builder.append(*[(i, "a") for i in range(6)])
    first = table.snapshot().version
    assert _ids(builder) == {i: ("a", i, first) for i in range(6)}

    version = update(table, spark=spark, assignments={"v": "'b'"}, where="id = 1").version
    assert _is_preserved(builder) == "true"
    expected = {i: ("a", i, first) for i in range(6)} | {1: ("b", 1, version)}
    assert _ids(builder) == expected

    delete(table, spark=spark, where="id = 0")
    del expected[0]
    assert _ids(builder) == expected

    version = merge(table, frame=builder.frame((2, "m"), (9, "n")), keys=["id"]).version
    found = _ids(builder)
    assert found[2] == ("m", 2, version) and found[9][2] == version and found[9][1] not in range(6)
    expected = {**expected, 2: found[2], 9: found[9]}
    assert found == expected

    version = builder.append((20, "z")).version  # A second file, so that there is something to compact.
    expected[20] = ("z", _ids(builder)[20][1], version)

    client.catalog.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    )
    assert optimize(table, spark=spark).num_added_files == 1
    assert _ids(builder) == expected

    version = overwrite(table, frame=builder.frame((3, "a")), where="id = 3").version
    found = _ids(builder)
    assert found[3][1] not in range(6) and found[3][2] == version
    assert {key: value for key, value in found.items() if key != 3} == {
        key: value for key, value in expected.items() if key != 3
    }
