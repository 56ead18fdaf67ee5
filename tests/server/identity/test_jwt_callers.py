"""Callers with JWTs: what they may do by each API, and the JWTs that are refused."""

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRefusedError,
    NotAuthenticatedError,
    OperationRefusedError,
)
from cm_delta_dagster.server.identity.jwt_callers import MAX_CHARACTERS, JwtCaller, JwtVerifier
from cm_delta_dagster.server.identity.provider import IdentityProvider
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import NATIVE_PATH, UNITY_DELTA_PATH, UNITY_PATH
from tests.contracts.catalog_bench import NAME, Clock, create
from tests.server.identity.conftest import settings_of
from tests.server.test_bad_input import has_form_of
from tests.support.browser import browser
from tests.support.commit_builder import ADD, commit_of
from tests.support.identity_provider import (
    SKEW,
    Provider,
    curve_key,
    fields_of,
    identity_provider,
    jwk,
    key_set_of,
    rsa_key,
    signed,
)
from tests.support.live_server import LiveServer, live_server
from tests.support.waiting import until
from tests.support.waiting_request import waiting_request

ROWS = pa.table({"id": [1, 2, 3]})
NATIVE = (f"{NATIVE_PATH}/namespaces/create_namespace", {"name": "main.new"})
UNITY = (f"{UNITY_PATH}/schemas", {"name": "new", "catalog_name": "main"})
DELTA = (f"{UNITY_DELTA_PATH}/catalogs/main/schemas/sales/staging-tables", {"name": "new"})
CHANGES = (NATIVE, UNITY, DELTA)
"""A request of each API that changes something."""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_roles_of_a_jwt_have_the_grants_that_the_catalog_gives_them(server_settings: ServerSettings) -> None:
    """By this package's client, by Unity Catalog's API and on the page; the roles have no entry in the catalog."""
    with (
        live_server(server_settings) as server,
        connect(server.url, token=server.token_for("owner", by="owner")) as owner,
    ):
        owner.create_table_as(str(NAME), ROWS)
        owner.access.enable_grants(owner="owner")
        owner.access.grant("append", str(NAME), to="role:loaders")
        token = signed(fields_of("ana", roles=["team", "loaders"]))
        listed = f"{server.url}{UNITY_PATH}/tables?catalog_name=main&schema_name=sales"
        with connect(server.url, token=token) as lake:
            caller = lake.access.whoami()
            assert (caller.principal, caller.roles, caller.grants_enabled) == ("ana", ("loaders", "team"), True)
            lake.table(str(NAME)).append(ROWS)
            assert lake.table(str(NAME)).scan().count() == 2 * len(ROWS)
            with pytest.raises(OperationRefusedError, match="the principal ana does not have the privilege own"):
                lake.drop(str(NAME))
        assert [table["name"] for table in httpx.get(listed, headers=bearer(token)).json()["tables"]] == ["orders"]
        with browser(server.url, secret=token) as page:
            shown = page.get("/").text
            assert "orders" in shown and 'title="Roles: loaders, team"' in shown and token not in shown
        assert [entry.actor for entry in owner.events.feed(kinds=["COMMIT"])] == ["ana"]
        table_id = server.app.state.catalog.acting_as("owner").registry.load_table(NAME).table_id
        # The same user without the role, a user named like the role, a role named like an owner, and roles like prefixes.
        for fields in (
            fields_of("ana"),
            fields_of("loaders", roles=["loader"]),
            fields_of("ana", roles=["owner", "user:owner", "role:loaders", "loaders\n", " loaders", "", "Loaders"]),
        ):
            with HttpCatalog(server.url, signed(fields)) as other:
                with pytest.raises(OperationRefusedError):
                    other.registry.load_table(NAME)
                with pytest.raises((CommitRefusedError, OperationRefusedError)):
                    other.coordinator.commit(table_id, commit_of(2, ADD))
            assert httpx.get(listed, headers=bearer(signed(fields))).json()["tables"] == []


def test_a_jwt_that_expires_during_a_request_serves_no_other(server_settings: ServerSettings) -> None:
    clock = Clock()
    now = clock.now // 1000
    headers = bearer(signed(fields_of(iat=now, exp=now + 10)))
    clock.now += (10 + SKEW) * 1000 - 1
    with live_server(server_settings, now_ms=clock) as server:
        url = f"{server.url}{UNITY_PATH}/catalogs"
        assert httpx.get(url, headers=headers).status_code == 200
        with waiting_request(server, f"{UNITY_PATH}/wait", headers) as answers:
            clock.now += 1
            refused = httpx.get(url, headers=headers)
        assert refused.status_code == 401 and "has expired" in refused.text
        assert answers[0].status_code == 200


def test_a_session_of_the_page_ends_with_its_jwt(sqlite_url: str, tmp_path: Path, provider: Provider) -> None:
    clock = Clock()
    now = clock.now // 1000
    with live_server(settings_of(sqlite_url, tmp_path, provider), now_ms=clock) as server:
        with browser(server.url, secret=signed(fields_of(iat=now, exp=now + 10))) as page:
            clock.now += 9_999
            assert page.get("/").status_code == 200
            clock.now += 1
            assert page.get("/").headers["location"] == "/page/sign-in"
        many = signed(fields_of(iat=now, exp=now + 99, roles=[f"role-number-{number}" for number in range(300)]))
        with browser(server.url) as page:
            refused = page.sign_in(many)
            assert refused.status_code == 400 and "more roles than the cookie" in refused.text
            assert page.get("/").status_code == 303


def test_without_a_provider_no_session_of_a_jwt_is_left(sqlite_url: str, tmp_path: Path, provider: Provider) -> None:
    settings = settings_of(sqlite_url, tmp_path, provider)
    without = settings.model_copy(update={"identity_provider": None})
    token = signed(fields_of())
    with live_server(settings) as first, live_server(without) as second, browser(first.url, secret=token) as page:
        answer = httpx.get(f"{second.url}/", cookies={"cm_delta_session": page.cookie})
        assert answer.status_code == 401 and "has no identity provider" in answer.text
        refused = httpx.get(f"{second.url}{UNITY_PATH}/catalogs", headers=bearer(token))
        assert refused.status_code == 401 and "The catalog does not know the token" in refused.text


def test_keys_of_the_provider_change_while_the_server_runs(sqlite_url: str, tmp_path: Path, provider: Provider) -> None:
    provider.content = key_set_of(jwk("second", curve_key("second")), jwk("third", rsa_key("third")))
    with live_server(settings_of(sqlite_url, tmp_path, provider)) as server:
        for token in (
            signed(fields_of(), kid="second", key=curve_key("second"), algorithm="ES256"),
            signed(fields_of(), kid="third", key=rsa_key("third")),
        ):
            assert httpx.get(f"{server.url}{UNITY_PATH}/catalogs", headers=bearer(token)).status_code == 200


def state_of(server: LiveServer) -> object:
    """What requests could change."""
    catalog: SqlCatalog = server.app.state.catalog.acting_as("owner")
    tables = (catalog.registry.list_tables(), catalog.registry.inactive_tables())
    return (
        tables,
        catalog.namespaces.list_schemas(),
        catalog.audit_log.audit(),
        catalog.events.events(after=0, limit=99),
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    directory = tmp_path_factory.mktemp("served")
    with identity_provider() as provider:
        settings = settings_of(f"sqlite:///{directory}/catalog.db", directory, provider)
        with live_server(settings) as server:
            with server.catalog(owner="owner") as catalog:
                create(catalog)
                catalog.access.enable_grants()
            yield server


def encoded(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(header: dict[str, Any], fields: dict[str, Any], signature: str = "") -> str:
    return f"{encoded(header)}.{encoded(fields)}.{signature}"


def hmac_with_the_public_key(fields: dict[str, Any]) -> str:
    """HS256 with the public key as the secret, which who verifies by the algorithm of the header takes for valid."""
    public = rsa_key("first").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'first'})}.{encoded(fields)}"
    return f"{text}.{encoded(hmac.new(public, text.encode(), hashlib.sha256).digest())}"


OWNER = fields_of("owner")
LATE, EARLY = int(time.time()) + 3600, int(time.time()) - 3600
RS256 = {"alg": "RS256", "typ": "JWT", "kid": "first"}
_OTHER_FIELDS = encoded(fields_of("other-user"))

BAD: dict[str, tuple[Callable[[], str], str]] = {
    "expired": (lambda: signed({**OWNER, "exp": EARLY}), "has expired"),
    "not yet valid": (lambda: signed({**OWNER, "nbf": LATE}), "is not valid yet"),
    "issued later": (lambda: signed({**OWNER, "iat": LATE}), "is not valid yet"),
    "wrong key": (lambda: signed(OWNER, key=rsa_key("second")), "has a wrong signature"),
    "other fields": (lambda: signed(OWNER).replace(signed(OWNER).split(".")[1], _OTHER_FIELDS), "wrong signature"),
    "without signature": (lambda: unsigned(RS256, OWNER), "has a wrong signature"),
    "alg none": (lambda: unsigned({"alg": "none", "kid": "first"}, OWNER), "not signed with one of the algorithms"),
    "alg NONE": (lambda: unsigned({"alg": "NONE", "kid": "first"}, OWNER), "not signed with one of the algorithms"),
    "no alg": (lambda: unsigned({"kid": "first"}, OWNER), "not signed with one of the algorithms"),
    "alg list": (lambda: unsigned({"alg": ["RS256"], "kid": "first"}, OWNER), "not signed with one of the algorithms"),
    "HS256": (lambda: hmac_with_the_public_key(OWNER), "not signed with one of the algorithms"),
    "RS512": (lambda: signed(OWNER, algorithm="RS512"), "not signed with one of the algorithms"),
    "other type": (lambda: signed(OWNER, key=curve_key("first"), algorithm="ES256"), "does not publish"),
    "own key": (lambda: signed(OWNER, key=rsa_key("second"), jwk=jwk("first", rsa_key("second"))), "wrong signature"),
    "unknown kid": (lambda: signed(OWNER, kid="other"), "a key that the identity provider does not publish"),
    "no kid": (lambda: signed(OWNER, kid=None), "names no key"),
    "kid list": (lambda: unsigned({**RS256, "kid": ["first"]}, OWNER), "is malformed"),
    "critical extension": (lambda: signed(OWNER, crit=["exp"], exp=LATE), "is malformed"),
    "wrong issuer": (lambda: signed({**OWNER, "iss": "https://login.example/"}), "by another issuer"),
    "no issuer": (lambda: signed(fields_of("owner", iss=None)), "lacks a field"),
    "wrong audience": (lambda: signed({**OWNER, "aud": ["other", "cm-delta2"]}), "for another audience"),
    "no audience": (lambda: signed(fields_of("owner", aud=None)), "lacks a field"),
    "no end": (lambda: signed(fields_of("owner", exp=None)), "lacks a field"),
    "end is a text": (lambda: signed({**OWNER, "exp": "2100"}), "is malformed"),
    "end is infinite": (lambda: signed({**OWNER, "exp": float("inf")}), "is malformed"),
    "end is true": (lambda: signed({**OWNER, "exp": True}), "is malformed"),
    "no principal": (lambda: signed(fields_of("owner", sub=None)), "no name that a principal can have"),
    "empty principal": (lambda: signed({**OWNER, "sub": ""}), "no name that a principal can have"),
    "principal with a prefix": (lambda: signed({**OWNER, "sub": "user:owner"}), "no name that a principal can have"),
    "principal like a role": (lambda: signed({**OWNER, "sub": "role:owner"}), "no name that a principal can have"),
    "principal of two lines": (lambda: signed({**OWNER, "sub": "owner\nx"}), "no name that a principal can have"),
    "roles are a text": (lambda: signed({**OWNER, "roles": "owner"}), "roles that are not a list of texts"),
    "roles are null": (lambda: signed({**OWNER, "roles": None}), "roles that are not a list of texts"),
    "roles are an object": (lambda: signed({**OWNER, "roles": {"owner": 1}}), "roles that are not a list of texts"),
    "a role is a number": (lambda: signed({**OWNER, "roles": ["a", 1]}), "roles that are not a list of texts"),
    "huge": (lambda: signed({**OWNER, "roles": ["r" * MAX_CHARACTERS]}), f"longer than {MAX_CHARACTERS} characters"),
    "fields are a list": (lambda: jwt.PyJWS().encode(b"[]", rsa_key("first"), "RS256", {"kid": "first"}), "malformed"),
    "one word": (lambda: "x", "is malformed"),
    "three words": (lambda: "a.b.c", "is malformed"),
    "five parts": (lambda: f"{signed(OWNER)}.x.y", "is malformed"),
    "deep header": (lambda: f"{encoded(b'[' * 4000)}.{encoded(OWNER)}.x", "is malformed"),
    "unknown token of the catalog": (lambda: f"cmd_{signed(OWNER)}", "The catalog does not know the token"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_jwt_that_is_not_valid_is_refused_by_each_api_and_changes_and_shows_nothing(
    served: LiveServer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, message = BAD[case]
    token, before = make(), state_of(served)
    with caplog.at_level(logging.DEBUG):
        for path, body in CHANGES:
            answer = httpx.post(f"{served.url}{path}", json=body, headers=bearer(token))
            assert answer.status_code == 401 and has_form_of(path, answer), answer.text
            assert message in answer.text and answer.headers["www-authenticate"] == "Bearer"
        with browser(served.url) as page:
            refused = page.sign_in(token)
            assert refused.status_code == 401 and message in refused.text
            assert page.get("/").status_code == 303
        lines = [record for record in caplog.records if record.name == "cm_delta_dagster.server.access"]
        until(lambda: sum('"status": 401' in record.getMessage() for record in caplog.records) == 4)
    assert state_of(served) == before
    assert lines and all(json.loads(record.getMessage())["principal"] is None for record in lines)
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("cm_delta_dagster"))
    assert not any(part in logged for part in token.split(".") if len(part) > 3)


def test_the_kinds_of_errors_are_those_of_other_tokens(served: LiveServer) -> None:
    """The valid token of the same owner is accepted by each of these requests."""
    expired, valid = signed({**OWNER, "exp": EARLY}), signed({**OWNER, "exp": LATE})
    answers = [httpx.post(f"{served.url}{path}", json=body, headers=bearer(expired)) for path, body in CHANGES]
    assert answers[0].json()["error"]["kind"] == "NotAuthenticatedError"
    assert answers[1].json()["error_code"] == "UNAUTHENTICATED"
    assert answers[2].json()["error"]["type"] == "NotAuthorizedException"
    with HttpCatalog(served.url, expired) as client, pytest.raises(NotAuthenticatedError, match="has expired"):
        client.registry.list_tables()
    for path, body in (UNITY, DELTA, (NATIVE[0], {"name": "main.other"})):
        answer = httpx.post(f"{served.url}{path}", json=body, headers=bearer(valid))
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("content", [None, b"<html>"])
def test_without_keys_of_the_provider_requests_are_refused_with_the_cause(
    content: bytes | None, sqlite_url: str, tmp_path: Path, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys are gone, or malformed, when the server starts. Tokens of the catalog still work."""
    provider.status, provider.content = (404, b"") if content is None else (200, content)
    token = signed(fields_of())
    with live_server(settings_of(sqlite_url, tmp_path, provider)) as server:
        answers = [httpx.post(f"{server.url}{path}", json=body, headers=bearer(token)) for path, body in CHANGES]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert all(has_form_of(path, answer) for (path, _), answer in zip(CHANGES, answers, strict=True))
        assert answers[0].json()["error"]["kind"] == CatalogUnavailableError.__name__
        assert answers[1].json()["error_code"] == "UNAVAILABLE"
        assert all("has not been able to read the keys of the provider" in answer.text for answer in answers)
        with browser(server.url) as page:
            assert page.sign_in(token).status_code == 503
        assert len(provider.paths) == 1
        assert any(f"cannot be read from {provider.url}" in record.getMessage() for record in caplog.records)
        of_catalog = httpx.get(f"{server.url}{UNITY_PATH}/catalogs", headers=server.headers_of("ana"))
        assert (of_catalog.status_code, of_catalog.json()["catalogs"]) == (200, [])


def test_clocks_may_differ_by_the_setting_and_names_are_read_where_it_says(provider: Provider) -> None:
    settings = provider.settings(principal_field=["user", "name"], roles_field=["realm_access", "roles"])
    verifier = JwtVerifier(IdentityProvider.model_validate(settings))
    fields = fields_of(iat=1000, exp=2000, user={"name": "ana"}, realm_access={"roles": ["b", "a", "b", "x" * 201]})
    token = signed(fields)
    expected = JwtCaller(principal="ana", roles=("a", "b"), expires_ms=2_000_000)
    for now_s in (1000 - SKEW, 2000 + SKEW - 1):
        assert verifier.caller(token, now_ms=now_s * 1000) == expected
    for now_s, message in ((1000 - SKEW - 1, "is not valid yet"), (2000 + SKEW, "has expired")):
        with pytest.raises(NotAuthenticatedError, match=message):
            verifier.caller(token, now_ms=now_s * 1000)
    late = {**fields, "exp": 253_402_300_799, "iat": 1000.9}
    assert verifier.caller(signed(late), now_ms=1_000_000).expires_ms == 253_402_300_799_000
    for after in (253_402_300_800, 1e308, 10**4000):
        with pytest.raises(NotAuthenticatedError, match="is malformed"):
            verifier.caller(signed({**fields, "exp": after}), now_ms=1_000_000)
    without = {**fields, "realm_access": {}}
    assert verifier.caller(signed(without), now_ms=1_500_000).roles == ()
    for wrong in ({"realm_access": "a"}, {"realm_access": ["roles"]}, {"user": "ana"}, {"user": {}}):
        with pytest.raises(NotAuthenticatedError):
            verifier.caller(signed({**fields, **wrong}), now_ms=1_500_000)
