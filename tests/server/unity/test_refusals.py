"""Grants, rules and approvals for clients of Unity Catalog's API: refused commits name the rule, and change nothing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold
from cm_delta_dagster.server.settings import ServerSettings
from tests.server.unity.conftest import direct_client
from tests.server.unity.test_commits import error_of
from tests.support.live_server import LiveServer, live_server
from tests.support.unity_wire import UnityWire, add_action, local_path, stage

REMOVE = {"remove": {"path": "a.parquet", "dataChange": True, "deletionTimestamp": 1}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        yield live


@pytest.fixture
def owner(server: LiveServer) -> Iterator[DeltaClient]:
    with direct_client(server) as client:
        yield client


@pytest.fixture
def ana(server: LiveServer, owner: DeltaClient) -> Iterator[UnityWire]:
    """Who owns the table ``main.s.t``, which has a file of ten rows."""
    wire = UnityWire(server)
    wire.create("t")
    assert wire.append("t", add_action("a.parquet", stats='{"numRecords":10}')).status_code == 200
    yield wire
    wire.http.close()


def set_rule(owner: DeltaClient, on_violation: OnViolation) -> None:
    rule = CommitRule(
        scope="main",
        name="keep rows",
        kind=CommitRuleKind.MAX_REMOVED_FILES,
        arguments={"files": 0},
        on_violation=on_violation,
        reason="ask first",
        contact="data-team",
    )
    owner.commit_rules.set_commit_rule(rule)


def test_a_rule_refuses_a_commit_with_its_reason_and_whom_to_ask(ana: UnityWire, owner: DeltaClient) -> None:
    set_rule(owner, OnViolation.REFUSE)
    answer = ana.append("t", REMOVE)
    assert error_of(answer) == (400, "BadRequestException")
    message = answer.json()["error"]["message"]
    assert "keep rows" in message and "ask first" in message and "data-team" in message
    assert ana.load("t")["latest-table-version"] == 1


def test_a_commit_that_needs_an_approval_is_kept_and_the_refusal_names_the_request(
    ana: UnityWire, owner: DeltaClient
) -> None:
    local_path(ana.load("t")["metadata"]["location"]).joinpath("a.parquet").write_bytes(b"x")
    set_rule(owner, OnViolation.APPROVAL)
    answer = ana.append("t", REMOVE)
    assert error_of(answer) == (400, "BadRequestException")
    (waiting,) = owner.holds.holds("main.s.t")
    assert waiting.state is HoldState.PENDING and waiting.requested_by == "ana"
    assert waiting.hold_id in answer.json()["error"]["message"]
    assert ana.load("t")["latest-table-version"] == 1
    assert approve_hold(owner, waiting.hold_id).version == 2
    owner.wait_for_background()
    loaded = ana.load("t")
    assert loaded["latest-table-version"] == 2
    assert owner.table("main.s.t").snapshot().files.num_rows == 0


def test_who_may_only_read_loads_and_lists_and_its_commit_names_the_privilege(
    server: LiveServer, ana: UnityWire, owner: DeltaClient
) -> None:
    ana.append("t", add_action("b.parquet"))
    eve, stranger = UnityWire(server, "eve"), UnityWire(server, "mallory")
    owner.access.enable_grants(owner="ana")
    as_owner = owner.catalog.acting_as("ana")  # type: ignore[attr-defined]  # It is a SqlCatalog.
    as_owner.access.grant([Privilege.READ], "main.s.t", "eve")
    loaded = eve.load("t")
    answer = eve.commit("t", stage(loaded, add_action("c.parquet")))
    assert error_of(answer) == (400, "BadRequestException") and "append" in answer.json()["error"]["message"]
    assert error_of(eve.table("DELETE", "t")) == (403, "PermissionDeniedException")
    assert error_of(stranger.table("GET", "t"))[0] in (403, 404)
    listed = stranger.older("GET", "tables", catalog_name="main", schema_name="s")
    assert listed.json()["tables"] == []
    assert [
        table["name"] for table in eve.older("GET", "tables", catalog_name="main", schema_name="s").json()["tables"]
    ]
    assert ana.load("t")["latest-table-version"] == 2
    for wire in (eve, stranger):
        wire.http.close()


def test_who_may_not_create_tables_causes_no_file(server: LiveServer, ana: UnityWire, owner: DeltaClient) -> None:
    names = {"name": "new", "catalog_name": "main", "schema_name": "s"}
    location = ana.older("POST", "staging-tables", names).json()["staging_location"]
    eve = UnityWire(server, "eve")
    owner.access.enable_grants(owner="ana")
    as_owner = owner.catalog.acting_as("ana")  # type: ignore[attr-defined]  # It is a SqlCatalog.
    as_owner.access.grant([Privilege.READ, Privilege.APPEND], "main.s", "eve")
    columns = [{"name": "id", "type_json": '"long"'}]
    request = names | {"table_type": "MANAGED", "storage_location": location, "columns": columns}
    answer = eve.older("POST", "tables", request)
    assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED")
    assert not local_path(location).exists()
    assert ana.older("POST", "tables", request).status_code == 200
    eve.http.close()


def test_names_in_messages_are_those_of_the_request(ana: UnityWire) -> None:
    message = ana.table("GET", "nothing").json()["error"]["message"]
    assert re.search(r"main\.s\.nothing", message)
