"""Commits over Unity Catalog's Delta API: order of checks, statuses, and what a refused one leaves."""

import json
import uuid
from typing import Any

import httpx
import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.server.unity.conftest import files_below
from tests.support.creation import create_table
from tests.support.unity_wire import (
    Staged,
    UnityWire,
    add_action,
    local_path,
    metadata_action,
    protocol_action,
    stage,
)
from tests.support.waiting import until


def error_of(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()["error"]
    assert body["code"] == answer.status_code and set(body) == {"message", "type", "code", "stack"}
    return answer.status_code, str(body["type"])


def test_a_staged_commit_becomes_the_next_version_and_is_published_by_the_server(wire: UnityWire) -> None:
    loaded = wire.create("appended")
    staged = stage(loaded, add_action("a.parquet"))
    answer = wire.commit("appended", staged)
    assert answer.status_code == 200, answer.text
    assert answer.json()["latest-table-version"] == 1 and answer.json()["commits"] == [staged.commit]
    until(lambda: wire.load("appended")["commits"] == [])
    published = staged.path.parent.parent / f"{1:020d}.json"
    assert published.read_bytes() == staged.path.read_bytes()
    assert wire.load("appended")["metadata"]["etag"] == loaded["metadata"]["etag"]


def test_the_feed_has_the_commit_of_another_client_with_its_principal(wire: UnityWire, owner: DeltaClient) -> None:
    wire.create("in_feed")
    wire.append("in_feed", add_action("a.parquet"))
    entry = [entry for entry in owner.feed.feed(after=0, limit=1000) if entry.identifier.table == "in_feed"][-1]
    assert (entry.version, entry.principal, entry.summary.operation) == (1, "ana", "WRITE")
    assert entry.summary.data_change and entry.summary.engine_info == "by hand"


def test_an_exact_repetition_succeeds_and_changes_nothing(wire: UnityWire) -> None:
    loaded = wire.create("repeated")
    staged = stage(loaded, add_action("a.parquet"))
    first = wire.commit("repeated", staged)
    until(lambda: wire.load("repeated")["commits"] == [])
    before = files_below(loaded["metadata"]["location"])
    again = wire.commit("repeated", staged, {"action": "set-latest-backfilled-version", "latest-published-version": 9})
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["latest-table-version"] == 1
    assert files_below(loaded["metadata"]["location"]) == before


def test_a_taken_version_is_a_conflict_even_if_the_published_version_is_ahead(wire: UnityWire) -> None:
    loaded = wire.create("taken")
    wire.commit("taken", stage(loaded, add_action("a.parquet")))
    ahead = {"action": "set-latest-backfilled-version", "latest-published-version": 12}
    answer = wire.commit("taken", stage(loaded, add_action("b.parquet")), ahead)
    assert error_of(answer) == (409, "CommitVersionConflictException")
    assert answer.json()["error"]["message"] == "Commit version already accepted. Current table version is 1"


def test_a_gap_is_refused(wire: UnityWire) -> None:
    answer = wire.commit("gap", stage(wire.create("gap"), add_action("a.parquet"), version=7))
    assert error_of(answer) == (400, "InvalidParameterValueException")
    assert wire.load("gap")["latest-table-version"] == 0


def test_another_table_id_or_etag_is_a_conflict_and_a_missing_id_is_refused(wire: UnityWire) -> None:
    loaded = wire.create("required")
    request = wire.proposal("required", stage(loaded, add_action("a.parquet")))
    for requirements, expected in (
        ([], (400, "InvalidParameterValueException")),
        ([{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}], (409, "UpdateRequirementConflictException")),
        (
            [*request["requirements"], {"type": "assert-etag", "etag": "other"}],
            (409, "UpdateRequirementConflictException"),
        ),
        ([*request["requirements"], {"type": "assert-weather"}], (400, "BadRequestException")),
    ):
        assert error_of(wire.table("POST", "required", request | {"requirements": requirements})) == expected
    assert wire.load("required")["latest-table-version"] == 0
    etag = {"type": "assert-etag", "etag": loaded["metadata"]["etag"]}
    answer = wire.table("POST", "required", request | {"requirements": [*request["requirements"], etag]})
    assert answer.status_code == 200


BAD_COMMITS: dict[str, dict[str, Any]] = {
    "a file name with a path": {"file_name": f"../{1:020d}.{uuid.uuid4()}.json"},
    "a file name of another version": {"file_name": f"{2:020d}.{uuid.uuid4()}.json"},
    "a staged file that is missing": {"file_name": f"{1:020d}.{uuid.uuid4()}.json"},
    "a size that is too small": {"file_size": 10},
    "a size that is too large": {"file_size": 10_000_000},
    "a size of a file that no server reads": {"file_size": 2**62},
    "a negative size": {"file_size": -1},
    "a size that is a text": {"file_size": "10"},
    "a size beyond 64 bits": {"file_size": 2**63},
    "version 0": {"version": 0},
    "another timestamp": {"timestamp": 5},
    "no version": {"version": None},
}


@pytest.mark.parametrize("case", BAD_COMMITS)
def test_a_commit_that_lies_is_refused_and_changes_nothing(wire: UnityWire, case: str) -> None:
    name = f"bad_{list(BAD_COMMITS).index(case)}"
    loaded = wire.create(name)
    staged = stage(loaded, add_action("a.parquet"))
    before = files_below(loaded["metadata"]["location"])
    answer = wire.commit(name, staged, **BAD_COMMITS[case])
    assert error_of(answer)[0] == 400, answer.text
    assert wire.load(name) == loaded
    assert files_below(loaded["metadata"]["location"]) == before


BAD_CONTENT: dict[str, list[bytes]] = {
    "no JSON": [b"not json\n"],
    "no commitInfo": [b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}\n'],
    "an action that is not an object": [b'{"commitInfo":7}\n'],
    "a schema that is not JSON": [b"metaData"],
}


@pytest.mark.parametrize("case", BAD_CONTENT)
def test_a_staged_file_that_is_no_valid_commit_is_refused(wire: UnityWire, case: str) -> None:
    name = f"content_{list(BAD_CONTENT).index(case)}"
    loaded = wire.create(name)
    request = {"properties": loaded["metadata"]["properties"], "columns": {}, "partition-columns": []}
    staged = stage(loaded, metadata_action(request, schemaString="{") if "schema" in case else add_action("a"))
    if "schema" not in case:
        staged.path.write_bytes(BAD_CONTENT[case][0])
    answer = wire.commit(name, staged, file_size=staged.path.stat().st_size)
    assert error_of(answer)[0] == 400, answer.text
    assert wire.load(name) == loaded


def test_a_staged_file_that_is_a_link_to_elsewhere_is_not_read(wire: UnityWire) -> None:
    loaded = wire.create("linked")
    staged = stage(loaded, add_action("a.parquet"))
    elsewhere = local_path(loaded["metadata"]["location"]).parents[4] / "secret.json"
    staged.path.rename(elsewhere)
    staged.path.symlink_to(elsewhere)
    assert error_of(wire.commit("linked", staged)) == (403, "PermissionDeniedException")
    assert wire.load("linked")["latest-table-version"] == 0


def test_a_put_if_absent_table_is_read_only_and_the_refusal_names_the_mode(wire: UnityWire, owner: DeltaClient) -> None:
    wire.create("by_file")
    set_commit_policy(owner.table("main.s.by_file"), CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT))
    loaded = wire.load("by_file")
    answer = wire.commit("by_file", stage(loaded, add_action("a.parquet")))
    assert error_of(answer) == (400, "BadRequestException")
    assert "put_if_absent" in answer.json()["error"]["message"]


def test_metadata_of_the_commit_is_stored_and_what_the_request_says_of_it_must_agree(wire: UnityWire) -> None:
    loaded = wire.create("changed")
    staged = _with_properties(wire, "changed", {"my.key": "1"})
    refused = wire.commit("changed", staged, {"action": "set-properties", "updates": {"my.key": "2"}})
    assert error_of(refused) == (400, "InvalidParameterValueException")
    both = (
        {"action": "set-properties", "updates": {"my.key": "1"}},
        {"action": "remove-properties", "removals": ["my.key"]},
    )
    assert error_of(wire.commit("changed", staged, *both))[0] == 400
    assert wire.load("changed") == loaded
    accepted = wire.commit("changed", staged, {"action": "set-properties", "updates": {"my.key": "1"}})
    assert accepted.status_code == 200, accepted.text
    metadata = accepted.json()["metadata"]
    assert metadata["properties"]["my.key"] == "1" and metadata["last-commit-version"] == 1
    assert metadata["etag"] != loaded["metadata"]["etag"]


UPDATES: list[tuple[dict[str, Any], bool]] = [
    ({"action": "remove-properties", "removals": ["not.there"]}, True),
    ({"action": "remove-properties", "removals": ["my.key"]}, False),
    ({"action": "set-table-comment", "comment": "as the commit has it"}, True),
    ({"action": "set-table-comment", "comment": "another"}, False),
    ({"action": "set-partition-columns", "partition-columns": []}, True),
    ({"action": "set-partition-columns", "partition-columns": ["id"]}, False),
    ({"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}}}, False),
    ({"action": "remove-domain-metadata", "domains": ["delta.clustering"]}, False),
    ({"action": "set-columns", "columns": {"type": "struct", "fields": []}}, False),
]


@pytest.mark.parametrize(("update", "agrees"), UPDATES, ids=str)
def test_each_kind_of_update_is_compared_with_the_commit(wire: UnityWire, update: dict[str, Any], agrees: bool) -> None:
    name = f"update_{UPDATES.index((update, agrees))}"
    wire.create(name)
    staged = _with_properties(wire, name, {"my.key": "1"}, description="as the commit has it")
    answer = wire.commit(name, staged, update)
    assert (answer.status_code == 200) is agrees, answer.text
    assert wire.load(name)["latest-table-version"] == (1 if agrees else 0)


def test_columns_in_either_spelling_of_nested_types_agree_with_the_commit(wire: UnityWire) -> None:
    fields = {"type": "array", "elementType": "long", "containsNull": True}
    columns = {"type": "struct", "fields": [{"name": "xs", "type": fields, "nullable": True, "metadata": {}}]}
    loaded = wire.create("nested", columns=columns)
    shown = loaded["metadata"]["columns"]["fields"][0]["type"]
    assert shown == {"type": "array", "element-type": "long", "contains-null": True}


def test_a_protocol_and_metadata_without_a_commit_are_refused(wire: UnityWire) -> None:
    loaded = wire.create("without")
    requirement = {"type": "assert-table-uuid", "uuid": loaded["metadata"]["table-uuid"]}
    for updates in ([{"action": "set-properties", "updates": {"a": "b"}}], [], [{"action": "set-weather"}]):
        answer = wire.table("POST", "without", {"requirements": [requirement], "updates": updates})
        assert error_of(answer)[0] == 400
    assert wire.load("without") == loaded


def test_the_published_version_is_recorded_only_if_it_exists(wire: UnityWire) -> None:
    loaded = wire.create("published")
    requirement = {"type": "assert-table-uuid", "uuid": loaded["metadata"]["table-uuid"]}
    mark = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    answer = wire.table("POST", "published", {"requirements": [requirement], "updates": [mark]})
    assert error_of(answer) == (400, "InvalidParameterValueException")
    staged = stage(loaded, add_action("a.parquet"))
    wire.commit("published", staged)
    answer = wire.table("POST", "published", {"requirements": [requirement], "updates": [mark]})
    assert answer.status_code == 200 and answer.json()["commits"] == []
    assert (staged.path.parent.parent / f"{1:020d}.json").exists()


def test_a_commit_to_a_dropped_table_finds_no_table(wire: UnityWire) -> None:
    request = wire.proposal("dropped", stage(wire.create("dropped"), add_action("a.parquet")))
    assert wire.table("DELETE", "dropped").status_code == 204
    assert error_of(wire.table("POST", "dropped", request)) == (404, "NoSuchTableException")


def _with_properties(wire: UnityWire, name: str, properties: dict[str, str], **changes: Any) -> Staged:
    """A staged commit that sets properties of a table."""
    loaded = wire.load(name)
    table_id = loaded["metadata"]["table-uuid"]
    first = local_path(loaded["metadata"]["location"]) / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    assert metadata["configuration"]["io.unitycatalog.tableId"] == table_id
    changed = metadata | {"configuration": metadata["configuration"] | properties} | changes
    return stage(loaded, {"metaData": changed})


def test_a_protocol_in_the_request_must_be_that_of_the_commit(wire: UnityWire) -> None:
    loaded = wire.create("protocol")
    protocol = {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": ["catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"],
        "writer-features": [
            *("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "inCommitTimestamp"),
            "domainMetadata",
        ],
    }
    staged = stage(loaded, protocol_action(protocol))
    other = protocol | {"writer-features": protocol["writer-features"][:-1]}  # type: ignore[index]  # It is a list.
    assert error_of(wire.commit("protocol", staged, {"action": "set-protocol", "protocol": other}))[0] == 400
    answer = wire.commit("protocol", staged, {"action": "set-protocol", "protocol": protocol})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["properties"]["delta.feature.domainMetadata"] == "supported"


@pytest.mark.parametrize("is_stated", [True, False])
@pytest.mark.parametrize("feature", ["v2Checkpoint", "deletionVectors", "vacuumProtocolCheck"])
def test_a_commit_does_not_end_the_contract_that_its_table_keeps(
    wire: UnityWire, feature: str, is_stated: bool
) -> None:
    """Whether or not the request repeats the protocol of the commit."""
    name = f"without_{feature.lower()}_{is_stated}"
    loaded = wire.create(name)
    readers = ["catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"]
    readers.remove(feature)
    protocol = {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": readers,
        "writer-features": [*readers, "inCommitTimestamp"],
    }
    staged = stage(loaded, protocol_action(protocol))
    stated = [{"action": "set-protocol", "protocol": protocol}] if is_stated else []
    answer = wire.commit(name, staged, *stated)
    assert error_of(answer) == (400, "InvalidParameterValueException"), answer.text
    assert feature in answer.json()["error"]["message"]
    assert wire.load(name) == loaded


def test_a_table_that_never_kept_the_contract_gets_another_protocol(wire: UnityWire, owner: DeltaClient) -> None:
    """Such as one of this package, which creates tables with the features that they need."""
    schema = StructType((StructField("id", PrimitiveType("long")),))
    properties = {"delta.enableDeletionVectors": "false"}
    table = create_table(owner, identifier="main.s.own_protocol", schema=schema, properties=properties)
    owner.wait_for_background()
    loaded = wire.load("own_protocol")
    before = table.snapshot().protocol
    assert "deletionVectors" not in (before.reader_features or ())
    protocol = {
        "min-reader-version": before.min_reader_version,
        "min-writer-version": before.min_writer_version,
        "reader-features": list(before.reader_features or ()),
        "writer-features": list(dict.fromkeys((*(before.writer_features or ()), "domainMetadata"))),
    }
    answer = wire.commit("own_protocol", stage(loaded, protocol_action(protocol)))
    assert answer.status_code == 200, answer.text


def test_a_request_that_asks_for_another_protocol_is_answered_with_its_body(wire: UnityWire) -> None:
    """Java's client asks for HTTP/2 in each request; the body must not be taken for data of that protocol."""
    request = wire.proposal("upgraded", stage(wire.create("upgraded"), add_action("a.parquet")))
    headers = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    }
    path = "/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/s/tables/upgraded"
    for _ in range(2):
        answer = wire.http.post(path, json=request, headers=headers)
        assert answer.status_code == 200, answer.text
    assert wire.http.get(path, headers=headers).json()["latest-table-version"] == 1
