"""Recovery with the warehouse in S3: a lost catalog, and one that was restored from an older copy."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import CatalogBehindStorageError, WarehouseMismatchError
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.remedies import RecoverTable, RecoverWarehouse
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.object_stores import make_bucket, s3_options
from tests.support.old_catalog import back_up
from tests.support.s3_lake import commit, paths

NAME, DROPPED = "main.test.t", "main.test.dropped"
SCHEMA = pa.schema([("id", pa.int64())])
_FILES = ("catalog.db", "catalog.db-wal", "catalog.db-shm")


@pytest.fixture
def opened(s3_endpoint: str, tmp_path: Path) -> Callable[[], Connection]:
    """Opens the catalog of a warehouse in a new bucket."""
    bucket = f"b-{uuid.uuid4().hex}"
    options = s3_options(s3_endpoint)
    make_bucket(FsspecStore("s3", options=options), bucket)
    return lambda: connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"s3://{bucket}/w", storage_options=options)


def lose(directory: Path) -> None:
    for file in _FILES:
        (directory / file).unlink(missing_ok=True)


def test_a_lost_catalog_is_rebuilt_from_the_markers_and_logs(
    opened: Callable[[], Connection], s3_endpoint: str, tmp_path: Path
) -> None:
    with opened() as lake:
        table = lake.create_table(NAME, SCHEMA)
        for number in range(3):
            commit(table.table, f"{number}.parquet")
        lake.create_table(DROPPED, SCHEMA)
        drop_table(lake.client, identifier=DROPPED)
        location, former = table.location, lake.client.registry.identity()
        bucket = location.split("/")[2]
    marker = FsspecStore("s3", options=s3_options(s3_endpoint)).read(f"s3://{bucket}/w/_cm_delta_warehouse.json")
    assert json.loads(marker)["catalog_id"] == former.catalog_id
    lose(tmp_path)
    with opened() as lake, pytest.raises(WarehouseMismatchError) as mismatch:
        lake.create_table("main.test.new", SCHEMA)
    assert isinstance(mismatch.value.remedy, RecoverWarehouse)

    def run(*words: str) -> str:
        options = [
            text for name, value in s3_options(s3_endpoint).items() for text in ("--storage-option", f"{name}={value}")
        ]
        done = CliRunner().invoke(main, ["--catalog", f"sqlite:///{tmp_path}/catalog.db", *options, *words])
        assert done.exit_code == 0, done.output
        return done.output

    warehouse = ("recovery", "recover", "--warehouse", f"s3a://{bucket}/w/")
    assert NAME in run(*warehouse)
    with opened() as lake:
        assert lake.tables() == ()
    run(*warehouse, "--apply")
    with opened() as lake:
        (name,) = lake.tables()
        table = lake.table(name)
        assert (str(name), table.location, table.version()) == (NAME, location, 3)
        assert paths(table.table) == ["0.parquet", "1.parquet", "2.parquet"]
        assert commit(table.table, "new.parquet").version == 4
        (dropped,) = lake.client.registry.inactive_tables()
        assert str(dropped.identifier) == DROPPED
        assert read_arrow(open_scan(lake.create_table("main.test.new", SCHEMA).table)).num_rows == 0


@pytest.mark.slow
def test_a_catalog_restored_from_a_copy_takes_in_the_commits_in_storage(
    opened: Callable[[], Connection], tmp_path: Path
) -> None:
    with opened() as lake:
        commit(lake.create_table(NAME, SCHEMA).table, "0.parquet")
        back_up(tmp_path)
        commit(lake.table(NAME).table, "1.parquet")
        commit(lake.table(NAME).table, "2.parquet")
    lose(tmp_path)
    (tmp_path / "catalog.db").write_bytes((tmp_path / "backup.db").read_bytes())
    with opened() as lake:
        with pytest.raises(CatalogBehindStorageError) as behind:
            commit(lake.table(NAME).table, "fork.parquet")
        assert behind.value.remedy == RecoverTable(table=NAME)
        assert lake.recovery.recover(NAME).num_commits == 2
        assert paths(lake.table(NAME).table) == ["0.parquet", "1.parquet", "2.parquet"]
        assert commit(lake.table(NAME).table, "3.parquet").version == 4
