"""Errors as answers: one mapper for the API of this package, one for each form of Unity Catalog's API, and one for the page.

An answer has a message and no stack trace. An error that is not one of this package gets a message that says nothing of its cause;
the log has it with the id of the request.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.responses import JSONResponse, Response

from cm_delta_dagster import errors
from cm_delta_dagster.catalog.rest import wire_errors
from cm_delta_dagster.catalog.rest.operations import API_VERSION, API_VERSION_HEADER
from cm_delta_dagster.server.markup.rendering import rendered
from cm_delta_dagster.server.request_errors import (
    NoSuchCatalogError,
    NotServedError,
    RequirementConflictError,
    TooManyRequestsError,
)
from cm_delta_dagster.server.wires import Wire


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """How errors of one class are answered.

    Attributes:
        status: of HTTP.
        delta_type: ``type`` in Unity Catalog's Delta API.
        code: ``error_code`` in Unity Catalog's older API.
    """

    status: int
    delta_type: str
    code: str


_INVALID = AnswerKind(400, "InvalidParameterValueException", "INVALID_ARGUMENT")
_CONFLICT = AnswerKind(409, "CommitVersionConflictException", "ABORTED")
_INTERNAL = AnswerKind(500, "InternalServerErrorException", "INTERNAL")
_TOO_MANY = AnswerKind(429, "TooManyRequestsException", "RESOURCE_EXHAUSTED")
_UNAVAILABLE = AnswerKind(503, "InternalServerErrorException", "UNAVAILABLE")

KINDS: Mapping[type[errors.CmDeltaError], AnswerKind] = {
    errors.InvalidArgumentError: _INVALID,
    errors.TableError: _INVALID,
    errors.TableNotFoundError: AnswerKind(404, "NoSuchTableException", "TABLE_NOT_FOUND"),
    NoSuchCatalogError: AnswerKind(404, "NoSuchCatalogException", "CATALOG_NOT_FOUND"),
    errors.NamespaceNotFoundError: AnswerKind(404, "NoSuchSchemaException", "SCHEMA_NOT_FOUND"),
    errors.VersionNotFoundError: AnswerKind(404, "NotFoundException", "NOT_FOUND"),
    errors.TableAlreadyExistsError: AnswerKind(409, "AlreadyExistsException", "TABLE_ALREADY_EXISTS"),
    errors.NamespaceAlreadyExistsError: AnswerKind(409, "AlreadyExistsException", "SCHEMA_ALREADY_EXISTS"),
    errors.NamespaceNotEmptyError: AnswerKind(409, "BadRequestException", "FAILED_PRECONDITION"),
    errors.ProtocolError: _INVALID,
    errors.CommitError: AnswerKind(400, "BadRequestException", "INVALID_ARGUMENT"),
    errors.CommitConflictError: _CONFLICT,
    RequirementConflictError: AnswerKind(409, "UpdateRequirementConflictException", "ABORTED"),
    TooManyRequestsError: _TOO_MANY,
    # Not 501: clients repeat a request after each status of 500 and above.
    NotServedError: AnswerKind(400, "BadRequestException", "UNIMPLEMENTED"),
    errors.CommitRetriesExceededError: _CONFLICT,
    errors.CommitRefusedError: AnswerKind(403, "PermissionDeniedException", "PERMISSION_DENIED"),
    errors.CommitStateUnknownError: AnswerKind(500, "CommitStateUnknownException", "INTERNAL"),
    errors.ApprovalRequiredError: AnswerKind(403, "PermissionDeniedException", "PERMISSION_DENIED"),
    errors.HoldClosedError: AnswerKind(409, "BadRequestException", "FAILED_PRECONDITION"),
    errors.HoldOutdatedError: _CONFLICT,
    errors.MaintenanceError: AnswerKind(409, "BadRequestException", "FAILED_PRECONDITION"),
    errors.MaintenanceNotPermittedError: AnswerKind(403, "PermissionDeniedException", "PERMISSION_DENIED"),
    errors.StorageError: _INTERNAL,
    errors.StoreNotSupportedError: _INVALID,
    errors.CatalogError: _INTERNAL,
    errors.FeedGapError: AnswerKind(410, "BadRequestException", "OUT_OF_RANGE"),
    errors.CatalogUnavailableError: _UNAVAILABLE,
    errors.NotAuthenticatedError: AnswerKind(401, "NotAuthorizedException", "UNAUTHENTICATED"),
    errors.PermissionDeniedError: AnswerKind(403, "PermissionDeniedException", "PERMISSION_DENIED"),
    errors.CatalogBehindStorageError: AnswerKind(409, "BadRequestException", "FAILED_PRECONDITION"),
    errors.WarehouseMismatchError: AnswerKind(409, "BadRequestException", "FAILED_PRECONDITION"),
    errors.RecoveryError: AnswerKind(409, "BadRequestException", "FAILED_PRECONDITION"),
}
"""The answer for each class of errors, and for its subclasses that are not listed."""

_OF_STATUS: Mapping[int, AnswerKind] = {
    400: AnswerKind(400, "BadRequestException", "INVALID_ARGUMENT"),
    401: AnswerKind(401, "NotAuthorizedException", "UNAUTHENTICATED"),
    403: AnswerKind(403, "PermissionDeniedException", "PERMISSION_DENIED"),
    404: AnswerKind(404, "NotFoundException", "NOT_FOUND"),
    405: AnswerKind(405, "BadRequestException", "UNIMPLEMENTED"),
    408: AnswerKind(408, "BadRequestException", "DEADLINE_EXCEEDED"),
    413: AnswerKind(413, "BadRequestException", "INVALID_ARGUMENT"),
    422: AnswerKind(400, "BadRequestException", "INVALID_ARGUMENT"),
    429: _TOO_MANY,
    501: AnswerKind(501, "NotImplementedException", "UNIMPLEMENTED"),
    503: _UNAVAILABLE,
    504: AnswerKind(504, "CommitStateUnknownException", "DEADLINE_EXCEEDED"),
}

HIDDEN = "The server failed to handle the request; its log has the cause under the request id {request_id}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request gets an error, before it has the form of an API.

    Attributes:
        error: the error of this package; None for a refusal by the server itself, such as of an unknown path.
    """

    kind: AnswerKind
    message: str
    error: errors.CmDeltaError | None = None


def failure_of_error(error: errors.CmDeltaError) -> Failure:
    """The failure for an error of this package."""
    kind = next((KINDS[base] for base in type(error).__mro__ if base in KINDS), _INTERNAL)
    return Failure(kind=kind, message=str(error), error=error)


def failure_of_status(status: int, message: str) -> Failure:
    """The failure for a refusal by the server itself."""
    default = _INTERNAL if status >= 500 else AnswerKind(status, "BadRequestException", "INVALID_ARGUMENT")
    return Failure(kind=_OF_STATUS.get(status, default), message=message)


def unexpected_failure(request_id: str) -> Failure:
    """The failure for an error that is not expected; the message does not have its cause."""
    return Failure(kind=_INTERNAL, message=HIDDEN.format(request_id=request_id))


def answer(failure: Failure, wire: Wire, *, headers: Mapping[str, str] | None = None) -> Response:
    """The answer in the form of the API."""
    sent = dict(headers or {})
    if failure.kind is _TOO_MANY:
        sent.setdefault("Retry-After", "60")
    if failure.kind.status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    if wire is Wire.PAGE:
        return _page(failure, sent)
    if wire is Wire.NATIVE:
        sent[API_VERSION_HEADER] = str(API_VERSION)
        return Response(_native(failure), failure.kind.status, headers=sent, media_type="application/json")
    return JSONResponse(_FORMS[wire](failure), status_code=failure.kind.status, headers=sent)


def _native(failure: Failure) -> bytes:
    if failure.error is not None:
        return wire_errors.as_json(failure.error)
    return json.dumps({"error": {"kind": "", "message": failure.message}}).encode()


def _page(failure: Failure, headers: Mapping[str, str]) -> Response:
    status = failure.kind.status
    return rendered("error.html", {"message": failure.message, "status": status}, status=status, headers=headers)


def _unity_delta(failure: Failure) -> dict[str, Any]:
    kind = failure.kind
    return {"error": {"message": failure.message, "type": kind.delta_type, "code": kind.status, "stack": None}}


def _unity(failure: Failure) -> dict[str, Any]:
    code = failure.kind.code
    details = [{"@type": "google.rpc.ErrorInfo", "reason": code}]
    return {"error_code": code, "message": failure.message, "details": details}


_FORMS: Mapping[Wire, Callable[[Failure], dict[str, Any]]] = {
    Wire.UNITY_DELTA: _unity_delta,
    Wire.UNITY: _unity,
}
