"""What every operation of the HTTP API answers to callers without rights, and that it changes nothing for them.

The operations are those of the table from which client and server are made, so that a new one is called here too: it refuses the
caller, or it is listed below with the reason why it need not.
"""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from cm_delta_dagster.catalog.maintenance import LeaseLost, MaintenanceDecision
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.rest.operations import PATH, CatalogOperation
from cm_delta_dagster.catalog.sql.access.token_limits import FILTERED, FOR_EVERYBODY, READS
from cm_delta_dagster.errors import (
    CmDeltaError,
    CommitRefusedError,
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    OperationRefusedError,
)
from cm_delta_dagster.server.page.routes import ROUTERS
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import UNITY_DELTA_PATH, UNITY_PATH
from tests.support.browser import browser
from tests.support.every_operation import OWNER, TABLE, FullCatalog, every_operation, fill, rows_of
from tests.support.live_server import LiveServer

_NAMES = "lists names, which docs/permissions.md calls no secret"
_RULES = "lists rules, grants and leases, which docs/permissions.md calls no secret"
_FEED = "the feed shows the commits of all tables, as docs/permissions.md says"
_OF_EVERYBODY = {
    "registry.identity": "the id of the catalog and the place of new tables",
    "registry.list_tables": _NAMES,
    "registry.registered_paths": _NAMES,
    "registry.inactive_tables": _NAMES,
    "registry.readable_tables": "lists the tables that the caller may read: none",
    "namespaces.list_catalogs": _NAMES,
    "namespaces.list_schemas": _NAMES,
    "commit_policies.commit_policies": _RULES,
    "commit_rules.commit_rules": _RULES,
    "holds.holds": "lists the held commits of the caller, and of tables that it maintains",
    "maintenance_policies.maintenance_rules": _RULES,
    "leases.leases": _RULES,
    "feed.feed": _FEED,
    "feed.feed_page": _FEED,
    "feed.latest_feed_position": _FEED,
    "feed.newest_deleted_commits": _FEED,
    "events.events": _FEED,
    "events.wait_for_events": _FEED,
    "access.whoami": "the caller itself",
    "access.grants": _RULES,
    "access.roles": _RULES,
}
_WITHOUT_GRANTS = {
    **_OF_EVERYBODY,
    "registry.registered_path": "one entry of the list of registered paths",
    "holds.find_hold": "finds held commits of the caller, and of tables that it maintains",
    "maintenance_policies.maintenance_decision": "the answer is the denial",
    "maintenance_policies.authorize_maintenance": "the answer is the denial",
    "leases.renew_lease": "the answer is that the caller does not hold the lease",
    "leases.check_lease": "one entry of the list of leases",
    "leases.release_maintenance_lease": "releases leases of the caller, and ignores others",
    "pins.pinned_version": "the pins of the caller",
    "access.table_owner": "each refusal says whom to ask",
    "overview.table_overviews": "lists the tables that the caller may read, which are none",
    "overview.newest_commits": "lists the commits of tables that the caller may read, which are none",
}
"""What answers a principal that was granted nothing, and why that is harmless."""

_OTHER_REFUSALS: Mapping[str, type[CmDeltaError]] = {
    "holds.held_proposals": InvalidArgumentError,  # As for a hold that does not exist.
    "holds.reject_hold": InvalidArgumentError,
    "holds.discard_hold": InvalidArgumentError,
    "holds.close_hold": InvalidArgumentError,
    "events.delete_old_entries": MaintenanceNotPermittedError,
}
_REFUSALS = (OperationRefusedError, CommitRefusedError)
_LAST = (
    "leases.release_maintenance_lease",
    "leases.expire_lease",
    "registry.abandon_clones",
    "registry.begin_purge",
    "registry.finish_purge",
    "registry.undrop_table",
    "registry.rename_table",
    "commit_policies.begin_release",
    "recovery.release_table",
    "registry.drop_table",
    "access.revoke",
    "access.disable_grants",
)
"""What ends the use of something that other operations use, in the order of the calls."""

_COUNTERS = {"cm_delta_feed_counter", "cm_delta_feed_waiters"}
"""Tables whose rows say how far the feed is, and who waits for it."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow])])
def server_settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServerSettings:
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return ServerSettings(catalog=url, warehouse=f"file://{tmp_path}/warehouse")


@pytest.fixture
def full(server: LiveServer) -> Iterator[FullCatalog]:
    with server.catalog(owner=OWNER) as catalog:
        yield fill(catalog)


def answers(server: LiveServer, full: FullCatalog, secret: str) -> dict[str, object]:
    """The answer to each operation, or its error."""

    def answer(catalog: HttpCatalog, operation: CatalogOperation) -> object:
        try:
            return getattr(getattr(catalog, operation.part), operation.name)(**full.arguments_of(operation))
        except CmDeltaError as error:
            return error

    last = {operation: number for number, operation in enumerate(_LAST)}
    in_order = sorted(every_operation(), key=lambda operation: last.get(str(operation), -1))
    with HttpCatalog(server.url, secret) as catalog:
        return {str(operation): answer(catalog, operation) for operation in in_order}


def without_rights(server: LiveServer, full: FullCatalog, secret: str) -> dict[str, object]:
    """As :func:`answers`, of a caller that changes nothing but the audit and the feed, which get its refusals."""
    before = rows_of(server.settings.catalog)
    known = answers(server, full, secret)
    after = rows_of(server.settings.catalog)
    for table, rows in before.items():
        if table in _COUNTERS:
            continue
        assert rows <= after[table], table
        added = after[table] - rows
        if table == "cm_delta_audit":
            assert all("'outcome': 'refused'" in row for row in added)
        elif table == "cm_delta_feed":
            assert all("'kind': 'PROPOSAL_REFUSED'" in row for row in added)
        else:
            assert not added, table
    return known


def answered(known: Mapping[str, object]) -> set[str]:
    return {operation for operation, answer in known.items() if not isinstance(answer, CmDeltaError)}


def wrong_refusals(known: Mapping[str, object], expected: Mapping[str, type[CmDeltaError]]) -> dict[str, object]:
    return {
        operation: answer
        for operation, answer in known.items()
        if isinstance(answer, CmDeltaError) and not isinstance(answer, expected.get(operation, _REFUSALS))
    }


def test_every_route_of_the_api_is_an_operation(server: LiveServer) -> None:
    paths = {path for path in server.app.openapi()["paths"] if path.startswith(f"{PATH}/")}
    assert paths == {f"{PATH}/info", *(operation.path for operation in every_operation())}


def test_a_principal_without_a_grant_is_refused_every_operation(server: LiveServer, full: FullCatalog) -> None:
    known = without_rights(server, full, server.token_for("stranger", by=OWNER))
    assert wrong_refusals(known, _OTHER_REFUSALS) == {}
    assert answered(known) == set(_WITHOUT_GRANTS)
    assert known["overview.table_overviews"] == known["overview.newest_commits"] == ()
    assert known["holds.holds"] == () and known["holds.find_hold"] is None
    assert known["pins.pinned_version"] is None and isinstance(known["leases.renew_lease"], LeaseLost)
    for operation in ("maintenance_decision", "authorize_maintenance"):
        decision = known[f"maintenance_policies.{operation}"]
        assert isinstance(decision, MaintenanceDecision) and not decision.allowed


def test_a_read_only_token_of_an_owner_changes_nothing(server: LiveServer, full: FullCatalog) -> None:
    known = without_rights(server, full, server.token_for(OWNER, read_only=True, by=OWNER))
    assert wrong_refusals(known, {}) == {}
    assert answered(known) == READS - {"coordinator.now_ms"}


def test_a_token_of_another_scope_reaches_nothing(server: LiveServer, full: FullCatalog) -> None:
    known = without_rights(server, full, server.token_for(OWNER, scope="main.staff", by=OWNER))
    assert wrong_refusals(known, {}) == {}
    assert answered(known) == set(_OF_EVERYBODY) == (FOR_EVERYBODY | FILTERED) - {"coordinator.now_ms"}


_SCHEMA_PATH = "/catalogs/{catalog}/schemas/{schema}"
_TABLE_PATH = f"{_SCHEMA_PATH}/tables/{{table}}"
_UNITY_LISTS = {
    ("get", f"{UNITY_DELTA_PATH}/config"): "says what the server has",
    ("get", f"{UNITY_PATH}/catalogs"): _NAMES,
    ("get", f"{UNITY_PATH}/catalogs/{{name}}"): _NAMES,
    ("get", f"{UNITY_PATH}/schemas"): _NAMES,
    ("get", f"{UNITY_PATH}/schemas/{{full_name}}"): _NAMES,
    ("get", f"{UNITY_PATH}/tables"): "lists the tables that the caller may read, which are none",
}
"""What Unity Catalog's API answers a principal that was granted nothing, and why that is harmless."""


def unity_bodies(full: FullCatalog) -> dict[tuple[str, str], object]:
    """A body for each route that takes one."""
    protocol = {"min-reader-version": 3, "min-writer-version": 7}
    table_id, columns = full.table.table_id, {"type": "struct", "fields": []}
    created = {"name": "new", "location": full.reserved_location, "table-type": "MANAGED", "columns": columns}
    properties = {"io.unitycatalog.tableId": full.reserved_id}
    name = f"{2:020d}.{uuid.uuid4()}.json"
    commit = {"version": 2, "timestamp": 1, "file-name": name, "file-size": 1, "file-modification-timestamp": 1}
    requirement = {"type": "assert-table-uuid", "uuid": table_id}
    update = {"requirements": [requirement], "updates": [{"action": "add-commit", "commit": commit}]}
    return {
        ("post", f"{UNITY_DELTA_PATH}{_SCHEMA_PATH}/staging-tables"): {"name": "another"},
        ("post", f"{UNITY_DELTA_PATH}{_SCHEMA_PATH}/tables"): created
        | {"protocol": protocol, "properties": properties},
        ("post", f"{UNITY_DELTA_PATH}{_TABLE_PATH}"): update,
        ("post", f"{UNITY_DELTA_PATH}{_TABLE_PATH}/rename"): {"new-name": "another"},
        ("post", f"{UNITY_DELTA_PATH}{_TABLE_PATH}/metrics"): {"table-id": table_id, "report": {}},
        ("post", f"{UNITY_PATH}/schemas"): {"name": "another", "catalog_name": "main"},
        **older_bodies(full, created, commit),
    }


def older_bodies(
    full: FullCatalog, created: Mapping[str, object], commit: Mapping[str, object]
) -> dict[tuple[str, str], object]:
    """Bodies for the routes of the older API that have the same effect."""
    names = {"catalog_name": "main", "schema_name": "sales"}
    of_table = {"table_id": full.table.table_id, "table_uri": full.table.location}
    table = {"name": "new", "table_type": "MANAGED", "storage_location": created["location"], "columns": []}
    file = {name.replace("-", "_"): value for name, value in commit.items()}
    return {
        ("post", f"{UNITY_PATH}/staging-tables"): names | {"name": "another"},
        ("post", f"{UNITY_PATH}/tables"): names | table | {"properties": {"io.unitycatalog.tableId": full.reserved_id}},
        ("get", f"{UNITY_PATH}/delta/preview/commits"): of_table | {"start_version": 0},
        ("post", f"{UNITY_PATH}/delta/preview/commits"): of_table | {"commit_info": file},
        ("post", f"{UNITY_PATH}/temporary-table-credentials"): of_table | {"operation": "READ"},
    }


def test_unity_catalogs_api_refuses_a_principal_without_a_grant(server: LiveServer, full: FullCatalog) -> None:
    """Every route, from the description of the server, which a new route is in."""
    headers = {"Authorization": f"Bearer {server.token_for('stranger', by=OWNER)}"}
    names = {"catalog": "main", "schema": "sales", "table": "orders", "name": "main", "table_id": full.reserved_id}
    query = {"catalog_name": "main", "schema_name": "sales", "catalog": "main", "operation": "READ"}
    bodies, answers = unity_bodies(full), {}
    before = rows_of(server.settings.catalog)
    for path, methods in server.app.openapi()["paths"].items():
        for method in methods if path.startswith(UNITY_PATH) else ():
            full_name = "main.empty" if "schemas/{full_name}" in path else "main.sales.orders"
            url = server.url + path.format(**names, full_name=full_name)
            answers[method, path] = httpx.request(
                method, url, headers=headers, params=query, json=bodies.pop((method, path), None)
            )
    assert bodies == {} and len(answers) >= 25
    statuses = {route: answer.status_code for route, answer in answers.items() if route not in _UNITY_LISTS}
    assert set(statuses.values()) == {403}, statuses
    assert {route: answers[route].status_code for route in _UNITY_LISTS} == dict.fromkeys(_UNITY_LISTS, 200)
    assert answers["get", f"{UNITY_PATH}/tables"].json()["tables"] == []
    after = rows_of(server.settings.catalog)
    changed = {table for table, rows in before.items() if rows != after[table]}
    assert changed <= {"cm_delta_audit", "cm_delta_feed", *_COUNTERS}


_PAGES = {
    "/": 200,
    "/page/tables/{name}": 403,
    "/page/feed": 200,
    "/page/rules": 200,
    "/page/refusals": 403,
    "/page/tokens": 403,
    "/page/approvals": 200,
    "/page/sign-in": 200,
    "/page/style.css": 200,
}
"""What the page answers a principal that was granted nothing. Only the rules say anything of the tables."""

_FORMS = {"/page/approvals/{hold_id}/approve", "/page/approvals/{hold_id}/reject"}
_OF_SESSIONS = {"/page/sign-in", "/page/sign-out"}


def test_the_page_shows_nothing_to_a_principal_without_a_grant(server: LiveServer, full: FullCatalog) -> None:
    """Every route of the page. A read-only token of an owner changes nothing there either."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert {route.path for route in routes if "GET" in route.methods} == set(_PAGES)
    assert {route.path for route in routes if "POST" in route.methods} == _FORMS | _OF_SESSIONS
    for secret, statuses in (
        (server.token_for("stranger", by=OWNER), {400}),
        (server.token_for(OWNER, read_only=True, by=OWNER), {403}),
    ):
        before = rows_of(server.settings.catalog)
        with browser(server.url, secret=secret) as opened:
            form = {"form_token": opened.form_token(), "reason": "none"}
            for path in _FORMS:
                url = path.format(hold_id=full.hold_id)
                answer = opened.client.post(url, data=form, headers={"Origin": opened.origin})
                assert answer.status_code in statuses, answer.text
            answers = {path: opened.get(path.format(name=TABLE)) for path in _PAGES}
        after = rows_of(server.settings.catalog)
        assert {table for table, rows in before.items() if rows != after[table]} <= {
            "cm_delta_audit",
            "cm_delta_feed",
            *_COUNTERS,
        }
        if statuses == {400}:
            assert {path: answer.status_code for path, answer in answers.items()} == _PAGES
            showing = {
                path for path, answer in answers.items() if "orders" in answer.text or full.hold_id in answer.text
            }
            assert showing == {"/page/rules", "/page/tables/{name}"}, (
                "the second is the refusal, with the name it was asked for"
            )


def test_an_owner_is_not_refused(server: LiveServer, full: FullCatalog) -> None:
    """Otherwise the refusals of the others would say nothing."""
    known = answers(server, full, server.token_for(OWNER, by=OWNER))
    refused = {operation for operation, answer in known.items() if isinstance(answer, _REFUSALS)}
    assert refused == {"access.disable_grants"}, "it has just revoked its own grant"
    assert len(answered(known)) > 80
