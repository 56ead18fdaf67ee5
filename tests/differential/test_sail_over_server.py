"""Sail reads and writes tables of the catalog through the server, by Unity Catalog's older API."""

import os
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.server.settings import ServerSettings
from tests.differential.other_readers import Sail, sail_server
from tests.support.cached_folders import or_skip
from tests.support.live_server import LiveServer, live_server
from tests.support.peer_environments import peer_environment
from tests.support.unity_wire import UnityWire

pytestmark = [pytest.mark.slow, pytest.mark.peers]

TABLE = "lake.s.t"
PAGE = Path(__file__).parents[2] / "docs" / "other-engines.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("served")
    settings = ServerSettings(catalog=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    with live_server(settings) as live:
        wire = UnityWire(live)
        wire.older("POST", "schemas", {"name": "s", "catalog_name": "main"})
        wire.http.close()
        yield live


@pytest.fixture(scope="module")
def sail(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sail]:
    """Sail, with the catalog ``main`` of the server as ``lake``."""
    uri, token = f"{server.url}/api/2.1/unity-catalog", server.token_for("sail")
    catalog = f'[{{name="lake", type="unity", uri="{uri}", default_catalog="main", token="{token}"}}]'
    environment = or_skip(peer_environment, "sail")
    with sail_server(environment, tmp_path_factory.mktemp("sail"), {"SAIL_CATALOG__LIST": catalog}) as running:
        yield running


@pytest.fixture
def lake(server: LiveServer) -> Iterator[Connection]:
    """A connection of this package to the same database."""
    with connect(server.settings.catalog, warehouse=server.settings.warehouse) as connection:
        yield connection


def rows_of(lake: Connection, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table(name).scan().to_arrow().sort_by("id").to_pylist()
    return rows


def rows_in(answer: Any) -> list[dict[str, Any]]:
    assert not isinstance(answer, str), answer
    rows: list[dict[str, Any]] = answer.sort_by("id").to_pylist()
    return rows


@pytest.mark.client("Sail", "read", "INSERT", "DELETE", "MERGE", "UPDATE", by="server")
def test_sail_reads_and_changes_a_table_of_this_package(sail: Sail, lake: Connection) -> None:
    rows = pa.table({"id": [1, 2], "v": ["a", "b"], "d": [Decimal("1.50"), Decimal("2.50")]})
    lake.open_or_create("main.s.t", like=rows).append(rows)
    first = rows_of(lake, "main.s.t")
    source = "SELECT 3 AS id, 'z' AS v UNION ALL SELECT 4, 'd'"
    for statement, expected in (
        (f"SELECT * FROM {TABLE}", {1: "a", 2: "b"}),
        (f"INSERT INTO {TABLE} VALUES (3, 'c', 3.5)", {1: "a", 2: "b", 3: "c"}),
        (f"DELETE FROM {TABLE} WHERE id = 2", {1: "a", 3: "c"}),
        (
            f"MERGE INTO {TABLE} AS t USING ({source}) AS u ON t.id = u.id WHEN MATCHED THEN UPDATE SET v = u.v "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (u.id, u.v)",
            {1: "a", 3: "z", 4: "d"},
        ),
        (f"UPDATE {TABLE} SET v = 'q' WHERE id = 1", {1: "q", 3: "z", 4: "d"}),
    ):
        answer, read = sail.answers(statement, f"SELECT * FROM {TABLE}")
        assert not isinstance(answer, str), answer
        assert {row["id"]: row["v"] for row in rows_in(read)} == expected
        assert rows_in(read) == rows_of(lake, "main.s.t")
        if statement.startswith("SELECT"):
            assert rows_in(answer) == first
    operations = [entry.commit_info and entry.commit_info.operation for entry in lake.table("main.s.t").history()]
    assert operations[:4] == ["UPDATE", "MERGE", "DELETE", "WRITE"]


@pytest.mark.client("Sail", "create", "list", by="server")
def test_a_table_that_sail_creates_is_one_of_the_catalog(sail: Sail, lake: Connection) -> None:
    created, inserted, read, again, listed = sail.answers(
        "CREATE TABLE lake.s.made (id BIGINT, d DECIMAL(10, 2), day DATE) USING delta PARTITIONED BY (day) COMMENT 'of days'",
        "INSERT INTO lake.s.made VALUES (1, 1.5, DATE'2026-01-01'), (2, 2.5, DATE'2026-01-02')",
        "SELECT * FROM lake.s.made",
        "CREATE TABLE lake.s.made (id BIGINT) USING delta",
        "SHOW TABLES IN lake.s",
    )
    assert not isinstance(created, str), created
    assert not isinstance(inserted, str), inserted
    assert rows_in(read) == rows_of(lake, "main.s.made") and len(rows_in(read)) == 2
    assert isinstance(again, str) and "already exists" in again
    assert not isinstance(listed, str) and "made" in listed["tableName"].to_pylist()
    snapshot = lake.table("main.s.made").snapshot()
    assert (snapshot.partition_columns, snapshot.metadata.description) == (("day",), "of days")


def test_the_statements_of_the_page_work(server: LiveServer, sail: Sail, lake: Connection) -> None:
    wire = UnityWire(server)
    wire.older("POST", "schemas", {"name": "sales", "catalog_name": "main"})
    wire.http.close()
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text().partition("## Sail")[2], re.DOTALL)
    for answer in sail.answers(*(statement.strip() for statement in block.split(";") if statement.strip())):
        assert not isinstance(answer, str), answer
    assert [row["id"] for row in rows_of(lake, "main.sales.orders")] == [1]


@pytest.mark.client(
    "Sail",
    "read",
    by="server",
    refuses="tables with two staged commits of one version, and tables without staged commits",
)
def test_sail_needs_one_staged_commit_of_each_version(sail: Sail, lake: Connection) -> None:
    """A lost attempt of another writer, and the clean-up of staged commits, make a table unreadable for Sail 0.7.2 only."""
    rows = pa.table({"id": [1], "v": ["a"]})
    lake.maintenance.set_policy("main.s", MaintenanceKind.METADATA_CLEANUP, reason="tests")
    table = lake.open_or_create("main.s.lost", like=rows)
    table.append(rows)
    table.append(rows)
    table.maintenance.publish()
    staged = Path(table.table.location.removeprefix("file://"), "_delta_log", "_staged_commits")
    first = min(staged.iterdir())
    (staged / f"{first.name[:20]}.{uuid.uuid4()}.json").write_bytes(first.read_bytes())
    assert sail.answers("SELECT * FROM lake.s.lost") == [
        "Multiple staged Delta commits found for catalog-managed version 1"
    ]
    for file in staged.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    table.maintenance.clean_staged_commits()
    (answer,) = sail.answers("SELECT * FROM lake.s.lost")
    assert isinstance(answer, str) and "was not returned by the catalog" in answer
    assert table.to_arrow().num_rows == 2
