"""Runs the server: one process, or a process that starts several and stops them."""

import contextlib
import socket
from functools import partial
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.server.app import create_app
from cm_delta_dagster.server.http_protocol import HttpProtocol
from cm_delta_dagster.server.settings import ServerSettings

_STOP_SECONDS = 30
_KEEP_ALIVE_SECONDS = 75
"""Longer than the 60 seconds after which balancers close idle connections: otherwise they send requests to closed ones."""
_HEALTH_SECONDS = 60
"""A worker that does not answer its parent for so long is replaced; on a loaded machine seconds are normal."""
_MAX_HEAD_BYTES = 64 * 1024

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(message)s"},
        "text": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
    },
    "handlers": {
        "access": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "formatter": "line"},
        "errors": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "text"},
    },
    "loggers": {
        "cm_delta_dagster.server.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
        "cm_delta_dagster": {"handlers": ["errors"], "level": "INFO"},
        "uvicorn": {"handlers": ["errors"], "level": "WARNING", "propagate": False},
    },
}
"""The access log on standard output, a line of JSON for each request; the rest on standard error."""


def listening_socket(settings: ServerSettings) -> socket.socket:
    """The socket of the server. Raises InvalidArgumentError if it cannot listen there."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidArgumentError(
            f"The server cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}."
        ) from error


def url_of(settings: ServerSettings, listening: socket.socket) -> str:
    """Where clients find the server."""
    scheme = "http" if settings.tls_certificate is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listening.getsockname()[1]}"


def prepare_catalog(settings: ServerSettings) -> None:
    """Create the catalog if there is none, and migrate an older one, before processes do so concurrently. Raises CatalogError."""
    with SqlCatalog(settings.catalog, warehouse=settings.warehouse) as catalog:
        catalog.registry.identity()


def serve(settings: ServerSettings, listening: socket.socket) -> None:
    """Serve until the process gets SIGTERM or SIGINT; requests that run then have half a minute to end."""
    config = uvicorn.Config(
        partial(create_app, settings),
        factory=True,
        workers=settings.workers,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        http=HttpProtocol,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        ws="none",
        lifespan="on",
        log_config=LOGGING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_worker_healthcheck=_HEALTH_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    with contextlib.suppress(KeyboardInterrupt):
        if settings.workers > 1:
            Multiprocess(config, sockets=[listening]).run()
        else:
            uvicorn.Server(config).run(sockets=[listening])
