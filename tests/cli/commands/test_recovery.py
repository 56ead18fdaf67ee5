"""``cm-delta recovery`` on a real directory."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.backup import dump_command
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CatalogError,
    InvalidArgumentError,
    TableStorageMissingError,
    WarehouseMismatchError,
)
from cm_delta_dagster.remedies import RecoverTable
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.lake import SCHEMA

NAME = "main.test.t"


class House:
    """A directory with a catalog and a warehouse in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.warehouse = root, root / "warehouse"
        self.url = f"sqlite:///{root}/catalog.db"

    def client(self) -> DeltaClient:
        return DeltaClient(SqlCatalog(self.url, warehouse=str(self.warehouse)), stores=Stores())

    def append(self, *, create: bool = False) -> int:
        client = self.client()
        try:
            table = create_table(client, identifier=NAME, schema=SCHEMA) if create else client.table(NAME)
            name = f"part-{table.snapshot().version}.parquet"
            transaction = table.start_transaction(table.snapshot(), operation="WRITE")
            transaction.add_files([add_file(name, size=4)])
            Path(table.location.removeprefix("file://"), name).write_bytes(b"PAR1")
            return transaction.commit().version
        finally:
            client.close()

    def lose_catalog(self) -> None:
        for file in self.root.glob("catalog.db*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()

    def restore(self, backup: Path) -> None:
        self.lose_catalog()
        shutil.copy(backup, self.root / "catalog.db")

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["--catalog", self.url, *words])


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.append(create=True)
    return house


def test_backup_restore_and_recover_restore_every_commit(house: House, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    assert house.run("recovery", "backup", str(backup)).exit_code == 0
    house.append()
    house.append()
    house.restore(backup)
    with pytest.raises(CatalogBehindStorageError, match="behind its storage") as refused:
        house.append()
    assert refused.value.remedy == RecoverTable(table=NAME)
    shown = house.run("recovery", "recover", NAME)
    assert shown.exit_code == 0 and "2 commits would be recorded; nothing was changed" in shown.output
    done = house.run("recovery", "recover", "--all", "--apply")
    assert done.exit_code == 0 and "2 commits recorded in the catalog." in done.output
    assert "agree up to version 3" in house.run("recovery", "recover", NAME).output
    assert house.append() == 4


def test_a_backup_is_complete_and_replaces_no_file(house: House, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    with house.client().catalog as live:  # type: ignore[attr-defined]  # The interface Catalog is no context manager; SqlCatalog is.
        live.registry.list_tables()
        assert house.run("recovery", "backup", str(backup)).exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup.db"]
    with closing(sqlite3.connect(f"file:{backup}?mode=ro", uri=True)) as copy:
        assert copy.execute("SELECT count(*) FROM cm_delta_commits").fetchone() == (2,)
    before = backup.read_bytes()
    again = house.run("recovery", "backup", str(backup))
    assert again.exit_code == 1 and "exists already" in again.output and backup.read_bytes() == before
    assert "does not exist" in house.run("recovery", "backup", str(tmp_path / "nowhere" / "b.db")).output
    missing = CliRunner().invoke(
        main, ["--catalog", f"sqlite:///{tmp_path}/no.db", "recovery", "backup", str(tmp_path / "x.db")]
    )
    assert missing.exit_code == 1 and not (tmp_path / "x.db").exists()


def test_the_library_backs_up_too(house: House, tmp_path: Path) -> None:
    with connect(house.url, warehouse=str(house.warehouse)) as lake:
        assert lake.recovery.backup(tmp_path / "copy.db") == (tmp_path / "copy.db").stat().st_size
        with pytest.raises(InvalidArgumentError, match="exists already"):
            lake.recovery.backup(tmp_path / "copy.db")


@pytest.mark.postgres
def test_the_backup_command_of_a_postgresql_catalog_is_named(postgres_url: str, tmp_path: Path) -> None:
    with SqlCatalog(postgres_url) as catalog:
        catalog.registry.list_tables()
        with pytest.raises(CatalogError, match=r"pg_dump --format=custom --file=.*backup\.dump 'postgresql://"):
            catalog.recovery.back_up(tmp_path / "backup.dump")


def test_a_lost_catalog_is_rebuilt_and_its_plan_creates_none(house: House) -> None:
    house.append()
    house.lose_catalog()
    with pytest.raises(WarehouseMismatchError, match="belongs to the catalog"):
        house.append(create=True)
    house.lose_catalog()
    shown = house.run("recovery", "recover", "--warehouse", str(house.warehouse))
    assert shown.exit_code == 0 and "1 table would be adopted; nothing was changed" in shown.output
    assert "belongs to the catalog" in shown.output
    assert not list(house.root.glob("catalog.db*"))
    done = house.run("recovery", "recover", "--warehouse", str(house.warehouse), "--apply")
    assert done.exit_code == 0 and "1 table adopted" in done.output
    assert house.append() == 3


def test_a_moved_warehouse_is_relocated(house: House) -> None:
    old, new = str(house.warehouse), str(house.root / "moved")
    house.warehouse.rename(new)
    with pytest.raises(TableStorageMissingError):
        house.append()
    shown = house.run("recovery", "relocate", "--from", old, "--to", new)
    assert (
        shown.exit_code == 0
        and shown.output.startswith("found    main.test.t")
        and "nothing was changed" in shown.output
    )
    for elsewhere in (("nope",), ("nope", "--apply"), (f"{old}2", "main.test")):
        none = house.run(
            "recovery", "relocate", *elsewhere[1:], "--from", elsewhere[0], "--to", str(house.root / "lake")
        )
        assert none.exit_code == 1 and "lies below" in none.output and f"{old}/main/test/t-" in none.output
    for _ in range(2):
        assert house.run("recovery", "relocate", "--from", old, "--to", new, "--apply").exit_code == 0
    house.warehouse = Path(new)
    assert house.append() == 2
    assert not Path(old).exists()
    refused = house.run("recovery", "relocate", "--from", new, "--to", f"{house.root}/nowhere", "--apply")
    assert refused.exit_code == 1 and "Nothing was relocated" in refused.output and "nowhere" in refused.output


@pytest.mark.parametrize(
    "words",
    [
        (
            "recovery",
            "recover",
        ),
        ("recovery", "recover", NAME, "--all"),
        ("recovery", "recover", "--warehouse", "x", "--keep", "storage"),
        ("recovery", "recover", NAME, "--name", "a=b.c.d"),
        ("recovery", "recover", "--warehouse", "x", "--name", "nothing"),
        ("recovery", "recover", NAME, "--keep", "both"),
        ("recovery", "relocate", "--from", "x"),
    ],
)
def test_invalid_calls_are_usage_errors(house: House, words: tuple[str, ...]) -> None:
    answer: Any = house.run(*words)
    assert answer.exit_code == 2 and "Usage" in answer.output


def test_invalid_values_are_errors_of_one_sentence(house: House) -> None:
    for words in (
        ("recovery", "recover", "main.test.unknown"),
        ("recovery", "recover", NAME, "--take-staged", "nothing.json"),
        ("recovery", "recover", "--warehouse", str(house.warehouse), "--name", "nowhere=main.test.x"),
        ("recovery", "recover", "--warehouse", str(house.warehouse), "--name", "nowhere=x"),
        ("recovery", "relocate", "--from", str(house.warehouse), "--to", str(house.warehouse)),
    ):
        answer = house.run(*words)
        assert answer.exit_code == 1 and answer.output.startswith("Error: "), answer.output


def test_a_plan_that_cannot_be_applied_is_reported_once(house: House) -> None:
    for file in (house.warehouse).rglob("*.json"):
        file.unlink()
    for words in ((NAME,), ("--all",), (NAME, "--apply")):
        answer = house.run("recovery", "recover", *words)
        assert answer.exit_code == 1 and answer.output.count("could not be checked") == 1, answer.output
        assert "--apply carries out" not in answer.output


def test_a_plan_with_conflicts_does_not_advise_apply(house: House) -> None:
    missing = house.run("recovery", "relocate", "--from", str(house.warehouse), "--to", f"{house.root}/nowhere")
    assert missing.exit_code == 1 and "1 of 1 table not found" in missing.output
    assert "would be relocated" not in missing.output and "--apply carries out" not in missing.output
    house.lose_catalog()
    (directory,) = (house.warehouse / "main" / "test").iterdir()
    shutil.copytree(directory, directory.with_name("copy"))
    undecided = house.run("recovery", "recover", "--warehouse", str(house.warehouse))
    assert undecided.exit_code == 1 and "2 of 2 tables undecided" in undecided.output, undecided.output
    assert "--apply carries out" not in undecided.output


def test_a_missing_warehouse_is_named_and_no_catalog_is_created(house: House) -> None:
    house.lose_catalog()
    answer = house.run("recovery", "recover", "--warehouse", f"{house.root}/typo")
    assert answer.exit_code == 1 and f"There is no directory {house.root}/typo" in answer.output
    assert not list(house.root.glob("catalog.db*"))


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg://u:secret@host/base", "postgresql+psycopg://u@host/base?password=secret&sslmode=require"],
)
def test_the_dump_command_of_a_catalog_hides_its_password(url: str) -> None:
    command = dump_command(sa.make_url(url), Path("a b.dump"))
    assert command.startswith("pg_dump --format=custom --file='a b.dump' 'postgresql://u@host/base")
    assert "secret" not in command and "***" not in command and "PGPASSWORD" in command and "~/.pgpass" in command
    assert ("sslmode=require" in command) == ("sslmode" in url)
