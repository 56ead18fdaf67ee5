"""An S3 server in this process that notes its requests."""

import io
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(slots=True)
class S3Server:
    """A running server; ``requests`` has the method and the key of each request, a copy by the server as ``COPY``.

    Attributes:
        signers: bucket and access key of all requests.
    """

    endpoint: str
    requests: list[tuple[str, str]] = field(default_factory=list)
    signers: set[tuple[str, str]] = field(default_factory=set)

    def copies(self) -> list[str]:
        return [key for method, key in self.requests if method == "COPY"]


def body_of(environ: Any) -> bytes:
    """The whole body of a request."""
    length = environ.get("CONTENT_LENGTH")
    if environ.get("wsgi.input_terminated"):
        return bytes(environ["wsgi.input"].read())
    return bytes(environ["wsgi.input"].read(int(length))) if length else b""


@contextmanager
def s3_server() -> Iterator[S3Server]:
    moto = pytest.importorskip("moto.moto_server.werkzeug_app")
    serving = pytest.importorskip("werkzeug.serving")
    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    one_at_a_time = (
        threading.Lock()
    )  # Of a conditional write moto looks and then creates, and lets others in between; S3 does not.

    def serve(environ: Any, start_response: Any) -> list[bytes]:
        method = "COPY" if "HTTP_X_AMZ_COPY_SOURCE" in environ else environ["REQUEST_METHOD"]
        # Before the lock: the body of a client that was killed never ends.
        environ["wsgi.input"] = io.BytesIO(body_of(environ))
        with one_at_a_time:
            running.requests.append((method, environ["PATH_INFO"]))
            signed = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
            if signed is not None:
                running.signers.add((environ["PATH_INFO"].split("/")[1], signed[1]))
            return list(application(environ, start_response))

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = serving.make_server("127.0.0.1", 0, serve, threaded=True)
    running = S3Server(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield running
    server.shutdown()
    thread.join()
