"""Sessions of the page: a cookie that says whose token a browser was signed in with, and until when, signed by the server.

The cookie does not have the secret of the token, not even encrypted: who steals it has the rights of the token for some hours and
on the page alone, and cannot call the APIs. It has the id of the token, which each request looks up, so that a session ends when
its token is revoked or expires. A session that a JWT began has its principal and its roles, and ends with the JWT. Server and
database keep nothing about sessions: any process that has the same key serves them. The price is that a copy of a cookie works
until its time is over, even after its browser has signed out; revoke the token then.

The key is not made from what the database has: who can read the database finds digests of tokens, and must not be able to sign in.

Forms have a second signature of the same session, which a page of another server cannot read. The form of the sign-in has one too,
of a session without a token: otherwise another page could sign a browser in with its own token.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import astuple, dataclass

from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.server.identity.jwt_callers import JwtCaller

SESSION_MS = 8 * 60 * 60 * 1000
"""How long a session lasts at most, in milliseconds."""

MAX_COOKIE = 3800
"""The longest value of a cookie that is begun: browsers keep 4096 characters, with the name and the attributes."""

_COOKIE, _FORM = b"cookie:", b"form:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSession:
    """A session.

    Attributes:
        caller: the id of the token that signed in, or whom the JWT named that did; None before.
        expires_ms: epoch milliseconds, the catalog's clock.
        nonce: differs for each session.
    """

    caller: str | JwtCaller | None
    expires_ms: int
    nonce: str

    @classmethod
    def begin(cls, caller: AccessToken | JwtCaller | None, *, now_ms: int) -> "PageSession":
        """A new session; without a caller one that can sign in."""
        expires_ms = now_ms + SESSION_MS
        if isinstance(caller, JwtCaller):
            expires_ms = min(expires_ms, caller.expires_ms)
        kept = caller.token_id if isinstance(caller, AccessToken) else caller
        return cls(caller=kept, expires_ms=expires_ms, nonce=secrets.token_urlsafe(16))


class SessionSigner:
    """Signs sessions and forms.

    Args:
        key: secret of the servers that share their sessions.
    """

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def cookie(self, session: PageSession) -> str:
        """The value of the cookie."""
        content = _content(session)
        return f"{_text(content)}.{self._signature(_COOKIE, content)}"

    def session(self, cookie: str, *, now_ms: int) -> PageSession | None:
        """The session of a cookie; None if its signature is wrong or its time is over."""
        encoded, _, signature = cookie.partition(".")
        try:
            content = base64.urlsafe_b64decode(f"{encoded}==")
        except (binascii.Error, ValueError):
            return None
        if not _is_equal(signature, self._signature(_COOKIE, content)):
            return None
        kept, expires_ms, nonce = json.loads(content)
        caller = _jwt_caller(*kept) if isinstance(kept, list) else kept
        session = PageSession(caller=caller, expires_ms=expires_ms, nonce=nonce)
        return session if now_ms < session.expires_ms else None

    def form_token(self, session: PageSession) -> str:
        """What a form of the session has."""
        return self._signature(_FORM, _content(session))

    def is_form_token(self, session: PageSession, token: str) -> bool:
        """Whether the form was made for the session."""
        return _is_equal(token, self.form_token(session))

    def _signature(self, purpose: bytes, content: bytes) -> str:
        return _text(hmac.new(self._key, purpose + content, hashlib.sha256).digest())


def _content(session: PageSession) -> bytes:
    caller = astuple(session.caller) if isinstance(session.caller, JwtCaller) else session.caller
    return json.dumps([caller, session.expires_ms, session.nonce]).encode()


def _jwt_caller(principal: str, roles: list[str], expires_ms: int) -> JwtCaller:
    """The caller of a list that :func:`_content` has made."""
    return JwtCaller(principal=principal, roles=tuple(roles), expires_ms=expires_ms)


def _text(content: bytes) -> str:
    """Without the padding, which a cookie would have to quote."""
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _is_equal(text: str, expected: str) -> bool:
    """In a time that does not depend on the texts."""
    return hmac.compare_digest(text.encode(errors="replace"), expected.encode())
