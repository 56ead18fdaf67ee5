"""Where a chaos run keeps its files: a directory, or a bucket of a server behind a proxy that makes requests fail."""

import random
import typing
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.object_stores import (
    AZURE_ACCOUNT,
    RANGES_WITHOUT_CHECKSUM,
    azure_connection_string,
    azurite_server,
    gcs_options,
    gcs_server,
    gofakes3_server,
    make_bucket,
    s3_options,
)
from tests.support.s3_server import s3_server

_FAULTY = 0.03
"""Share of the requests that fail."""

_FAULTS = {
    Fault(effect=Effect.ANSWER_BEFORE): 4,
    Fault(effect=Effect.ANSWER_BEFORE, status=500, code="InternalError"): 2,
    Fault(effect=Effect.ANSWER_BEFORE, status=429, code="TooManyRequests"): 2,
    Fault(effect=Effect.ANSWER_AFTER, status=500, code="InternalError"): 4,
    Fault(effect=Effect.RESET_BEFORE): 4,
    Fault(effect=Effect.RESET_AFTER): 4,
    Fault(effect=Effect.TRUNCATED): 4,
    Fault(effect=Effect.SILENT_AFTER): 1,
}
"""Relative frequency of the faults."""


class Storage(typing.Protocol):
    """Attributes: ``location``: the warehouse; ``server`` and ``proxy``: addresses of the store's server, empty without one."""

    location: str
    server: str
    proxy: str

    def cut(self) -> None:
        """Cut the connections to the store."""

    def num_faults(self) -> int:
        """How many requests have failed so far."""

    def calm(self) -> dict[str, int]:
        """End the faults; return how many of each kind there were."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Local files have no requests that could fail."""

    location: str
    server: str = ""
    proxy: str = ""

    def cut(self) -> None: ...

    def num_faults(self) -> int:
        return 0

    def calm(self) -> dict[str, int]:
        return {}


@dataclass(slots=True)
class Bucket:
    """A bucket behind the proxy ``faults``."""

    location: str
    server: str
    faults: FaultProxy
    connections_cut: int = 0

    @property
    def proxy(self) -> str:
        return self.faults.url

    def cut(self) -> None:
        self.connections_cut += self.faults.cut()

    def num_faults(self) -> int:
        return sum(list(self.faults.injected.values()))  # A list: other threads add to it.

    def calm(self) -> dict[str, int]:
        self.faults.chance = None
        counts = {f"store {name}": number for name, number in self.faults.injected.items()}
        requests = len(self.faults.requests)
        return {
            **counts,
            "store requests": requests,
            "store connections cut": self.connections_cut,
        }


@contextmanager
def storage_of(kind: str, directory: Path, *, seed: int) -> Iterator[Storage]:
    """``local``, ``s3``, ``gofakes3``, ``azure`` or ``gcs``. Requests to the store's server fail until ``calm`` is called."""
    if kind == "local":
        yield Directory(f"file://{directory}/warehouse")
        return
    chance = random.Random(seed)

    def fault_of(method: str, path: str) -> Fault | None:
        if chance.random() >= _FAULTY:
            return None
        return chance.choices(list(_FAULTS), weights=list(_FAULTS.values()))[0]

    with _server(kind) as server, fault_proxy(server) as proxy:
        proxy.seconds = 3.0  # Longer than the processes wait for an answer.
        bucket = f"chaos-{uuid.uuid4().hex}"
        scheme = _SCHEMES[kind]
        make_bucket(FsspecStore(scheme, options=options_of(f"{scheme}://", server)), bucket, public=True)
        proxy.chance = fault_of
        yield Bucket(f"{scheme}://{bucket}/warehouse", server, proxy)


_SCHEMES = {"s3": "s3", "gofakes3": "s3", "azure": "az", "gcs": "gs"}
WAREHOUSES = ("local", *_SCHEMES)


def options_of(location: str, server: str) -> dict[str, object]:
    """Storage options for a location on the server."""
    match location.partition("://")[0]:
        case "az":
            return {"connection_string": azure_connection_string(server)}
        case "gs":
            return gcs_options(server)
    return {**s3_options(server), "config_kwargs": {"read_timeout": 2, **RANGES_WITHOUT_CHECKSUM}}


def object_url(location: str, server: str) -> str:
    """Where the server returns the object at a location to anybody."""
    scheme, _, path = location.partition("://")
    bucket, _, key = path.partition("/")
    match scheme:
        case "az":
            return f"{server}/{AZURE_ACCOUNT}/{urllib.parse.quote(path)}"
        case "gs":
            return f"{server}/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}?alt=media"
    return f"{server}/{urllib.parse.quote(path)}"


@contextmanager
def _server(kind: str) -> Iterator[str]:
    match kind:
        case "azure":
            with azurite_server() as connection_string:
                yield connection_string.rpartition("BlobEndpoint=")[2].rpartition("/")[0]
        case "gcs":
            with gcs_server() as url:
                yield url
        case "gofakes3":
            with gofakes3_server() as url:
                yield url
        case _:
            with s3_server() as server:
                yield server.endpoint
