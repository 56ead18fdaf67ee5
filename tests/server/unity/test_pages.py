"""Lists by pages: each name once, whatever is created and dropped between two pages, and no token but those of the list."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.server.settings import ServerSettings
from tests.server.unity.conftest import direct_client
from tests.server.unity.test_older_api import older_error_of
from tests.support.live_server import LiveServer, live_server
from tests.support.sent_statements import statements_of_requests
from tests.support.unity_wire import UnityWire

LISTS: dict[str, tuple[dict[str, str], set[str]]] = {
    "catalogs": ({}, {"main", "other"}),
    "schemas": ({"catalog_name": "main"}, {"s", "r", "Ü"}),
    "tables": ({"catalog_name": "main", "schema_name": "s"}, {"a", "b", "c", "Z", "é"}),
}
"""The lists, what is asked for in them, and the names that they have."""


@pytest.fixture(scope="module")
def listed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tmp_path_factory.mktemp("pages")
    settings = ServerSettings(catalog=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    with live_server(settings) as server:
        wire = UnityWire(server)
        for name in LISTS["tables"][1]:
            wire.create(name)
        for catalog, name in (("main", "r"), ("main", "Ü"), ("other", "s")):
            assert wire.older("POST", "schemas", {"name": name, "catalog_name": catalog}).status_code == 200
        wire.http.close()
        yield server


@pytest.fixture
def listed(listed_server: LiveServer) -> Iterator[UnityWire]:
    wire = UnityWire(listed_server)
    yield wire
    wire.http.close()


def pages(wire: UnityWire, name: str, **parameters: str) -> Iterator[list[str]]:
    """The names on each page of a list."""
    token: str | None = ""
    while token is not None:
        answer = wire.older("GET", name, **LISTS[name][0], **parameters, page_token=token)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        assert set(body) == {name, "next_page_token"}
        yield [entry["name"] for entry in body[name]]
        token = body["next_page_token"]


@pytest.mark.parametrize("name", LISTS)
def test_the_pages_of_a_list_have_each_name_once_in_order(listed: UnityWire, name: str) -> None:
    expected = sorted(LISTS[name][1])
    assert list(pages(listed, name)) == list(pages(listed, name, max_results="0")) == [expected]
    assert list(pages(listed, name, max_results="1")) == [[entry] for entry in expected]
    assert list(pages(listed, name, max_results=str(len(expected)))) == [expected]
    assert list(pages(listed, name, max_results=str(2**63 - 1))) == [expected]


@pytest.mark.parametrize("name", LISTS)
def test_a_token_of_another_list_or_none_is_refused(listed: UnityWire, name: str) -> None:
    others = [list_name for list_name in LISTS if list_name != name]
    tokens = [
        listed.older("GET", other, **LISTS[other][0], max_results="1").json()["next_page_token"] for other in others
    ]
    of_json = [base64.b64encode(text.encode()).decode() for text in ("7", '["x"]', '{"a":1}', "[" * 5000, '["a",1]')]
    for token in [*tokens, *of_json, "x", "é", "=", "a" * 5000, "null"]:
        answer = listed.older("GET", name, **LISTS[name][0], page_token=token)
        assert older_error_of(answer) == (400, "INVALID_ARGUMENT"), token


def test_a_token_of_another_schema_is_refused(listed: UnityWire) -> None:
    parameters, _ = LISTS["tables"]
    token = listed.older("GET", "tables", **parameters, max_results="1").json()["next_page_token"]
    answer = listed.older("GET", "tables", **parameters | {"schema_name": "r"}, page_token=token)
    assert older_error_of(answer) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("size", ["-1", "x", "1.5", str(2**63), "9" * 5000, ""])
def test_an_impossible_number_of_results_is_refused(listed: UnityWire, size: str) -> None:
    for name, (parameters, _) in LISTS.items():
        answer = listed.older("GET", name, **parameters, max_results=size)
        assert older_error_of(answer) == (400, "INVALID_ARGUMENT")


def test_lists_of_what_does_not_exist_are_not_found(listed: UnityWire) -> None:
    for name, parameters, code in (
        ("schemas", {"catalog_name": "nothing"}, "CATALOG_NOT_FOUND"),
        ("tables", {"catalog_name": "nothing", "schema_name": "s"}, "CATALOG_NOT_FOUND"),
        ("tables", {"catalog_name": "main", "schema_name": "nothing"}, "SCHEMA_NOT_FOUND"),
    ):
        assert older_error_of(listed.older("GET", name, **parameters)) == (404, code)


def test_names_that_are_dropped_between_pages_are_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as server:
        wire = UnityWire(server)
        for name in ("a", "b", "c", "d"):
            wire.create(name)
        listed = pages(wire, "tables", max_results="2")
        assert next(listed) == ["a", "b"]
        for name in ("b", "c"):
            assert wire.table("DELETE", name).status_code == 204
        wire.create("e")
        assert list(listed) == [["d", "e"]], "the last name of the page is dropped"
        wire.http.close()


@pytest.mark.parametrize("name", LISTS)
def test_a_page_is_one_query_whatever_it_has(listed: UnityWire, name: str) -> None:
    with statements_of_requests() as statements:
        sizes = []
        for entries in pages(listed, name, max_results="2"):
            sizes.append(len(entries))
            assert len(statements) == 1 and " LIMIT " in statements[0].replace("\n", " "), statements
            statements.clear()
    assert sizes == [2] * (len(LISTS[name][1]) // 2) + [1] * (len(LISTS[name][1]) % 2)


def test_a_page_leaves_out_what_the_caller_may_not_read_and_the_next_page_follows(tmp_path: Path) -> None:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as server, direct_client(server) as owner:
        wire, eve = UnityWire(server), UnityWire(server, "eve")
        for name in ("a", "b", "c"):
            wire.create(name)
        owner.access.enable_grants(owner="ana")
        as_owner = owner.catalog.acting_as("ana")  # type: ignore[attr-defined]  # It is a SqlCatalog.
        as_owner.access.grant([Privilege.READ], "main.s.c", "eve")
        assert list(pages(eve, "tables", max_results="1")) == [[], [], ["c"]]
        assert list(pages(eve, "tables")) == [["c"]]
        for client in (wire, eve):
            client.http.close()
