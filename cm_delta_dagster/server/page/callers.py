"""Who looks at the page: the principal of the token that its session was signed in with. And whose form a request has.

A form is taken only from the page itself: the header ``Origin`` names this server, and the form has the token of the session.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.errors import NotAuthenticatedError
from cm_delta_dagster.server.auth import catalog_for
from cm_delta_dagster.server.identity.jwt_callers import JwtCaller
from cm_delta_dagster.server.markup.rendering import rendered
from cm_delta_dagster.server.page.sessions import SESSION_MS, PageSession, SessionSigner

SIGN_IN = "/page/sign-in"
FORM_TOKEN = "form_token"
_COOKIE = "cm_delta_session"
_MAX_FIELDS = 20


@dataclass(frozen=True, kw_only=True)
class PageCaller:
    """A browser that is signed in.

    Attributes:
        catalog: for the calls of the principal, within the limits of the token.
        proven: the token of the catalog, or whom a JWT names.
        form_token: for the forms of the answer.
    """

    catalog: SqlCatalog
    proven: AccessToken | JwtCaller
    form_token: str

    @property
    def read_only(self) -> bool:
        """Whether the caller may change nothing."""
        return isinstance(self.proven, AccessToken) and self.proven.read_only

    @property
    def proof(self) -> str:
        """What the session was signed in with, and the roles that a JWT names."""
        if isinstance(self.proven, AccessToken):
            return f"Token {self.proven.token_id}"
        return f"Roles: {', '.join(self.proven.roles) or 'none'}"

    def scope(self, asked: str) -> str:
        """The scope of a list: what is asked for, or else that of the token; empty for the whole catalog."""
        of_token = self.proven.scope if isinstance(self.proven, AccessToken) else WHOLE_CATALOG
        return asked.strip() or ("" if of_token == WHOLE_CATALOG else of_token)

    def show(self, template: str, **values: Any) -> HTMLResponse:
        """The answer with a template for this caller."""
        return rendered(template, {**values, "caller": self})


def signer_of(request: Request) -> SessionSigner:
    """What signs the sessions of the server."""
    return SessionSigner(request.app.state.settings.session_key)


def now_of(request: Request) -> int:
    """The catalog's clock."""
    catalog: SqlCatalog = request.app.state.catalog
    return catalog.coordinator.now_ms()


def session_of(request: Request) -> PageSession | None:
    """The session of the request's cookie; None without a valid one."""
    cookie = request.cookies.get(_cookie_name(request))
    return None if cookie is None else signer_of(request).session(cookie, now_ms=now_of(request))


def keep_session(request: Request, answer: Response, session: PageSession) -> None:
    """Let the browser send the session with its next requests to this server, and with no request of another page."""
    answer.set_cookie(
        _cookie_name(request),
        signer_of(request).cookie(session),
        max_age=SESSION_MS // 1000,
        secure=_is_encrypted(request),
        httponly=True,
        samesite="strict",
    )


def end_session(request: Request, answer: Response) -> None:
    """Let the browser forget the session."""
    answer.delete_cookie(_cookie_name(request), secure=_is_encrypted(request), httponly=True, samesite="strict")


def _cookie_name(request: Request) -> str:
    """With the prefix, a browser takes the cookie from this server only, and over TLS only."""
    return f"__Host-{_COOKIE}" if _is_encrypted(request) else _COOKIE


def _is_encrypted(request: Request) -> bool:
    """Whether the browser has a connection with TLS, to this server or to a proxy before it.

    Who forges the header of the proxy only gets cookies that its own browser does not send.
    """
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"


def page_caller(request: Request) -> PageCaller:
    """The caller of the request. A browser that is not signed in is sent to the form. Raises NotAuthenticatedError."""
    session = session_of(request)
    if session is None or session.caller is None:
        if request.method == "GET":
            raise HTTPException(303, "You are not signed in.", headers={"Location": SIGN_IN})
        raise NotAuthenticatedError(
            "You are not signed in, or the session has ended. Nothing was changed. Sign in again."
        )
    caller = session.caller
    if isinstance(caller, str):
        catalog: SqlCatalog = request.app.state.catalog
        proven: AccessToken | JwtCaller = catalog.tokens.token_in_use(caller)
    elif request.app.state.identity is None:
        raise NotAuthenticatedError("The server has no identity provider any more. Nothing was changed. Sign in again.")
    else:
        proven = caller
    return PageCaller(
        catalog=catalog_for(request, proven), proven=proven, form_token=signer_of(request).form_token(session)
    )


async def _body_of(request: Request) -> bytes:
    return await request.body()


def posted_form(request: Request, body: Annotated[bytes, Depends(_body_of)]) -> Mapping[str, str]:
    """The fields of a form of this page. Raises HTTPException for one that another page may have sent."""
    session = session_of(request)
    fields = _fields(body)
    is_own = session is not None and signer_of(request).is_form_token(session, fields.get(FORM_TOKEN, ""))
    if not is_own or not _is_same_origin(request):
        raise HTTPException(
            403,
            "The form was not sent from this page, or its session has ended. Nothing was changed. Open the page again and "
            "repeat what you did.",
        )
    return fields


def _fields(body: bytes) -> dict[str, str]:
    """The last value of each field; none for what is not a form."""
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}


def _is_same_origin(request: Request) -> bool:
    """Whether the browser states this server as the origin. Browsers state it for every form, so that none is refused."""
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")


SignedIn: TypeAlias = Annotated[PageCaller, Depends(page_caller)]
"""The type of a handler's parameter that is the caller."""

PostedForm: TypeAlias = Annotated[Mapping[str, str], Depends(posted_form)]
"""The type of a handler's parameter that is the form of a request; a handler of a form has it."""
