"""Where a chaos run keeps its files: a directory, or a bucket of an S3 server behind a proxy that makes requests fail."""

import random
import typing
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.object_stores import make_bucket, s3_options
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
    """Attributes: ``location``: the warehouse; ``server`` and ``proxy``: addresses of the S3 server, empty without one."""

    location: str
    server: str
    proxy: str

    def cut(self) -> None:
        """Cut the connections to the store."""

    def calm(self) -> dict[str, int]:
        """End the faults; return how many of each kind there were."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Local files have no requests that could fail."""

    location: str
    server: str = ""
    proxy: str = ""

    def cut(self) -> None: ...

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

    def calm(self) -> dict[str, int]:
        self.faults.chance = None
        counts = {f"S3 {name}": number for name, number in self.faults.injected.items()}
        requests = len(self.faults.requests)
        return {
            **counts,
            "S3 faults": sum(counts.values()),
            "S3 requests": requests,
            "S3 connections cut": self.connections_cut,
        }


@contextmanager
def storage_of(kind: str, directory: Path, *, seed: int) -> Iterator[Storage]:
    """``local`` or ``s3``. The S3 server runs in this process; its requests fail until ``calm`` is called."""
    if kind == "local":
        yield Directory(f"file://{directory}/warehouse")
        return
    chance = random.Random(seed)

    def fault_of(method: str, path: str) -> Fault | None:
        if chance.random() >= _FAULTY:
            return None
        return chance.choices(list(_FAULTS), weights=list(_FAULTS.values()))[0]

    with s3_server() as server, fault_proxy(server.endpoint) as proxy:
        proxy.seconds = 3.0  # Longer than the processes wait for an answer.
        bucket = f"chaos-{uuid.uuid4().hex}"
        make_bucket(FsspecStore("s3", options=s3_options(server.endpoint)), bucket)
        proxy.chance = fault_of
        yield Bucket(f"s3://{bucket}/warehouse", server.endpoint, proxy)
