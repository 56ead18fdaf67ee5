"""The routes of the API of this package: one for each operation of the catalog, and one that describes the server.

``POST /api/cm/v1/{part}/{operation}`` takes a JSON object of the arguments and answers with the value that the method returns.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from pydantic.json_schema import GenerateJsonSchema

from cm_delta_dagster.catalog.event_feed import checked_wait
from cm_delta_dagster.catalog.rest.codec import Codec, codec_of
from cm_delta_dagster.catalog.rest.operations import (
    API_PATH,
    API_VERSION,
    API_VERSION_HEADER,
    MAX_WAIT_SECONDS,
    NOW_HEADER,
    CatalogOperation,
    operations,
)
from cm_delta_dagster.catalog.rest.server_info import ServerInfo
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import CatalogVersionError
from cm_delta_dagster.server.auth import CallerCatalog
from cm_delta_dagster.server.native.feed_wait import wait_for_event
from cm_delta_dagster.server.native.storage_checks import CheckedStorage
from cm_delta_dagster.server.path_router import PathRouter
from cm_delta_dagster.server.wires import NATIVE_PATH
from cm_delta_dagster.version import __version__

_JSON = "application/json"
_INFO: Codec[ServerInfo] = codec_of(ServerInfo)


async def _body_of(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body_of)]


def info(catalog: CallerCatalog) -> Response:
    """The release of the server, its version of the API, and the catalog that it serves."""
    identity = catalog.registry.identity()
    stated = ServerInfo(
        api_version=API_VERSION,
        release=__version__,
        catalog_id=identity.catalog_id,
        warehouse=identity.warehouse,
    )
    return _answer(catalog, _INFO.encode(stated))


def refuse_other_version(path: str) -> Response:
    """Refuse a path of another version of the API, or one that no operation has."""
    version = path.partition("/")[0]
    if version != f"v{API_VERSION}":
        raise CatalogVersionError(
            f"The server has version {API_VERSION} of the API, at {NATIVE_PATH}; the request was for another version. Nothing was "
            "changed. Install the same release at both ends."
        )
    raise HTTPException(
        404,
        "The server has no such operation; its release may be older than that of the client. Nothing was changed. Its operations "
        "are listed at /docs.",
    )


def _handler(operation: CatalogOperation) -> Callable[..., Response]:
    """The handler of one operation."""

    def call(catalog: CallerCatalog, checks: CheckedStorage, body: Body) -> Response:
        arguments = operation.arguments.decode(body or b"{}")
        if checks is not None:
            arguments = checks.checked(catalog, operation, arguments)
        answer = getattr(getattr(catalog, operation.part), operation.name)(**arguments)
        return _answer(catalog, operation.answer.encode(answer))

    return call


def _waiting_handler(operation: CatalogOperation) -> Callable[..., Any]:
    """The handler that waits for an event; no thread waits for it."""

    async def wait(catalog: CallerCatalog, body: Body) -> Response:
        arguments = operation.arguments.decode(body)
        seconds = min(max(checked_wait(arguments["seconds"]), 0.0), MAX_WAIT_SECONDS)
        occurred = await wait_for_event(catalog, after=arguments["after"], seconds=seconds)
        return _answer(catalog, operation.answer.encode(occurred))

    return wait


def _answer(catalog: SqlCatalog, body: bytes) -> Response:
    headers = {API_VERSION_HEADER: str(API_VERSION), NOW_HEADER: str(catalog.coordinator.now_ms())}
    return Response(body, media_type=_JSON, headers=headers)


def _schema(codec: Codec[Any]) -> dict[str, Any]:
    return {_JSON: {"schema": GenerateJsonSchema().generate(codec.schema)}}


def _add(router: APIRouter, operation: CatalogOperation) -> None:
    waits = str(operation) == "events.wait_for_events"
    router.add_api_route(
        f"{NATIVE_PATH}/{operation.part}/{operation.name}",
        _waiting_handler(operation) if waits else _handler(operation),
        methods=["POST"],
        operation_id=str(operation),
        summary=str(operation),
        description=operation.method.__doc__,
        tags=[operation.part],
        response_model=None,
        openapi_extra={
            "requestBody": {"required": True, "content": _schema(operation.arguments)},
            "responses": {"200": {"description": "What the operation returns.", "content": _schema(operation.answer)}},
        },
    )


def _routes() -> APIRouter:
    router = PathRouter(API_PATH)
    for part in operations().values():
        for operation in part.values():
            _add(router, operation)
    router.add_api_route(
        f"{NATIVE_PATH}/info",
        info,
        methods=["GET"],
        response_model=None,
        tags=["info"],
        openapi_extra={"responses": {"200": {"description": "The server.", "content": _schema(_INFO)}}},
    )
    router.add_api_route(
        f"{API_PATH}/{{path:path}}", refuse_other_version, methods=["GET", "POST"], include_in_schema=False
    )
    return router


router = _routes()
