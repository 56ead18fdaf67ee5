"""Unity Catalog's official generated client calls the server, and parses each answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.server.settings import ServerSettings
from tests.support.cached_folders import or_skip
from tests.support.live_server import LiveServer, live_server
from tests.support.older_wire import older_creation_of, with_underscores
from tests.support.peer_environments import peer_environment
from tests.support.unity_wire import FIELDS, UnityWire, add_action, now_ms, stage, write_version_0

pytestmark = [pytest.mark.slow, pytest.mark.peers]

PROGRAM = Path(__file__).with_name("unitycatalog_program.py")
SCHEMA = {"catalog": "main", "var_schema": "s"}
TABLE = SCHEMA | {"table": "t"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        yield live


def answers(server: LiveServer, *calls: dict[str, Any]) -> list[Any]:
    request = {"url": server.url, "token": server.token_for("ana"), "calls": calls}
    result: list[Any] = or_skip(peer_environment, "unitycatalog").run_json(PROGRAM, request)
    return result


def call(api: str, method: str, model: str = "", body: Any = None, **arguments: Any) -> dict[str, Any]:
    of_body = {"model": model, "body": body} if model else {}
    return {"api": api, "method": method, "arguments": arguments} | of_body


@pytest.mark.client("unitycatalog-client", "create", "list", by="server")
def test_every_call_of_the_official_client_is_answered_as_it_expects(server: LiveServer) -> None:
    schema = {"name": "s", "catalog_name": "main"}
    created, schemas, catalogs, config, staging = answers(
        server,
        call("SchemasApi", "create_schema", "CreateSchema", schema),
        call("SchemasApi", "list_schemas", catalog_name="main"),
        call("CatalogsApi", "list_catalogs"),
        call("DeltaConfigurationApi", "get_config", catalog="main", protocol_versions="1.0"),
        call("DeltaTablesApi", "create_staging_table", "DeltaCreateStagingTableRequest", {"name": "t"}, **SCHEMA),
    )
    assert created["full_name"] == "main.s" and created in schemas["schemas"]
    assert [catalog["name"] for catalog in catalogs["catalogs"]] == ["main"]
    assert config["protocol-version"] == "1.0"
    assert staging["required-properties"]["io.unitycatalog.tableId"] == staging["table-id"]
    request = {
        "name": "t",
        "location": staging["location"],
        "table-type": "MANAGED",
        "columns": {"type": "struct", "fields": FIELDS},
        "partition-columns": [],
        "protocol": staging["required-protocol"],
        "properties": staging["required-properties"],
        "last-commit-timestamp-ms": now_ms(),
    }
    write_version_0(request)
    credentials, table, exists, read, listed, info = answers(
        server,
        call("DeltaTemporaryCredentialsApi", "get_staging_table_credentials", table_id=staging["table-id"]),
        call("DeltaTablesApi", "create_table", "DeltaCreateTableRequest", request, **SCHEMA),
        call("DeltaTablesApi", "table_exists", **TABLE),
        call("DeltaTemporaryCredentialsApi", "get_table_credentials", operation="READ", **TABLE),
        call("TablesApi", "list_tables", catalog_name="main", schema_name="s"),
        call("TablesApi", "get_table", full_name="main.s.t"),
    )
    assert credentials["storage-credentials"][0]["operation"] == "READ_WRITE"
    assert table["metadata"]["table-uuid"] == staging["table-id"] and table["latest-table-version"] == 0
    assert exists is None and read["storage-credentials"][0]["prefix"] == staging["location"]
    assert [one["name"] for one in listed["tables"]] == ["t"] and info["table_id"] == staging["table-id"]


@pytest.mark.client("unitycatalog-client", "INSERT", "rename", "drop", by="server")
def test_the_official_client_commits_renames_and_deletes(server: LiveServer) -> None:
    wire = UnityWire(server)
    loaded = wire.create("t")
    update = wire.proposal("t", stage(loaded, add_action("a.parquet")))
    metrics = {"table-id": loaded["metadata"]["table-uuid"], "report": {"commit-report": {"num-files-added": 1}}}
    committed, repeated, reported, renamed, lost, deleted, gone = answers(
        server,
        call("DeltaTablesApi", "update_table", "DeltaUpdateTableRequest", update, **TABLE),
        call("DeltaTablesApi", "update_table", "DeltaUpdateTableRequest", update, **TABLE),
        call("DeltaTablesApi", "report_metrics", "DeltaReportMetricsRequest", metrics, **TABLE),
        call("DeltaTablesApi", "rename_table", "DeltaRenameTableRequest", {"new-name": "u"}, **TABLE),
        call("DeltaTablesApi", "load_table", **TABLE),
        call("DeltaTablesApi", "delete_table", **(TABLE | {"table": "u"})),
        call("DeltaTablesApi", "load_table", **(TABLE | {"table": "u"})),
    )
    assert committed["latest-table-version"] == repeated["latest-table-version"] == 1
    assert (reported, renamed, deleted) == (None, None, None)
    for answer in (lost, gone):
        assert (answer["status"], answer["body"]["error"]["type"]) == (404, "NoSuchTableException")
    wire.http.close()


def test_the_official_client_creates_and_commits_by_the_older_api(server: LiveServer) -> None:
    wire = UnityWire(server)
    contract = wire.staging("t")
    names = {"name": "t", "catalog_name": "main", "schema_name": "s"}
    (staging,) = answers(server, call("TablesApi", "create_staging_table", "CreateStagingTable", names))
    properties = contract["required-properties"] | {"io.unitycatalog.tableId": staging["id"]}
    request = wire.creation("t", contract, location=staging["staging_location"], properties=properties)
    write_version_0(request)
    staged_table, credentials = answers(
        server,
        call("TablesApi", "create_table", "CreateTable", older_creation_of(request)),
        call(
            "TemporaryCredentialsApi",
            "generate_temporary_table_credentials",
            "GenerateTemporaryTableCredential",
            {"table_id": staging["id"], "operation": "READ"},
        ),
    )
    assert staged_table["table_id"] == staging["id"] and staged_table["storage_location"] == staging["staging_location"]
    assert credentials["url"] == staging["staging_location"]
    of_table = {"table_id": staging["id"], "table_uri": staging["staging_location"]}
    loaded = wire.load("t")
    staged, other = stage(loaded, add_action("a.parquet")), stage(loaded, add_action("b.parquet"))
    commit = of_table | {"commit_info": with_underscores(staged.commit), "latest_backfilled_version": 0}
    late = of_table | {"commit_info": with_underscores(other.commit)}
    committed, repeated, conflict, commits, page, deleted = answers(
        server,
        call("DeltaCommitsApi", "commit", "DeltaCommit", commit),
        call("DeltaCommitsApi", "commit", "DeltaCommit", commit),
        call("DeltaCommitsApi", "commit", "DeltaCommit", late),
        call("DeltaCommitsApi", "get_commits", "DeltaGetCommits", of_table | {"start_version": 0}),
        call("TablesApi", "list_tables", catalog_name="main", schema_name="s", max_results=1),
        call("TablesApi", "delete_table", full_name="main.s.t"),
    )
    assert "200 OK" in str(committed) and "200 OK" in str(repeated)
    assert (conflict["status"], conflict["body"]["error_code"]) == (409, "ABORTED")
    assert commits["status"] == 400, "the client sends no body with GET"
    assert [table["name"] for table in page["tables"]] == ["t"] and "200 OK" in str(deleted)
    wire.http.close()
