"""The id of each request, the access log, and the answer to an error that no handler expects.

The access log has a line of JSON for each request, in the logger ``cm_delta_dagster.server.access``.
"""

import json
import logging
import re
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cm_delta_dagster.server.errors import answer, unexpected_failure
from cm_delta_dagster.server.wires import wire_of

REQUEST_ID = "x-request-id"
_ACCESS = logging.getLogger("cm_delta_dagster.server.access")
_LOG = logging.getLogger(__name__)
_USABLE_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)


class RequestLog:
    """Gives each request an id, its own of the header ``X-Request-Id`` or a new one, which the answer has in the same header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(scope)
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID.encode(), request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            _LOG.exception("The request %s failed: %s %r", request_id, scope["method"], scope["path"])
            if status:
                raise  # The client has a part of an answer; only a closed connection shows that the rest is missing.
            response = answer(unexpected_failure(request_id), wire_of(scope["path"]))
            await response(scope, receive, send_with_id)
        finally:
            _ACCESS.info(_line(scope, status, time.perf_counter() - started))


def _request_id(scope: Scope) -> str:
    """The id that the client gives, if it can stand in a log, or else a new one."""
    for name, value in scope["headers"]:
        text = value.decode("latin-1")
        if name == REQUEST_ID.encode() and _USABLE_ID.fullmatch(text):
            return str(text)
    return str(uuid.uuid4())


def _line(scope: Scope, status: int, seconds: float) -> str:
    state: dict[str, Any] = scope["state"]
    client = scope.get("client")
    facts = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": state["request_id"],
        "method": scope["method"],
        "path": scope["path"],
        "status": status or None,
        "ms": round(seconds * 1000, 2),
        "principal": state.get("principal"),
        "token_id": state.get("token_id"),
        "client": client[0] if client else None,
    }
    if "metrics" in state:  # Of the report of a client.
        facts["metrics"] = state["metrics"]
    return json.dumps(facts)
