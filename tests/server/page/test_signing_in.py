"""Signing in and out, forged requests, and sessions that end."""

import pickle
from collections.abc import Callable

import httpx
import pytest

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.server.page.sessions import SESSION_MS
from cm_delta_dagster.server.settings import ServerSettings
from tests.contracts.catalog_bench import Clock
from tests.server.page.conftest import ORDERS
from tests.support.browser import Browser, browser
from tests.support.live_server import LiveServer, live_server

SIGN_IN, SIGN_OUT = "/page/sign-in", "/page/sign-out"
PAGES = (
    "/",
    "/page/feed",
    "/page/approvals",
    "/page/rules",
    "/page/refusals",
    "/page/tokens",
    f"/page/tables/{ORDERS}",
)


def test_without_a_session_there_is_only_the_form(server: LiveServer, owner: Connection) -> None:
    with browser(server.url) as page:
        for path in PAGES:
            answer = page.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, SIGN_IN) and "orders" not in answer.text
        refused = page.sign_in("cmd_wrong")
        assert refused.status_code == 401 and "does not know the token" in refused.text
        for action in (SIGN_OUT, "/page/approvals/none/approve"):
            assert page.client.post(action).status_code in (401, 403)
        unknown = page.get("/page/nothing")
        assert unknown.status_code == 404 and unknown.headers["content-type"].startswith("text/html")
        # The session of the form is none of a caller.
        assert page.get("/").status_code == 303


def test_a_session_has_no_secret_and_ends_with_the_sign_out(server: LiveServer, owner: Connection) -> None:
    secret = server.token_for("owner", by="owner")
    with browser(server.url) as page:
        before = page.get(SIGN_IN)
        signed = page.sign_in(secret)
        for answer in (before, signed):
            cookie = answer.headers["set-cookie"]
            assert (
                "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie and "Domain" not in cookie
            )
            assert secret not in cookie and "Secure" not in cookie  # The test has no TLS.
        assert page.get("/").status_code == 200
        # The APIs take no session.
        assert page.client.get("/api/cm/v1/info").status_code == 401
        assert page.send("/", SIGN_OUT).headers["location"] == SIGN_IN
        assert page.get("/").status_code == 303


def test_over_tls_the_cookie_is_sent_only_there(server: LiveServer) -> None:
    cookie = httpx.get(f"{server.url}{SIGN_IN}", headers={"X-Forwarded-Proto": "https"}).headers["set-cookie"]
    assert cookie.startswith("__Host-cm_delta_session=") and "Secure" in cookie and "Path=/" in cookie


@pytest.mark.parametrize(
    ("origin", "form_token"),
    [
        ("https://elsewhere.example", None),
        ("null", None),
        ("", None),
        (None, ""),
        (None, "wrong"),
        (None, "of another session"),
    ],
)
def test_a_form_of_another_page_is_refused(
    origin: str | None,
    form_token: str | None,
    owner: Connection,
    open_browser: Callable[..., Browser],
) -> None:
    page, other = open_browser("owner"), open_browser("owner")
    own, of_other = page.form_token(), other.form_token()
    sent = {None: own, "of another session": of_other}.get(form_token, form_token)
    headers = {"Origin": page.origin if origin is None else origin}
    for action in (SIGN_OUT, SIGN_IN, "/page/approvals/none/reject"):
        answer = page.client.post(action, data={"form_token": sent, "reason": "x"}, headers=headers)
        assert answer.status_code == 403 and "was not sent from this page" in answer.text
    assert page.get("/").status_code == 200
    assert page.client.post(SIGN_OUT, data={"form_token": own}, headers={"Origin": page.origin}).status_code == 303


def test_a_session_ends_with_its_token_and_with_its_time(server_settings: ServerSettings) -> None:
    clock = Clock()
    with live_server(server_settings, now_ms=clock) as server:
        with server.catalog() as catalog:
            revoked, lasting = catalog.tokens.create_token("ana"), catalog.tokens.create_token("ana")
        with browser(server.url, secret=revoked.secret) as first, browser(server.url, secret=lasting.secret) as second:
            with server.catalog() as catalog:
                catalog.tokens.revoke_token(revoked.token.token_id)
            answer = first.get("/")
            assert answer.status_code == 401 and "was revoked" in answer.text and SIGN_IN in answer.text
            clock.now += SESSION_MS - 1
            assert second.get("/").status_code == 200
            clock.now += 1
            assert second.get("/").headers["location"] == SIGN_IN


def test_a_changed_cookie_is_no_session(open_browser: Callable[..., Browser], owner: Connection) -> None:
    page = open_browser("owner")
    content, _, signature = page.cookie.partition(".")
    for forged in (f"{content}.{signature[::-1]}", f"{content[::-1]}.{signature}", content, "x"):
        answer = httpx.get(f"{page.origin}/", cookies={"cm_delta_session": forged})
        assert (answer.status_code, answer.headers["location"]) == (303, SIGN_IN)
    assert httpx.get(f"{page.origin}/", cookies={"cm_delta_session": page.cookie}).status_code == 200


def test_processes_with_one_key_share_their_sessions(server_settings: ServerSettings) -> None:
    """Without a key in the settings, each start of the server ends all sessions."""
    other_start = ServerSettings(catalog=server_settings.catalog, warehouse=server_settings.warehouse)
    assert server_settings.session_key not in repr(server_settings)
    assert pickle.loads(pickle.dumps(server_settings)) == server_settings  # So a worker gets them.
    with (
        live_server(server_settings) as first,
        live_server(server_settings) as second,
        live_server(other_start) as new,
        browser(first.url, secret=first.token_for("ana")) as page,
    ):
        for server, status in ((second, 200), (new, 303)):
            answer = httpx.get(f"{server.url}/", cookies={"cm_delta_session": page.cookie})
            assert answer.status_code == status
