"""Tables and commits over Unity Catalog's older API: the same effects as over the Delta API, and errors in its own form."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.server.unity.older_commits import commits_answer
from cm_delta_dagster.server.unity.older_models import OlderCommitsRequest
from tests.server.unity.conftest import files_below
from tests.support.older_wire import older_creation_of, with_underscores
from tests.support.unity_wire import (
    FIELDS,
    Staged,
    UnityWire,
    add_action,
    metadata_action,
    stage,
    write_version_0,
)
from tests.support.waiting import until

COMMITS = "delta/preview/commits"


def older_error_of(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error_code", "message", "details"} and body["message"]
    assert body["details"] == [{"@type": "google.rpc.ErrorInfo", "reason": body["error_code"]}]
    return answer.status_code, str(body["error_code"])


def creation(wire: UnityWire, name: str, **changes: Any) -> dict[str, Any]:
    """The request that creates a table whose version 0 is written; ``changes`` replace parts of it."""
    wire.older("POST", "schemas", {"name": "s", "catalog_name": "main"})
    staging = wire.older("POST", "staging-tables", {"name": name, "catalog_name": "main", "schema_name": "s"}).json()
    assert set(staging) == {"name", "catalog_name", "schema_name", "id", "staging_location"}
    contract = wire.staging(name)
    properties = contract["required-properties"] | {"io.unitycatalog.tableId": staging["id"]}
    request = wire.creation(name, contract, location=staging["staging_location"], properties=properties)
    write_version_0(request)
    return older_creation_of(request) | changes


def commit_request(wire: UnityWire, name: str, staged: Staged, **changes: Any) -> dict[str, Any]:
    """The request that proposes a staged commit; ``changes`` replace what is said of the file."""
    metadata = wire.load(name)["metadata"]
    return {
        "table_id": metadata["table-uuid"],
        "table_uri": metadata["location"].replace("file:///", "file:/"),
        "commit_info": with_underscores(staged.commit) | changes,
    }


def commits_of(wire: UnityWire, name: str, **changes: Any) -> httpx.Response:
    """The answer to the request for the unpublished commits of a table."""
    metadata = wire.load(name)["metadata"]
    request = {"table_id": metadata["table-uuid"], "table_uri": metadata["location"], "start_version": 0} | changes
    return wire.older("GET", COMMITS, request)


def test_a_table_is_created_written_and_dropped(wire: UnityWire) -> None:
    request = creation(wire, "whole")
    created = wire.older("POST", "tables", request)
    assert created.status_code == 200, created.text
    assert created.json()["storage_location"].startswith("file:///")
    assert wire.older("POST", "tables", request).json() == created.json(), "a repeated request has no other effect"
    assert wire.older("GET", "tables/main%2Es%2Ewhole").json() == created.json()
    assert commits_of(wire, "whole").json() == {"commits": [], "latest_table_version": 0}
    staged = stage(wire.load("whole"), add_action("a.parquet"))
    answer = wire.older("POST", COMMITS, commit_request(wire, "whole", staged) | {"latest_backfilled_version": 0})
    assert (answer.status_code, answer.text) == (200, "200 OK")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    until(lambda: commits_of(wire, "whole").json()["commits"] == [])
    assert commits_of(wire, "whole").json()["latest_table_version"] == 1
    assert (staged.path.parent.parent / f"{1:020d}.json").read_bytes() == staged.path.read_bytes()
    dropped = wire.older("DELETE", "tables/main.s.whole")
    assert (dropped.status_code, dropped.text) == (200, "200 OK")
    assert older_error_of(wire.older("GET", "tables/main.s.whole")) == (404, "TABLE_NOT_FOUND")
    of_dropped = {"table_id": created.json()["table_id"], "table_uri": created.json()["storage_location"]}
    assert older_error_of(wire.older("GET", COMMITS, of_dropped | {"start_version": 0})) == (404, "TABLE_NOT_FOUND")
    file = {"commit_info": with_underscores(staged.commit)}
    assert older_error_of(wire.older("POST", COMMITS, of_dropped | file)) == (404, "TABLE_NOT_FOUND")
    credentials = of_dropped | {"operation": "READ"}
    assert older_error_of(wire.older("POST", "temporary-table-credentials", credentials)) == (404, "TABLE_NOT_FOUND")


def test_a_table_of_the_older_api_needs_less_than_the_contract_of_the_newer(wire: UnityWire) -> None:
    """Its clients are not given the contract: delta-spark before 4.3 states no deletion vectors and no kind of checkpoints."""
    wire.older("POST", "schemas", {"name": "s", "catalog_name": "main"})
    contract = wire.staging("modest")
    features = ["catalogManaged", "vacuumProtocolCheck"]
    protocol = contract["required-protocol"] | {
        "reader-features": features,
        "writer-features": [*features, "inCommitTimestamp"],
    }
    properties = {
        name: contract["required-properties"][name]
        for name in ("delta.enableInCommitTimestamps", "io.unitycatalog.tableId")
    }
    request = wire.creation("modest", contract, protocol=protocol, properties=properties)
    write_version_0(request)
    assert wire.delta("POST", "catalogs/main/schemas/s/tables", request).status_code == 400
    assert wire.older("POST", "tables", older_creation_of(request)).status_code == 200
    assert wire.append("modest", add_action("a.parquet")).status_code == 200


def _column(**changes: Any) -> dict[str, Any]:
    return {"columns": [{"name": "id", "type_json": json.dumps(FIELDS[0])} | changes]}


BAD_CREATIONS: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
    "another kind of table": ({"table_type": "EXTERNAL"}, (400, "UNIMPLEMENTED")),
    "an unknown kind of table": ({"table_type": "x"}, (400, "UNIMPLEMENTED")),
    "no kind of table": ({"table_type": None}, (400, "INVALID_ARGUMENT")),
    "another format": ({"data_source_format": "PARQUET"}, (400, "UNIMPLEMENTED")),
    "no location": ({"storage_location": None}, (400, "INVALID_ARGUMENT")),
    "another location": ({"storage_location": "file:/elsewhere"}, (404, "TABLE_NOT_FOUND")),
    "no properties": ({"properties": None}, (400, "INVALID_ARGUMENT")),
    "properties that are not texts": ({"properties": {"a": 1}}, (400, "INVALID_ARGUMENT")),
    "a column less": (_column(), (400, "INVALID_ARGUMENT")),
    "a column without a type": (_column(type_json=None), (400, "INVALID_ARGUMENT")),
    "a type that is not JSON": (_column(type_json="{"), (400, "INVALID_ARGUMENT")),
    "a type of ten thousand levels": (_column(type_json="[" * 10_000), (400, "INVALID_ARGUMENT")),
    "a type that is a number": (_column(type_json="7"), (400, "INVALID_ARGUMENT")),
    "fields that are numbers": (_column(type_json='{"type":"struct","fields":[7]}'), (400, "INVALID_ARGUMENT")),
    "fields that are a text": (_column(type_json='{"type":"struct","fields":"id"}'), (400, "INVALID_ARGUMENT")),
    "the type of another column": (_column(name="v"), (400, "INVALID_ARGUMENT")),
    "a position beyond 64 bits": (_column(position=2**63), (400, "INVALID_ARGUMENT")),
    "a partition column": (_column(partition_index=0), (400, "INVALID_ARGUMENT")),
    "another comment": ({"comment": "other"}, (400, "INVALID_ARGUMENT")),
    "an unknown schema": ({"schema_name": "nothing"}, (404, "TABLE_NOT_FOUND")),
    "a name with a point": ({"name": "a.b"}, (400, "INVALID_ARGUMENT")),
    "no name": ({"name": ""}, (400, "INVALID_ARGUMENT")),
}


@pytest.mark.parametrize("case", BAD_CREATIONS)
def test_a_creation_that_does_not_describe_version_0_is_refused(wire: UnityWire, case: str) -> None:
    name = f"unmade_{list(BAD_CREATIONS).index(case)}"
    changes, expected = BAD_CREATIONS[case]
    request = creation(wire, name)
    location = request["storage_location"].replace("file:/", "file:///")
    before = files_below(location)
    assert older_error_of(wire.older("POST", "tables", request | changes)) == expected
    assert older_error_of(wire.older("GET", f"tables/main.s.{name}")) == (404, "TABLE_NOT_FOUND")
    assert files_below(location) == before
    assert wire.older("POST", "tables", request).status_code == 200, "the staging table is as it was"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.minReaderVersion", "1"),
        ("delta.feature.clustering", "supported"),
        ("delta.feature.catalogManaged", "enabled"),
        ("delta.lastUpdateVersion", "1"),
        ("delta.enableInCommitTimestamps", "false"),
    ],
)
def test_properties_that_describe_another_version_0_are_refused(wire: UnityWire, name: str, value: str) -> None:
    request = creation(wire, "described")
    answer = wire.older("POST", "tables", request | {"properties": request["properties"] | {name: value}})
    assert older_error_of(answer) == (400, "INVALID_ARGUMENT") and name in answer.json()["message"]


def empty_creation(wire: UnityWire, name: str) -> dict[str, Any]:
    """The request of a client that writes no version 0, such as Sail."""
    names = {"name": name, "catalog_name": "main", "schema_name": "s"}
    wire.older("POST", "schemas", {"name": "s", "catalog_name": "main"})
    staging = wire.older("POST", "staging-tables", names).json()
    columns = [{"name": field["name"], "type_json": json.dumps(field)} for field in FIELDS]
    stated = {"table_type": "MANAGED", "data_source_format": "DELTA", "storage_location": staging["staging_location"]}
    return names | stated | {"columns": columns}


def test_the_server_writes_version_0_for_a_client_that_does_not(wire: UnityWire, owner: DeltaClient) -> None:
    partitioned = [
        {"name": "id", "type_json": '"long"', "nullable": False, "comment": "of orders"},
        {"name": "day", "type_json": '"date"', "partition_index": 0},
        {
            "name": "d",
            "type_json": json.dumps({"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}}),
        },
    ]
    stated = {"columns": partitioned, "comment": "orders", "properties": {"my.key": "v"}}
    request = empty_creation(wire, "written") | stated
    created = wire.older("POST", "tables", request)
    assert created.status_code == 200, created.text
    assert wire.older("POST", "tables", request).json() == created.json()
    snapshot = owner.table("main.s.written").snapshot()
    assert snapshot.partition_columns == ("day",) and snapshot.metadata.description == "orders"
    assert [(item.name, item.nullable) for item in snapshot.schema.fields] == [
        ("id", False),
        ("day", True),
        ("d", True),
    ]
    table = created.json()
    assert (table["columns"][0]["comment"], table["columns"][1]["partition_index"]) == ("of orders", 0)
    assert (table["columns"][2]["type_precision"], table["columns"][2]["type_scale"]) == (10, 2)
    assert table["columns"][0]["type_precision"] is None
    assert table["properties"]["my.key"] == "v" and table["properties"]["delta.feature.catalogManaged"] == "supported"
    assert wire.append("written", add_action("a.parquet", partitionValues={"day": "2026-01-01"})).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": None},
        {"columns": []},
        {"columns": [{"name": "a", "type_json": "7"}]},
        {"columns": [{"name": "a", "type_json": '"nothing"'}]},
        {"columns": [{"name": "a", "type_json": '{"type":"array","elementType":7}'}]},
        {"columns": [{"name": "a", "type_json": '{"type":"struct","fields":[7]}'}]},
        {"columns": [{"name": "a", "type_json": '"long"'}, {"name": "A", "type_json": '"long"'}]},
        {"columns": [{"name": "a", "type_json": '"long"', "partition_index": 0}]},
        {"columns": [{"name": "", "type_json": '"long"'}]},
        {"properties": {"delta.unknown": "x"}},
        {"properties": {"delta.appendOnly": "perhaps"}},
        {"name": "a/b"},
    ],
    ids=str,
)
def test_no_version_0_is_written_for_an_impossible_table(wire: UnityWire, changes: Mapping[str, Any]) -> None:
    request = empty_creation(wire, "impossible") | changes
    assert older_error_of(wire.older("POST", "tables", request))[0] == 400
    assert files_below(request["storage_location"]) == set()
    assert wire.table("HEAD", "impossible").status_code == 404


def test_a_version_0_that_a_client_has_written_is_not_replaced(wire: UnityWire) -> None:
    request = creation(wire, "kept")
    before = files_below(request["storage_location"].replace("file:/", "file:///"))
    answer = wire.older("POST", "tables", request | {"properties": {}})
    assert older_error_of(answer) == (400, "INVALID_ARGUMENT")
    assert {path: path.read_bytes() for path in before} == {
        path: path.read_bytes() for path in files_below(request["storage_location"].replace("file:/", "file:///"))
    }
    assert wire.older("POST", "tables", request).status_code == 200


def test_a_name_that_is_taken_is_refused(wire: UnityWire) -> None:
    wire.create("taken_name")
    names = {"name": "taken_name", "catalog_name": "main", "schema_name": "s"}
    assert older_error_of(wire.older("POST", "staging-tables", names)) == (409, "TABLE_ALREADY_EXISTS")
    request = creation(wire, "another_name")
    assert older_error_of(wire.older("POST", "tables", request | names)) == (409, "TABLE_ALREADY_EXISTS")


def test_staging_tables_of_unknown_catalogs_and_schemas_are_refused(wire: UnityWire) -> None:
    wire.create("known")
    for catalog, schema, expected in (
        ("nothing", "s", (404, "CATALOG_NOT_FOUND")),
        ("main", "nothing", (404, "SCHEMA_NOT_FOUND")),
    ):
        body = {"name": "t", "catalog_name": catalog, "schema_name": schema}
        assert older_error_of(wire.older("POST", "staging-tables", body)) == expected
    for body in ({"name": "t"}, {"name": 7, "catalog_name": "main", "schema_name": "s"}, [], None):
        assert older_error_of(wire.older("POST", "staging-tables", body)) == (400, "INVALID_ARGUMENT")


def test_a_repeated_commit_succeeds_a_taken_version_is_a_conflict_and_a_gap_is_refused(wire: UnityWire) -> None:
    loaded = wire.create("ordered")
    staged, other = stage(loaded, add_action("a.parquet")), stage(loaded, add_action("b.parquet"))
    request = commit_request(wire, "ordered", staged)
    assert [wire.older("POST", COMMITS, request).text for _ in range(2)] == ["200 OK", "200 OK"]
    ahead = commit_request(wire, "ordered", other) | {"latest_backfilled_version": 12}
    assert older_error_of(wire.older("POST", COMMITS, ahead)) == (409, "ABORTED")
    gap = commit_request(wire, "ordered", stage(loaded, add_action("c.parquet"), version=7))
    assert older_error_of(wire.older("POST", COMMITS, gap)) == (400, "INVALID_ARGUMENT")
    assert wire.load("ordered")["latest-table-version"] == 1


BAD_COMMITS: dict[str, dict[str, Any]] = {
    "version 0": {"version": 0},
    "a version beyond 64 bits": {"version": 2**63},
    "a version that is a text": {"version": "1"},
    "a version that is a fraction": {"version": 1.5},
    "a file name with a path": {"file_name": f"../{1:020d}.{uuid.uuid4()}.json"},
    "a staged file that is missing": {"file_name": f"{1:020d}.{uuid.uuid4()}.json"},
    "another size": {"file_size": 10},
    "another timestamp": {"timestamp": 5},
    "no time of modification": {"file_modification_timestamp": None},
}
BAD_REQUESTS: dict[str, dict[str, Any]] = {
    "nothing to do": {"commit_info": None},
    "metadata without a commit": {"commit_info": None, "metadata": {"description": "x"}},
    "a published version that is not ratified": {"latest_backfilled_version": 9},
    "a published version beyond 64 bits": {"latest_backfilled_version": 2**63},
    "a negative published version": {"latest_backfilled_version": -1},
    "metadata of Iceberg": {"uniform": {"iceberg": {}}},
    "another description": {"metadata": {"description": "x"}},
    "another property": {"metadata": {"properties": {"properties": {"a": "b"}}}},
    "other columns": {"metadata": {"schema": {"columns": [{"name": "z", "type_json": '"long"'}]}}},
    "columns without a type": {"metadata": {"schema": {"columns": [{"name": "z"}]}}},
    "metadata that is a text": {"metadata": "x"},
    "another place": {"table_uri": "file:/elsewhere"},
    "a place that is not one": {"table_uri": "\\\\://\u0001"},
    "no place": {"table_uri": None},
    "no table": {"table_id": None},
    "a table that is a number": {"table_id": 7},
}


@pytest.mark.parametrize("case", [*BAD_COMMITS, *BAD_REQUESTS])
def test_a_commit_that_is_malformed_or_lies_is_refused_and_changes_nothing(wire: UnityWire, case: str) -> None:
    name = f"refused_{[*BAD_COMMITS, *BAD_REQUESTS].index(case)}"
    loaded = wire.create(name)
    staged = stage(loaded, add_action("a.parquet"))
    before = files_below(loaded["metadata"]["location"])
    request = commit_request(wire, name, staged, **BAD_COMMITS.get(case, {})) | BAD_REQUESTS.get(case, {})
    answer = wire.older("POST", COMMITS, request)
    assert older_error_of(answer) in ((400, "INVALID_ARGUMENT"), (400, "UNIMPLEMENTED")), answer.text
    assert wire.load(name) == loaded
    assert files_below(loaded["metadata"]["location"]) == before


def test_the_id_of_another_table_does_not_go_with_a_place(wire: UnityWire) -> None:
    first, second = wire.create("first"), wire.create("second")
    staged = stage(first, add_action("a.parquet"))
    mixed = commit_request(wire, "first", staged) | {"table_id": second["metadata"]["table-uuid"]}
    assert older_error_of(wire.older("POST", COMMITS, mixed)) == (400, "INVALID_ARGUMENT")
    answer = commits_of(wire, "second", table_uri=first["metadata"]["location"])
    assert older_error_of(answer) == (400, "INVALID_ARGUMENT")
    unknown = commit_request(wire, "first", staged) | {"table_id": str(uuid.uuid4())}
    assert older_error_of(wire.older("POST", COMMITS, unknown)) == (404, "TABLE_NOT_FOUND")
    assert wire.load("first") == first and wire.load("second") == second


def test_a_location_may_be_encoded(wire: UnityWire) -> None:
    location = wire.create("encoded")["metadata"]["location"]
    for spelling in (
        location,
        location.replace("file:///", "file:/") + "/",
        "file://" + quote(location[7:], safe="/").replace("e", "%65"),
    ):
        assert commits_of(wire, "encoded", table_uri=spelling).status_code == 200, spelling


def test_metadata_of_a_commit_may_be_stated(wire: UnityWire) -> None:
    loaded = wire.create("restated")
    columns = [*FIELDS, {"name": "w", "type": "double", "nullable": True, "metadata": {}}]
    properties = dict(wire.staging("restated_")["required-properties"]) | {
        "io.unitycatalog.tableId": loaded["metadata"]["table-uuid"],
        "my.key": "my value",
    }
    request = {"columns": {"type": "struct", "fields": columns}, "partition-columns": [], "properties": properties}
    staged = stage(loaded, metadata_action(request, description="of orders"))
    infos = [
        {"name": field["name"], "type_json": json.dumps(field), "position": position}
        for position, field in enumerate(columns)
    ]
    metadata = {
        "description": "of orders",
        "schema": {"columns": infos[::-1]},
        "properties": {"properties": properties},
    }
    answer = wire.older("POST", COMMITS, commit_request(wire, "restated", staged) | {"metadata": metadata})
    assert answer.text == "200 OK"
    table = wire.older("GET", "tables/main.s.restated").json()
    assert [column["name"] for column in table["columns"]] == ["id", "v", "w"]
    assert table["comment"] == "of orders" and table["properties"]["my.key"] == "my value"


@pytest.mark.parametrize(
    ("start", "end", "versions"),
    [(0, None, [6, 5, 4]), (5, None, [6, 5]), (0, 4, [4]), (6, 9, [6]), (0, 3, []), (7, None, [])],
)
def test_commits_are_those_of_the_versions_that_are_asked_for(
    wire: UnityWire, owner: DeltaClient, start: int, end: int | None, versions: list[int]
) -> None:
    if wire.table("HEAD", "ranged").status_code == 404:
        wire.create("ranged")
    entry = owner.registry.load_table(TableIdentifier("main", "s", "ranged"))
    commits = tuple(
        RatifiedCommit(
            version=version,
            file_name=f"{version:020d}.{uuid.uuid4()}.json",
            file_size=version,
            file_modification_time=version,
            txn_id=str(version),
            in_commit_timestamp=version,
        )
        for version in (4, 5, 6)
    )
    ratified = replace(entry.ratified, latest_version=6, published_version=3, commits=commits)
    request = OlderCommitsRequest(table_id=entry.table_id, start_version=start, end_version=end)
    answer = commits_answer(request, replace(entry, ratified=ratified), commits)
    assert answer["latest_table_version"] == 6
    assert [commit["version"] for commit in answer["commits"]] == versions
    assert [commit["file_name"][:20] for commit in answer["commits"]] == [f"{version:020d}" for version in versions]


@pytest.mark.parametrize(
    "changes",
    [
        {"start_version": None},
        {"start_version": -1},
        {"start_version": "0"},
        {"start_version": 2**63},
        {"start_version": 3, "end_version": 2},
        {"end_version": 10**400},
        {"table_id": None},
        {"table_uri": 7},
    ],
    ids=str,
)
def test_a_request_for_commits_that_is_malformed_is_refused(wire: UnityWire, changes: Mapping[str, Any]) -> None:
    if wire.table("HEAD", "asked_badly").status_code == 404:
        wire.create("asked_badly")
    assert older_error_of(commits_of(wire, "asked_badly", **changes)) == (400, "INVALID_ARGUMENT")


def test_a_put_if_absent_table_is_read_only(wire: UnityWire, owner: DeltaClient) -> None:
    loaded = wire.create("by_creation")
    set_commit_policy(owner.table("main.s.by_creation"), CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT))
    latest = wire.load("by_creation")["latest-table-version"]
    request = commit_request(wire, "by_creation", stage(wire.load("by_creation"), add_action("a.parquet")))
    answer = wire.older("POST", COMMITS, request)
    assert older_error_of(answer) == (400, "INVALID_ARGUMENT") and "put_if_absent" in answer.json()["message"]
    assert commits_of(wire, "by_creation").json() == {"commits": [], "latest_table_version": latest}
    assert wire.load("by_creation")["metadata"]["table-uuid"] == loaded["metadata"]["table-uuid"]


def test_credentials_of_local_storage_have_no_secrets(wire: UnityWire) -> None:
    location = wire.create("plain")["metadata"]["location"]
    staging = wire.staging("not_yet")
    for table_id, place in (
        (wire.load("plain")["metadata"]["table-uuid"], location),
        (staging["table-id"], staging["location"]),
    ):
        body = {"table_id": table_id, "operation": "READ_WRITE"}
        credentials = wire.older("POST", "temporary-table-credentials", body).json()
        assert credentials.pop("url") == place and set(credentials.values()) == {None}
    for body in (
        {"table_id": staging["table-id"], "operation": "OWN"},
        {"table_id": 1, "operation": "READ"},
        {"operation": "READ"},
    ):
        assert older_error_of(wire.older("POST", "temporary-table-credentials", body)) == (400, "INVALID_ARGUMENT")
    unknown = {"table_id": str(uuid.uuid4()), "operation": "READ"}
    assert older_error_of(wire.older("POST", "temporary-table-credentials", unknown)) == (404, "TABLE_NOT_FOUND")
