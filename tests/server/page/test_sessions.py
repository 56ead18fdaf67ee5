"""The signature of sessions and forms."""

import base64
import json

import pytest

from cm_delta_dagster.server.page.sessions import SESSION_MS, PageSession, SessionSigner

SIGNER = SessionSigner("k" * 32)
SESSION = PageSession.begin("0123456789ab", now_ms=1000)


def test_a_cookie_is_a_session_until_its_time_is_over() -> None:
    cookie = SIGNER.cookie(SESSION)
    assert SIGNER.session(cookie, now_ms=1000 + SESSION_MS - 1) == SESSION
    assert SIGNER.session(cookie, now_ms=1000 + SESSION_MS) is None
    assert SessionSigner("o" * 32).session(cookie, now_ms=1000) is None
    assert set(cookie) <= {*map(chr, range(33, 127))} - {*'",;\\='}  # No browser and no parser changes it.


def test_every_character_of_a_cookie_counts() -> None:
    cookie = SIGNER.cookie(SESSION)
    for place, character in enumerate(cookie):
        for other in ("A", "B", ".", "é"):
            changed = f"{cookie[:place]}{other}{cookie[place + 1 :]}"
            assert other == character or SIGNER.session(changed, now_ms=1000) in (None, SESSION)
    longer = json.dumps([SESSION.token_id, SESSION.expires_ms + 1, SESSION.nonce]).encode()
    forged = f"{base64.urlsafe_b64encode(longer).decode()}.{cookie.partition('.')[2]}"
    assert SIGNER.session(forged, now_ms=1000) is None


@pytest.mark.parametrize("cookie", ["", ".", "x", "x.y", "é.é", "." * 99, "AAAA." + "A" * 43, "\udcff.x"])
def test_what_is_not_a_cookie_of_the_server_is_no_session(cookie: str) -> None:
    assert SIGNER.session(cookie, now_ms=0) is None


def test_a_form_belongs_to_its_session() -> None:
    token = SIGNER.form_token(SESSION)
    assert SIGNER.is_form_token(SESSION, token)
    assert not SIGNER.is_form_token(PageSession.begin(SESSION.token_id, now_ms=1000), token)
    for wrong in ("", token[:-1], SIGNER.cookie(SESSION).partition(".")[2], "é"):
        assert not SIGNER.is_form_token(SESSION, wrong)
