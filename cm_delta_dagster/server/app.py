"""The application: the routes of all APIs over one catalog."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.server import docs_page, errors, health
from cm_delta_dagster.server.identity.jwt_callers import JwtVerifier
from cm_delta_dagster.server.limits import RequestLimits
from cm_delta_dagster.server.native import routes as native
from cm_delta_dagster.server.page import routes as page
from cm_delta_dagster.server.rates import RateLimit
from cm_delta_dagster.server.request_log import RequestLog
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.storage_credentials import ConfiguredIssuer
from cm_delta_dagster.server.table_access import TableAccess
from cm_delta_dagster.server.token_uses import TokenUses
from cm_delta_dagster.server.unity import routes as unity
from cm_delta_dagster.server.wires import wire_of
from cm_delta_dagster.version import __version__

_LOG = logging.getLogger(__name__)


def create_app(settings: ServerSettings, *, now_ms: Callable[[], int] | None = None) -> FastAPI:
    """The application of one server process, which opens the catalog at its first request and closes it at the end.

    Args:
        now_ms: clock of the catalog, epoch milliseconds; by default that of its database.

    Raises:
        InvalidArgumentError: the URL of the catalog or the warehouse is malformed.
    """
    catalog = SqlCatalog(
        settings.catalog,
        warehouse=settings.warehouse,
        now_ms=now_ms,
        principal=settings.principal,
        issuer=ConfiguredIssuer(settings.storage_credentials),
    )
    tables = TableAccess.open(settings, catalog)
    token_uses = TokenUses(catalog)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tables.publication.start()
        yield
        tables.close()
        token_uses.close()
        catalog.close()

    app = FastAPI(title="cm-delta-dagster", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.settings, app.state.catalog, app.state.token_uses = settings, catalog, token_uses
    provider = settings.identity_provider
    app.state.identity = None if provider is None else JwtVerifier(provider)
    app.state.tables, app.state.rates = tables, RateLimit(settings.max_requests_per_minute)
    app.include_router(docs_page.router)
    app.include_router(health.router)
    app.include_router(native.router)
    for router in (*unity.ROUTERS, *page.ROUTERS):
        app.include_router(router)
    app.add_exception_handler(CmDeltaError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_refusal)
    app.add_exception_handler(RequestValidationError, _answer_malformed)
    app.add_middleware(RequestLimits, settings=settings)
    app.add_middleware(RequestLog)  # The last one is the outer one.
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CmDeltaError)
    failure = errors.failure_of_error(error)
    if failure.kind.status >= 500:
        _LOG.warning("The request %s failed: %s", request.state.request_id, error)
    return errors.answer(failure, wire_of(request.url.path))


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    failure = errors.failure_of_status(error.status_code, str(error.detail))
    return errors.answer(failure, wire_of(request.url.path), headers=error.headers)


async def _answer_malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
    message = f"The request is malformed: {'; '.join(faults)}."
    if not _is_json(request) and any(fault["loc"][:1] == ("body",) for fault in error.errors()):
        content_type = repr(request.headers["content-type"][:100]) if "content-type" in request.headers else "missing"
        message = (
            f"The content type of the request is {content_type}: send the header 'Content-Type: application/json'."
        )
    failure = errors.failure_of_status(400, message)
    return errors.answer(failure, wire_of(request.url.path))


def _is_json(request: Request) -> bool:
    """Whether the content type is one whose bodies are decoded."""
    kind, _, subtype = request.headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))
