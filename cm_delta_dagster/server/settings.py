"""The configuration of the server."""

import secrets
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cm_delta_dagster.server.identity.provider import IdentityProvider
from cm_delta_dagster.server.storage_credentials import PrefixCredentials


class ServerSettings(BaseModel):
    """What ``cm-delta serve`` is configured with; :mod:`~cm_delta_dagster.server.configuration` reads it.

    Attributes:
        catalog: URL of the catalog's database.
        warehouse: location of new tables.
        principal: the server itself, as which it publishes commits of clients that do not.
        storage_roots: locations below which the server reads and writes files; without any, the warehouse.
        storage_options: options of the object store.
        storage_credentials: how the server gets the credentials for files that it gives to callers, by prefix of their tables.
        identity_provider: whose JWTs callers may send beside tokens of the catalog; None for no provider.
        workers: processes that serve.
        session_key: secret that signs the sessions of the page; without one each start has another key, so that browsers sign in
            again. Servers behind one balancer have the same.
        allow_plain_http: whether other interfaces than loopback are served without TLS, e.g. behind a proxy that has it.
        max_body_bytes: the largest body of a request.
        max_json_depth: how deep arrays and objects of a body are nested at most.
        max_requests_per_minute: requests of one token in each process.
        max_concurrent_requests: requests that one process works on at the same time; others wait or are refused.
        request_seconds: after that time a request is answered with an error.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    catalog: str = Field(repr=False)
    warehouse: str | None = None
    principal: str | None = None
    storage_roots: tuple[str, ...] = ()
    storage_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    storage_credentials: tuple[PrefixCredentials, ...] = Field(default=(), repr=False)
    identity_provider: IdentityProvider | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8181, ge=0, le=65535)
    session_key: str = Field(default_factory=lambda: secrets.token_urlsafe(32), min_length=32, repr=False)
    workers: int = Field(default=1, ge=1, le=256)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allow_plain_http: bool = False
    max_body_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    max_json_depth: int = Field(default=100, ge=4, le=500)
    max_requests_per_minute: int = Field(default=60_000, ge=1)
    max_concurrent_requests: int = Field(default=200, ge=1)
    request_seconds: float = Field(default=60, gt=0)

    @property
    def roots(self) -> tuple[str, ...]:
        """The locations below which the server reads and writes files."""
        return self.storage_roots or (() if self.warehouse is None else (self.warehouse,))
