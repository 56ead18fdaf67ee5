"""The routes of the page. The application has them after all others, so that no other request is compared with them."""

from fastapi import APIRouter
from fastapi.responses import Response

from cm_delta_dagster.server.markup.rendering import STYLE_PATH, style_sheet
from cm_delta_dagster.server.page import approvals, lists, signing_in, tables

_router = APIRouter(include_in_schema=False)

ROUTERS = (tables.router, lists.router, approvals.router, signing_in.router, _router)


@_router.get(STYLE_PATH)
def style() -> Response:
    """The style sheet, for everybody."""
    return style_sheet()
