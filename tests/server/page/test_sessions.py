"""The signature of sessions and forms."""

import base64
import json

import pytest

from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.server.identity.jwt_callers import JwtCaller
from cm_delta_dagster.server.page.sessions import SESSION_MS, PageSession, SessionSigner

SIGNER = SessionSigner("k" * 32)
TOKEN = AccessToken(token_id="0123456789ab", principal="ana", created_ms=0)
SESSION = PageSession.begin(TOKEN, now_ms=1000)


def test_a_cookie_is_a_session_until_its_time_is_over() -> None:
    cookie = SIGNER.cookie(SESSION)
    assert SIGNER.session(cookie, now_ms=1000 + SESSION_MS - 1) == SESSION
    assert SIGNER.session(cookie, now_ms=1000 + SESSION_MS) is None
    assert SessionSigner("o" * 32).session(cookie, now_ms=1000) is None
    assert set(cookie) <= {*map(chr, range(33, 127))} - {*'",;\\='}  # No browser and no parser changes it.


def test_a_session_of_a_jwt_has_its_caller_and_ends_with_it() -> None:
    caller = JwtCaller(principal="ana", roles=("a,b", "ünï"), expires_ms=5000)
    session = PageSession.begin(caller, now_ms=1000)
    cookie = SIGNER.cookie(session)
    assert SIGNER.session(cookie, now_ms=4999) == session and session.caller == caller
    assert SIGNER.session(cookie, now_ms=5000) is None
    assert SIGNER.is_form_token(session, SIGNER.form_token(session))
    lasting = JwtCaller(principal="ana", roles=(), expires_ms=10**15)
    assert PageSession.begin(lasting, now_ms=1000).expires_ms == 1000 + SESSION_MS


def test_every_character_of_a_cookie_counts() -> None:
    cookie = SIGNER.cookie(SESSION)
    for place, character in enumerate(cookie):
        for other in ("A", "B", ".", "é"):
            changed = f"{cookie[:place]}{other}{cookie[place + 1 :]}"
            assert other == character or SIGNER.session(changed, now_ms=1000) in (None, SESSION)
    longer = json.dumps([SESSION.caller, SESSION.expires_ms + 1, SESSION.nonce]).encode()
    forged = f"{base64.urlsafe_b64encode(longer).decode()}.{cookie.partition('.')[2]}"
    assert SIGNER.session(forged, now_ms=1000) is None


@pytest.mark.parametrize("cookie", ["", ".", "x", "x.y", "é.é", "." * 99, "AAAA." + "A" * 43, "\udcff.x"])
def test_what_is_not_a_cookie_of_the_server_is_no_session(cookie: str) -> None:
    assert SIGNER.session(cookie, now_ms=0) is None


def test_a_form_belongs_to_its_session() -> None:
    token = SIGNER.form_token(SESSION)
    assert SIGNER.is_form_token(SESSION, token)
    assert not SIGNER.is_form_token(PageSession.begin(TOKEN, now_ms=1000), token)
    for wrong in ("", token[:-1], SIGNER.cookie(SESSION).partition(".")[2], "é"):
        assert not SIGNER.is_form_token(SESSION, wrong)
