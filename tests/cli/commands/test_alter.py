"""``cm-delta alter``: each command makes the change of its name."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import StructField, StructType, schema_text
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table

NAME = "main.sales.orders"


@pytest.fixture
def url(tmp_path: Path) -> str:
    text = f"sqlite:///{tmp_path}/catalog.db"
    schema = StructType((StructField("id", parse_column_type("int").type),))
    client = DeltaClient(SqlCatalog(text, warehouse=f"file://{tmp_path}/ware"), stores=Stores())
    create_table(client, identifier=NAME, schema=schema)
    client.close()
    return text


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--catalog", url, "alter", *arguments])


def snapshot(url: str) -> Snapshot:
    client = DeltaClient(SqlCatalog(url), stores=Stores())
    found = client.table(NAME).snapshot()
    client.close()
    return found


@pytest.mark.requirements("META-6", "COLMAP-11", "COLMAP-12")
def test_columns_properties_and_features_are_changed(url: str) -> None:
    for arguments in (
        ("set-property", NAME, "delta.columnMapping.mode=name", "delta.enableTypeWidening=true", "a=b=c"),
        ("add-column", NAME, "s", "struct<x: int>", "--first", "--comment", "text"),
        ("add-column", NAME, "s.y", "date"),
        ("rename-column", NAME, "s.x", "z"),
        ("drop-column", NAME, "s.y"),
        ("change-column", NAME, "id", "--type", "bigint", "--first", "--not-null", "--comment", "key"),
        ("unset-property", NAME, "other"),
        ("comment", NAME, "all orders"),
        ("enable-feature", NAME, "timestampNtz"),
        ("drop-feature", NAME, "deletionVectors"),
    ):
        found = run(url, *arguments)
        assert found.exit_code == 0, found.output
    assert "version 9." in found.output
    after = snapshot(url)
    assert schema_text(after.schema).splitlines() == ["  id: bigint not null", "  s: struct", "    z: int"]
    assert (after.metadata.description, after.metadata.configuration["a"]) == ("all orders", "b=c")
    assert "nothing was committed" in run(url, "comment", NAME, "all orders").output


@pytest.mark.requirements("COLMAP-13")
def test_refusals_say_what_to_do(url: str) -> None:
    assert "KEY=VALUE" in run(url, "set-property", NAME, "a").output
    assert "one of --first and --after" in run(url, "change-column", NAME, "id", "--first", "--after", "x").output
    refused = run(url, "drop-column", NAME, "id")
    assert refused.exit_code == 1
    assert "delta.columnMapping.mode" in refused.output
    assert snapshot(url).version == 0
