"""What callers try over HTTP; ``docs/server.md`` lists the threats with their tests."""

import ast
import json
import logging
import re
from pathlib import Path

import httpx
import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.server.wires import NATIVE_PATH, UNITY_DELTA_PATH, UNITY_PATH
from tests.contracts.catalog_bench import NAME, create
from tests.support.live_server import LiveServer
from tests.support.waiting import until

TABLE = f"{UNITY_DELTA_PATH}/catalogs/main/schemas/sales/tables/orders"
TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "server.md"


def test_each_line_of_the_threat_list_names_a_test_that_exists() -> None:
    named = re.findall(r"\| `([\w/]+\.py)::(\w+)` \|", PAGE.read_text().partition("## Threats")[2])
    assert len(named) >= 18
    for file, function in named:
        tree = ast.parse((TESTS / file).read_text())
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body), (file, function)


def test_without_a_valid_token_nothing_is_answered(server: LiveServer) -> None:
    with server.catalog() as catalog:
        create(catalog)
        revoked = catalog.tokens.create_token("ana")
        catalog.tokens.revoke_token(revoked.token.token_id)
    headers: list[dict[str, str]] = [{}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}]
    headers += [{"Authorization": f"Bearer {secret}"} for secret in ("x", "cmd_" + "a" * 43, revoked.secret)]
    for sent in headers:
        by_name = [httpx.get(f"{server.url}{path}", headers=sent) for path in (TABLE, TABLE.replace("orders", "none"))]
        assert [answer.status_code for answer in by_name] == [401, 401]
        assert by_name[0].json() == by_name[1].json()  # Whether the table exists is not shown.
        assert by_name[0].json()["error"]["type"] == "NotAuthorizedException"
        assert by_name[0].headers["www-authenticate"] == "Bearer"
        schemas = httpx.get(f"{server.url}{UNITY_PATH}/schemas?catalog_name=main", headers=sent)
        assert (schemas.status_code, schemas.json()["error_code"]) == (401, "UNAUTHENTICATED")


def test_a_token_loses_what_its_role_loses(server: LiveServer) -> None:
    headers = server.headers_of("ana")
    with server.catalog(owner="owner") as catalog:
        create(catalog)
        catalog.access.add_to_role("readers", ["ana"])
        catalog.access.enable_grants()
        catalog.access.grant([Privilege.READ], str(NAME), "readers")
        allowed = httpx.get(f"{server.url}{TABLE}", headers=headers)
        catalog.access.drop_role("readers")
    refused = httpx.get(f"{server.url}{TABLE}", headers=headers)
    assert allowed.status_code != 403 and refused.status_code == 403
    assert refused.json()["error"]["type"] == "PermissionDeniedException"
    assert "ana does not have the privilege read" in refused.json()["error"]["message"]
    assert "Ask owner" in refused.json()["error"]["message"]


def test_a_log_line_cannot_be_forged(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    path = f'{NATIVE_PATH}/x%0A{{"status":200}}%22,%22principal%22:%22root'
    with caplog.at_level(logging.INFO, "cm_delta_dagster.server.access"):
        httpx.get(f"{server.url}{path}", headers={"X-Request-Id": "a\tb"})
        until(lambda: any("root" in record.getMessage() for record in caplog.records))
    (line,) = [record.getMessage() for record in caplog.records if "root" in record.getMessage()]
    assert "\n" not in line and json.loads(line)["principal"] is None and json.loads(line)["status"] == 404
    assert "\t" not in json.loads(line)["request_id"]
