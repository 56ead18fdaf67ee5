"""Tables, schemas and catalogs over both generations of Unity Catalog's API: load, list, create, drop, rename."""

import json
import logging
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.server.settings import ServerSettings
from tests.server.unity.conftest import direct_client
from tests.server.unity.test_commits import error_of
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.live_server import live_server
from tests.support.unity_wire import (
    UnityWire,
    add_action,
    commit_bytes,
    local_path,
    now_ms,
    protocol_action,
    stage,
    write_version_0,
)
from tests.support.waiting import until

SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("day", PrimitiveType("date"))))


def test_a_table_of_this_package_is_loaded_with_what_clients_need_to_recognise_it(
    wire: UnityWire, owner: DeltaClient
) -> None:
    table = create_table(owner, identifier="main.s.ours", schema=SCHEMA, partition_columns=("day",), description="days")
    owner.wait_for_background()
    loaded = wire.load("ours")
    metadata = loaded["metadata"]
    assert (metadata["table-uuid"], metadata["location"]) == (table.table_id, table.location)
    assert metadata["location"].startswith("file:///") and not metadata["location"].endswith("/")
    assert metadata["properties"]["delta.feature.catalogManaged"] == "supported"
    assert metadata["properties"]["io.unitycatalog.tableId"] == table.table_id
    assert metadata["partition-columns"] == ["day"]
    assert (loaded["commits"], loaded["latest-table-version"], metadata["last-commit-version"]) == ([], 0, 0)
    assert loaded["allowed-maintenance-operations"] == []
    info = wire.older("GET", "tables/main.s.ours").json()
    assert (info["table_id"], info["data_source_format"], info["comment"]) == (table.table_id, "DELTA", "days")
    assert [(c["name"], c["type_text"], c["type_name"], c["partition_index"]) for c in info["columns"]] == [
        ("id", "bigint", "LONG", None),
        ("day", "date", "DATE", 0),
    ]


def test_inline_commits_are_presented_as_staged_files_of_their_size(wire: UnityWire, owner: DeltaClient) -> None:
    table = create_table(owner, identifier="main.s.inline", schema=SCHEMA)
    set_commit_policy(table, CommitPolicy(kind=CommitPolicyKind.INLINE))
    holding = owner.settings.publish_delay
    assert holding > timedelta(0)  # Publication waits, so that the load finds an inline commit.
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file("a.parquet")])
    transaction.commit()
    loaded = wire.load("inline")
    assert loaded["latest-table-version"] == 1
    log = local_path(table.location) / "_delta_log"
    for commit in loaded["commits"]:
        assert (log / "_staged_commits" / commit["file-name"]).stat().st_size == commit["file-size"]
    until(lambda: wire.load("inline")["commits"] == [])
    assert (log / f"{1:020d}.json").exists()


def test_names_with_encoded_dots_are_found_and_encoded_slashes_are_not(wire: UnityWire) -> None:
    wire.create("dotted")
    assert wire.http.get("/api/2.1/unity-catalog/tables/main%2Es%2Edotted").json()["name"] == "dotted"
    assert wire.http.get("/api/2.1/unity-catalog/schemas/main%2Es").json()["full_name"] == "main.s"
    assert wire.http.get("/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/s/tables/dot%74ed").status_code == 200
    answer = wire.http.get("/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/s/tables/..%2Fdotted")
    assert error_of(answer)[0] == 404


@pytest.mark.parametrize("name", ["nothing", "a%00b", "%E2%98%83", "a" * 300, "%2E%2E"])
def test_a_table_that_does_not_exist_is_not_found_in_the_form_of_each_api(wire: UnityWire, name: str) -> None:
    answer = wire.http.get(f"/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/s/tables/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] in ("NoSuchTableException", "NotFoundException")
    older = wire.http.get(f"/api/2.1/unity-catalog/tables/main.s.{name}")
    assert older.status_code == 404 and set(older.json()) == {"error_code", "message", "details"}


def test_a_table_exists_is_renamed_and_is_dropped(wire: UnityWire, owner: DeltaClient) -> None:
    loaded = wire.create("old_name")
    wire.create("other_name")
    assert wire.table("HEAD", "old_name").status_code == 204
    assert error_of(wire.table("POST", "old_name/rename", {"new-name": "other_name"})) == (
        409,
        "AlreadyExistsException",
    )
    assert wire.table("POST", "old_name/rename", {"new-name": "new_name"}).status_code == 204
    assert wire.table("HEAD", "old_name").status_code == 404
    assert wire.load("new_name")["metadata"]["table-uuid"] == loaded["metadata"]["table-uuid"]
    assert wire.table("DELETE", "new_name").status_code == 204
    assert error_of(wire.table("DELETE", "new_name")) == (404, "NoSuchTableException")
    assert local_path(loaded["metadata"]["location"]).exists()
    assert owner.registry.undrop_table(loaded["metadata"]["table-uuid"]).identifier.table == "new_name"


def test_schemas_are_created_listed_and_dropped(wire: UnityWire) -> None:
    created = wire.older("POST", "schemas", {"name": "new", "catalog_name": "main", "properties": {"owner": "ana"}})
    assert created.status_code == 200 and created.json()["full_name"] == "main.new"
    again = wire.older("POST", "schemas", {"name": "new", "catalog_name": "main"})
    assert (again.status_code, again.json()["error_code"]) == (409, "SCHEMA_ALREADY_EXISTS")
    assert wire.older("GET", "schemas/main.new").json() == created.json()
    listed = wire.older("GET", "schemas", catalog_name="main", max_results="0").json()
    assert created.json() in listed["schemas"] and listed["next_page_token"] is None
    assert "main" in [catalog["name"] for catalog in wire.older("GET", "catalogs").json()["catalogs"]]
    assert wire.older("GET", "catalogs/main").json()["name"] == "main"
    assert wire.older("DELETE", "schemas/main.new", force="false").text == "200 OK"
    missing = wire.older("GET", "schemas/main.new")
    assert missing.status_code == 404
    assert missing.json()["error_code"] == "SCHEMA_NOT_FOUND" and missing.json()["message"]


def test_a_schema_with_tables_is_dropped_only_with_force(wire: UnityWire) -> None:
    wire.older("POST", "schemas", {"name": "full", "catalog_name": "main"})
    staging = wire.delta("POST", "catalogs/main/schemas/full/staging-tables", {"name": "t"}).json()
    request = wire.creation("t", staging)
    write_version_0(request)
    assert wire.delta("POST", "catalogs/main/schemas/full/tables", request).status_code == 200
    assert wire.older("DELETE", "schemas/main.full").status_code == 409
    assert [t["name"] for t in wire.older("GET", "tables", catalog_name="main", schema_name="full").json()["tables"]]
    assert wire.older("DELETE", "schemas/main.full", force="true").status_code == 200


def test_the_configuration_lists_what_is_served(wire: UnityWire) -> None:
    wire.create("any_table")
    answer = wire.delta("GET", "config", catalog="main", **{"protocol-versions": "1.0"})
    assert answer.json()["protocol-version"] == "1.0" and len(answer.json()["endpoints"]) == 10
    assert error_of(wire.delta("GET", "config", catalog="nothing")) == (404, "NoSuchCatalogException")


def test_credentials_of_local_storage_are_empty(wire: UnityWire) -> None:
    location = wire.create("local")["metadata"]["location"]
    expected = {"prefix": location, "operation": "READ", "config": {}, "expiration-time-ms": 253_402_300_799_000}
    answer = wire.table("GET", "local/credentials", operation="READ")
    assert answer.json() == {"storage-credentials": [expected]}
    assert error_of(wire.table("GET", "local/credentials", operation="EVERYTHING"))[0] == 400
    staging = wire.staging("local_later")
    answer = wire.delta("GET", f"staging-tables/{staging['table-id']}/credentials")
    assert answer.json()["storage-credentials"][0]["operation"] == "READ_WRITE"


def test_the_numbers_of_a_report_of_metrics_are_in_the_access_log(
    wire: UnityWire, caplog: pytest.LogCaptureFixture
) -> None:
    """If the report names the table. What is not a number, or too much, is not in the line."""
    table_id = wire.create("measured")["metadata"]["table-uuid"]
    many = {f"number-{number}": 1 for number in range(1000)}
    wrong = {"text": "x", "flag": True, "large": 10**30, "file-size-histogram": {"commit-version": 1}}
    report = {"commit-report": {"num-files-added": 3, "x" * 10_000: 1.5, **wrong, **many}}
    with caplog.at_level(logging.INFO, "cm_delta_dagster.server.access"):
        assert wire.table("POST", "measured/metrics", {"table-id": table_id, "report": report}).status_code == 204
        until(lambda: any("measured/metrics" in text for text in caplog.messages))
        for other in ({"table-id": table_id}, {"table-id": table_id, "report": {"commit-report": [1]}}):
            assert wire.table("POST", "measured/metrics", other).status_code == 204
        stranger = {"table-id": str(uuid.uuid4()), "report": report}
        assert error_of(wire.table("POST", "measured/metrics", stranger))[0] == 400
    (line,) = (json.loads(text) for text in caplog.messages if '"metrics": {"num' in text)
    assert line["path"].endswith("tables/measured/metrics") and line["principal"] == "ana"
    assert len(line["metrics"]) == 32 and not line["metrics"].keys() & wrong.keys()
    assert line["metrics"]["num-files-added"] == 3 and line["metrics"]["x" * 64] == 1.5


def _without(request: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    if part == "properties":
        return request | {part: {key: value for key, value in request[part].items() if key != name}}
    kept = {
        key: [f for f in value if f != name] if isinstance(value, list) else value
        for key, value in request[part].items()
    }
    return request | {part: kept}


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(("protocol", name) for name in ("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors")),
        ("protocol", "inCommitTimestamp"),
        *(("properties", name) for name in ("delta.checkpointPolicy", "delta.enableDeletionVectors")),
        *(("properties", name) for name in ("delta.enableInCommitTimestamps", "io.unitycatalog.tableId")),
    ],
)
def test_a_creation_that_does_not_keep_the_contract_is_refused(wire: UnityWire, part: str, name: str) -> None:
    new = f"broken_{name.replace('.', '_').lower()}"
    request = _without(wire.creation(new, wire.staging(new)), part, name)
    write_version_0(request)
    answer = wire.delta("POST", "catalogs/main/schemas/s/tables", request)
    assert error_of(answer) == (400, "InvalidParameterValueException"), answer.text
    assert name in answer.json()["error"]["message"]
    assert wire.table("HEAD", new).status_code == 404


def test_a_table_for_iceberg_needs_no_deletion_vectors(wire: UnityWire) -> None:
    request = wire.creation("iceberg", wire.staging("iceberg"))
    request = _without(request, "protocol", "deletionVectors")
    request = _without(request, "properties", "delta.enableDeletionVectors")
    request["properties"]["delta.enableIcebergCompatV2"] = "true"
    request["properties"]["delta.columnMapping.mode"] = "name"
    request["properties"]["delta.columnMapping.maxColumnId"] = "1"
    request["protocol"] = {
        **request["protocol"],
        "reader-features": [*request["protocol"]["reader-features"], "columnMapping"],
        "writer-features": [*request["protocol"]["writer-features"], "columnMapping", "icebergCompatV2"],
    }
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": metadata}
    request["columns"] = {"type": "struct", "fields": [field]}
    write_version_0(request)
    answer = wire.delta("POST", "catalogs/main/schemas/s/tables", request)
    assert answer.status_code == 200, answer.text


def test_a_creation_must_describe_the_version_0_in_its_log(wire: UnityWire) -> None:
    request = wire.creation("described", wire.staging("described"))
    assert error_of(wire.delta("POST", "catalogs/main/schemas/s/tables", request))[0] == 400  # There is no version 0.
    write_version_0(request)
    wrong: list[dict[str, Any]] = [
        {"columns": {"type": "struct", "fields": []}},
        {"columns": {"type": "struct", "fields": [{"name": "id", "type": {"type": "struct", "fields": [7]}}]}},
        {"columns": {"type": "struct", "fields": [{"name": "id", "type": {"type": "struct", "fields": "x"}}]}},
        {"properties": request["properties"] | {"delta.minReaderVersion": "1"}},
        {"partition-columns": ["id"]},
        {"comment": "another"},
        {"last-commit-timestamp-ms": 5},
        {"properties": request["properties"] | {"delta.enableDeletionVectors": "false"}},
        {"protocol": request["protocol"] | {"min-writer-version": 6}},
        {"table-type": "VIEW"},
        {"table-type": "EXTERNAL"},
        {"uniform": {"iceberg": {}}},
        {"location": request["location"] + "x"},
        {"location": "file:///etc"},
        {"name": "a/b"},
    ]
    for change in wrong:
        answer = wire.delta("POST", "catalogs/main/schemas/s/tables", request | change)
        assert error_of(answer)[0] in (400, 404), (change, answer.text)
    assert wire.table("HEAD", "described").status_code == 404
    first = wire.delta("POST", "catalogs/main/schemas/s/tables", request)
    again = wire.delta("POST", "catalogs/main/schemas/s/tables", request | {"location": request["location"] + "/"})
    assert (first.status_code, again.status_code) == (200, 200) and first.json() == again.json()
    other = wire.delta("POST", "catalogs/main/schemas/s/staging-tables", {"name": "described"})
    assert error_of(other) == (409, "AlreadyExistsException")


def test_a_version_0_that_is_not_one_is_refused(wire: UnityWire) -> None:
    request = wire.creation("damaged", wire.staging("damaged"))
    path = write_version_0(request)
    for data in (b"", b"{", commit_bytes(now_ms()), commit_bytes(now_ms(), protocol_action(request["protocol"]))):
        path.write_bytes(data)
        answer = wire.delta("POST", "catalogs/main/schemas/s/tables", request)
        assert error_of(answer)[0] == 400, answer.text


def test_staging_tables_of_an_unknown_schema_or_a_bad_name_are_refused(wire: UnityWire) -> None:
    answer = wire.delta("POST", "catalogs/main/schemas/nothing/staging-tables", {"name": "t"})
    assert error_of(answer) == (404, "NoSuchSchemaException")
    for name in ("", "a/b", "..", 7, None):
        answer = wire.delta("POST", "catalogs/main/schemas/s/staging-tables", {"name": name})
        assert error_of(answer)[0] in (400, 404), (name, answer.text)


def test_requests_without_a_token_are_refused_in_the_form_of_each_api(wire: UnityWire) -> None:
    url = f"{wire.server.url}/api/2.1/unity-catalog"
    delta = httpx.get(f"{url}/delta/v1/catalogs/main/schemas/s/tables/t")
    assert error_of(delta) == (401, "NotAuthorizedException")
    assert httpx.get(f"{url}/schemas", params={"catalog_name": "main"}).json()["error_code"] == "UNAUTHENTICATED"


def test_clients_get_the_maintenance_that_the_rules_permit_without_limits(wire: UnityWire, owner: DeltaClient) -> None:
    wire.create("kept")

    def allow(kind: MaintenanceKind, conditions: MaintenanceConditions | None = None) -> None:
        rule = MaintenanceRule(
            scope="main.s.kept", kind=kind, allowed=True, conditions=conditions or MaintenanceConditions()
        )
        owner.maintenance_policies.set_maintenance_rule(rule)

    allow(MaintenanceKind.DATA_REORGANIZATION)
    allow(MaintenanceKind.DATA_CLEANUP, MaintenanceConditions(min_retention=timedelta(seconds=1)))
    assert wire.load("kept")["allowed-maintenance-operations"] == ["DATA_REORGANIZATION"]
    allow(MaintenanceKind.DATA_CLEANUP)
    allow(MaintenanceKind.METADATA_CLEANUP)
    permitted = wire.load("kept")["allowed-maintenance-operations"]
    assert permitted == ["DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP"]
    table_id = wire.load("kept")["metadata"]["table-uuid"]
    name = owner.registry.load_table_by_id(table_id).identifier
    owner.registry.create_staging_table(type(name)("main", "s", "clone"), clone_of=table_id)
    assert wire.load("kept")["allowed-maintenance-operations"] == ["DATA_REORGANIZATION"]


def test_a_table_outside_of_the_storage_roots_is_shown_and_its_files_are_not_touched(tmp_path: Path) -> None:
    settings = ServerSettings(
        catalog=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/warehouse",
        storage_roots=(f"file://{tmp_path}/elsewhere",),
    )
    with live_server(settings) as server, direct_client(server) as owner:
        table = create_table(owner, identifier="main.s.t", schema=SCHEMA)
        owner.wait_for_background()
        wire = UnityWire(server)
        loaded = wire.load("t")
        answer = wire.commit("t", stage(loaded, add_action("a.parquet")))
        assert error_of(answer) == (403, "PermissionDeniedException")
        assert json.dumps(str(tmp_path / "elsewhere")) not in answer.text
        assert table.catalog_answer().latest_version == 0
        wire.http.close()
