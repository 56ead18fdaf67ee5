"""``cm-delta position``: how far an asset has read the changes of its inputs is shown, set and skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import SetProperties
from cm_delta_dagster.operations.tables.change_positions import ConsumerInput
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.protocol.schema.types import INTEGER, StructField, StructType
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table

UP, DOWN = "main.sales.up", "main.sales.down"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[DeltaClient]:
    """Tables of which ``up`` has the versions 0 to 3."""
    made = DeltaClient(
        SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w"), stores=Stores()
    )
    for name in (UP, DOWN):
        create_table(made, identifier=name, schema=StructType((StructField("id", INTEGER),)))
    for number in range(3):
        alter_table(made.table(UP), SetProperties(properties={"a": str(number)}))
    yield made
    made.close()


def read_up_to(client: DeltaClient, consumer: str, version: int) -> ConsumerInput:
    """The commit of an asset that has read changes."""
    table = client.table(DOWN)
    read = ConsumerInput(consumer=consumer, table_id=client.table(UP).table_id)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE", parameters={})
    transaction.set_transaction(SetTransaction(app_id=read.app_id, version=version))
    transaction.commit()
    return read


def run(tmp_path: Path, *arguments: str, fails: bool = False) -> str:
    found = CliRunner().invoke(main, ["--catalog", f"sqlite:///{tmp_path}/catalog.db", "position", *arguments])
    assert (found.exit_code != 0) == fails, found.output
    return found.output


@pytest.mark.requirements("TXN-4")
def test_a_position_is_shown_and_set_and_skipped(client: DeltaClient, tmp_path: Path) -> None:
    """Each position that is set is counted, so that what was reported before it does not count."""
    read = read_up_to(client, "sales/down", 1)
    shown = run(tmp_path, "show", DOWN, "--csv").splitlines()
    assert shown == ["asset,input,read_up_to,latest,unread_versions", f"sales/down,{UP},1,3,2"]
    assert run(tmp_path, "set", DOWN, UP, "0") == f"sales/down continues after version 0 of {UP}.\n"
    assert run(tmp_path, "skip", DOWN, UP) == f"sales/down continues after version 3 of {UP}.\n"
    snapshot = client.table(DOWN).snapshot()
    assert (read.position(snapshot), read.times_set(snapshot)) == (3, 2)
    commit = client.table(DOWN).snapshot().version
    (last,) = client.table(DOWN).commits(commit, commit)
    assert last.actions.commit_info is not None
    assert last.actions.commit_info.operation == "SET POSITION"


def test_it_is_never_guessed_whose_position_is_set(client: DeltaClient, tmp_path: Path) -> None:
    assert "does not record one position in the changes of main.sales.up: it has none" in run(
        tmp_path, "skip", DOWN, UP, fails=True
    )
    for consumer in ("a", "b"):
        read_up_to(client, consumer, 1)
    assert "it has those of a, b. Name the asset" in run(tmp_path, "set", DOWN, UP, "2", fails=True)
    run(tmp_path, "set", DOWN, UP, "2", "--asset", "b")
    shown = run(tmp_path, "show", DOWN, "--csv").splitlines()[1:]
    assert shown == [f"a,{UP},1,3,2", f"b,{UP},2,3,1"]
    assert "has no version 4: its versions are 0 to 3" in run(
        tmp_path, "set", DOWN, UP, "4", "--asset", "b", fails=True
    )


def test_an_input_that_was_dropped_is_shown_by_its_id(client: DeltaClient, tmp_path: Path) -> None:
    read = read_up_to(client, "sales/down", 1)
    client.registry.drop_table(client.table(UP).identifier)
    assert run(tmp_path, "show", DOWN, "--csv").splitlines()[1:] == [f"sales/down,{read.table_id},1,,"]
