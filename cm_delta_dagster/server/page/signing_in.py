"""Signing in with a token, and signing out."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from cm_delta_dagster.errors import NotAuthenticatedError
from cm_delta_dagster.server.auth import catalog_for, proven_caller
from cm_delta_dagster.server.markup.rendering import rendered
from cm_delta_dagster.server.page.callers import (
    SIGN_IN,
    PostedForm,
    end_session,
    keep_session,
    now_of,
    session_of,
    signer_of,
)
from cm_delta_dagster.server.page.sessions import MAX_COOKIE, PageSession

router = APIRouter(include_in_schema=False)


@router.get(SIGN_IN)
def sign_in_form(request: Request) -> HTMLResponse:
    """The form."""
    return _form(request)


@router.post(SIGN_IN)
def sign_in(request: Request, form: PostedForm) -> Response:
    """Begin a session with the token of the form, or show the form again."""
    try:
        caller = proven_caller(request, form.get("token", "").strip())
    except NotAuthenticatedError as error:
        return _form(request, message=error.message, status=401)
    catalog_for(request, caller)  # It counts as a use.
    session = PageSession.begin(caller, now_ms=now_of(request))
    if len(signer_of(request).cookie(session)) > MAX_COOKIE:
        return _form(request, message="The token names more roles than the cookie of a session can have.", status=400)
    answer = RedirectResponse("/", 303)
    keep_session(request, answer, session)
    return answer


@router.post("/page/sign-out")
def sign_out(request: Request, form: PostedForm) -> RedirectResponse:
    """End the session in the browser, also one whose token is not valid any more."""
    answer = RedirectResponse(SIGN_IN, 303)
    end_session(request, answer)
    return answer


def _form(request: Request, **shown: Any) -> HTMLResponse:
    """The form, in a session without a token, which its answer begins if the browser has none."""
    status = shown.pop("status", 200)
    session = session_of(request)
    is_new = session is None
    if session is None:
        session = PageSession.begin(None, now_ms=now_of(request))
    values = {"message": "", **shown, "form_token": signer_of(request).form_token(session)}
    answer = rendered("sign_in.html", values, status=status)
    if is_new:
        keep_session(request, answer, session)
    return answer
