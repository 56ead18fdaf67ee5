"""An S3 server for benchmarks: moto in a process of its own, which answers each request after a latency and notes it.

``python -m benchmarks.s3_server`` prints its address. The latency is set and the record is read over HTTP, see
:class:`S3Process`.
"""

import json
import logging
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_CONTROL = "/-bench-/"


@dataclass(slots=True)
class _Server:
    application: Any
    latency_s: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    # moto's tables in memory are not made for concurrent changes.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(_CONTROL):
            return [self._control(path.removeprefix(_CONTROL), start_response)]
        begin = time.time()
        if self.latency_s:
            time.sleep(self.latency_s)
        method = "COPY" if "HTTP_X_AMZ_COPY_SOURCE" in environ else environ["REQUEST_METHOD"]
        with self.lock:
            answer = list(self.application(environ, start_response))
            self.requests.append(
                {"method": method, "path": path, "query": environ["QUERY_STRING"], "begin": begin, "end": time.time()}
            )
        return answer

    def _control(self, command: str, start_response: Any) -> bytes:
        name, _, value = command.partition("/")
        answer = b""
        if name == "latency":
            self.latency_s = float(value)
        elif name == "record":
            answer = json.dumps(self.requests).encode()
            self.requests.clear()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return answer


class S3Process:
    """A running server. Stop it with :meth:`close`.

    Attributes:
        endpoint: its address.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.s3_server"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def create_bucket(endpoint: str, bucket: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()


def set_latency(endpoint: str, seconds: float) -> None:
    """Let each request wait so long before the server serves it."""
    urllib.request.urlopen(f"{endpoint}{_CONTROL}latency/{seconds}").close()


def take_record(endpoint: str) -> list[dict[str, Any]]:
    """Requests since the last call, in the order of their ends: method, path, query, begin and end in epoch seconds."""
    with urllib.request.urlopen(f"{endpoint}{_CONTROL}record") as answer:
        return list(json.loads(answer.read()))


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    server = make_server("127.0.0.1", 0, _Server(DomainDispatcherApplication(create_backend_app)), threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
