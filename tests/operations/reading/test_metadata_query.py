"""Aggregates of a table without reading its rows."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from cm_delta_dagster.client.snapshots.path_table import PathTable, open_path_table
from cm_delta_dagster.errors import InvalidArgumentError, VersionNotFoundError
from cm_delta_dagster.operations.reading.metadata_query import aggregate
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates
from cm_delta_dagster.storage.stores import Stores


@pytest.fixture
def table(tmp_path: Path) -> PathTable:
    for low in (0, 10):
        rows = pa.table({"k": range(low, low + 4), "p": ["a", "b", "a", "b"], "v": ["x"] * 4})
        deltalake.write_deltalake(str(tmp_path / "t"), rows, mode="append", partition_by=["p"])
    return open_path_table(Stores(), str(tmp_path / "t"))


@pytest.mark.requirements("SKIP-6")
def test_the_log_answers_without_data_files(table: PathTable, tmp_path: Path) -> None:
    for file in (tmp_path / "t").rglob("*.parquet"):
        file.unlink()
    assert aggregate(open_scan(table, columns=["K", "p", "v"])) == MetadataAggregates(
        num_rows=8, minimums={"k": 0, "p": "a"}, maximums={"k": 13, "p": "b"}
    )
    assert aggregate(open_scan(table, where="p = 'b'", columns=["k"])) == MetadataAggregates(
        num_rows=4, minimums={"k": 1}, maximums={"k": 13}
    )
    assert aggregate(open_scan(table, where="k = 3")).num_rows is None
    assert aggregate(open_scan(table, version=0)).num_rows == 4


def test_an_unknown_column_version_or_condition_is_refused(table: PathTable) -> None:
    with pytest.raises(InvalidArgumentError, match="nope"):
        aggregate(open_scan(table, columns=["nope"]))
    with pytest.raises(InvalidArgumentError, match="nope"):
        aggregate(open_scan(table, where="nope = 1"))
    with pytest.raises(VersionNotFoundError):
        aggregate(open_scan(table, version=7))
