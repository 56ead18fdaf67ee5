"""The scan of one version of a table: its forms, the version that it is bound to, and what it refuses at once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import Connection, InvalidArgumentError, PathDeltaTable, TableScan, VersionNotFoundError, connect

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "region": ["eu", "eu", "us"]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        yield lake


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Three rows in two partitions."""
    path = str(tmp_path / "foreign")
    write_deltalake(path, ROWS, partition_by=["region"])
    return path


@pytest.fixture
def table(lake: Connection, place: str) -> PathDeltaTable:
    return lake.path_table(place)


def add_row(place: str) -> None:
    write_deltalake(place, pa.table({"id": pa.array([4], pa.int64()), "region": ["us"]}), mode="append")


FORMS: dict[str, Callable[[TableScan], Any]] = {
    "to_arrow": lambda scan: scan.to_arrow()["id"].to_pylist(),
    "to_batches": lambda scan: scan.to_batches().read_all()["id"].to_pylist(),
    "to_pandas": lambda scan: scan.to_pandas()["id"].to_list(),
    "to_polars": lambda scan: scan.to_polars()["id"].to_list(),
    "lazy": lambda scan: scan.lazy().collect()["id"].to_list(),
    "dataset": lambda scan: scan.dataset().to_table()["id"].to_pylist(),
    "duckdb": lambda scan: [row[0] for row in scan.duckdb().select("id").fetchall()],
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_have_the_same_columns_and_rows(table: PathDeltaTable, form: str) -> None:
    assert sorted(FORMS[form](table.scan())) == [1, 2, 3]
    assert sorted(FORMS[form](table.scan(["ID"], where="region = 'eu' AND id > 1"))) == [2]


def test_all_methods_read_the_version_that_was_the_latest_when_the_scan_was_made(
    table: PathDeltaTable, place: str
) -> None:
    scan = table.scan(where="region = 'us'")
    add_row(place)
    assert {name: sorted(read(scan)) for name, read in FORMS.items()} == {name: [3] for name in FORMS}
    assert scan.count() == scan.aggregates().num_rows == 1
    assert scan.files().num_rows == scan.plan().files_read == 1
    assert scan.version == scan.snapshot.version == 0
    assert table.scan(where="region = 'us'").count() == 2


def test_the_frame_of_spark_is_of_the_version_of_the_scan(
    lake: Connection, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "w2"), spark=spark) as other:
        table = other.create_table_as("main.test.numbers", spark.range(3))
        scan = table.scan(["id"], where=F.col("id") > 0)
        table.append(spark.range(3, 5))
        assert sorted(row.id for row in scan.to_df().collect()) == [1, 2]
        assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 2], "a Column that SQL can express needs no Spark"
        assert scan.count() == 2 and table.scan().count() == 5


def test_a_scan_takes_the_version_or_the_time_that_is_named(table: PathDeltaTable, place: str) -> None:
    add_row(place)
    assert table.scan(version=0).count() == 3
    assert table.scan(timestamp=table.snapshot(version=0).timestamp_ms).version == 0
    assert table.to_polars(version=0).height == table.to_arrow(version=0).num_rows == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["nosuch"]}, "no column 'nosuch'; its columns are id, region"),
        ({"columns": "id"}, r"columns is 'id'; give a list of texts, e.g. \['id'\]"),
        ({"columns": ["_row_id"]}, "rowTracking"),
        ({"where": "id >"}, "id >"),
        ({"where": "nosuch = 1"}, "nosuch"),
        ({"where": 7}, "A condition is 7 of type int"),
        ({"version": "1"}, "version is '1'; give a whole number"),
        ({"version": True}, "version is True; give a whole number"),
        ({"version": 0, "timestamp": 1}, "not both"),
        ({"timestamp": "yesterday"}, "timestamp is 'yesterday'"),
        ({"time_zone": "Mars/Base"}, "is not a time zone"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_call(
    table: PathDeltaTable, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table.scan(**arguments)


def test_a_version_that_does_not_exist_is_an_error_of_the_call(table: PathDeltaTable) -> None:
    with pytest.raises(VersionNotFoundError, match="7"):
        table.scan(version=7)


def test_a_scan_knows_what_the_log_says_of_its_columns(table: PathDeltaTable) -> None:
    assert dict(table.scan().aggregates().maximums) == {"id": 3, "region": "us"}
    found = table.scan(["id"], where="region = 'eu'").aggregates()
    assert (found.num_rows, dict(found.minimums), dict(found.maximums)) == (2, {"id": 1}, {"id": 2})
    assert table.scan(where="id = 3").aggregates().num_rows is None
    assert table.scan(where="id = 3").count() == 1


def test_a_scan_is_shown_with_its_version_and_arguments(table: PathDeltaTable) -> None:
    scan = table.scan(["id"], where="id > 1")
    assert repr(scan) == f"TableScan({table.name!r}, version=0, columns=['id'], where='id > 1')"
    with pytest.raises(
        AttributeError, match=r"TableScan has no attribute 'select': a scan returns rows with to_df\(\)"
    ):
        scan.select("id")  # type: ignore[attr-defined]  # The error is the point.
