"""``HttpCatalog``: the interfaces of the catalog over the HTTP API of ``cm-delta serve``.

The parts are made from the table of operations. Three methods are not on the wire. ``commit_lock`` acquires nothing, so that a
writer that had a conflict backs off. ``back_up`` names the command to run at the server. ``now_ms`` is the server's clock.
"""

import functools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from cm_delta_dagster.catalog.access_control import AccessControl
from cm_delta_dagster.catalog.application_ids import ApplicationIds
from cm_delta_dagster.catalog.audit import AuditLog
from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_feed import CommitFeed
from cm_delta_dagster.catalog.commit_policies import CommitPolicies
from cm_delta_dagster.catalog.commit_rule_registry import CommitRuleRegistry
from cm_delta_dagster.catalog.event_feed import EventFeed, checked_wait
from cm_delta_dagster.catalog.held_commits import HeldCommits
from cm_delta_dagster.catalog.leases import Leases
from cm_delta_dagster.catalog.maintenance_policies import MaintenancePolicies
from cm_delta_dagster.catalog.namespaces import NamespaceRegistry
from cm_delta_dagster.catalog.overview import CatalogOverview
from cm_delta_dagster.catalog.recovery import RecoverableCatalog
from cm_delta_dagster.catalog.rest.operations import MAX_WAIT_SECONDS, CatalogOperation, operations
from cm_delta_dagster.catalog.rest.server_connection import TOKEN_VARIABLE, ServerConnection
from cm_delta_dagster.catalog.storage_credentials import StorageCredentials
from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import CatalogIdentity
from cm_delta_dagster.catalog.tokens import Tokens
from cm_delta_dagster.catalog.version_pins import VersionPins
from cm_delta_dagster.errors import CatalogError
from cm_delta_dagster.remedies import BackUpDatabase


class HttpCatalog:
    """Implements :class:`~cm_delta_dagster.catalog.catalog.Catalog` over a server, which names the warehouse.

    Thread-safe. Close the catalog, or use it as a context manager.

    Args:
        url: ``http://host:port`` of ``cm-delta serve``.
        token: what ``cm-delta token create`` printed; by default the environment variable CM_DELTA_TOKEN.
        now_ms: clock, epoch milliseconds; by default the server's.

    Raises:
        InvalidArgumentError: the URL is malformed.
    """

    def __init__(self, url: str, token: str | None = None, *, now_ms: Callable[[], int] | None = None) -> None:
        self._token = token
        self._connection = connection = ServerConnection(url, token or os.environ.get(TOKEN_VARIABLE) or None)
        self._now_ms = now_ms
        self.registry = cast(TableRegistry, _Registry(connection))
        self.coordinator = cast(CommitCoordinator, _Coordinator(connection, now_ms or self._server_now_ms))
        self.recovery = cast(RecoverableCatalog, _Recovery(connection))
        self.namespaces = cast(NamespaceRegistry, _part("namespaces")(connection))
        self.commit_policies = cast(CommitPolicies, _part("commit_policies")(connection))
        self.commit_rules = cast(CommitRuleRegistry, _part("commit_rules")(connection))
        self.holds = cast(HeldCommits, _part("holds")(connection))
        self.maintenance_policies = cast(MaintenancePolicies, _part("maintenance_policies")(connection))
        self.leases = cast(Leases, _part("leases")(connection))
        self.feed = cast(CommitFeed, _part("feed")(connection))
        self.events = cast(EventFeed, _Events(connection))
        self.pins = cast(VersionPins, _part("pins")(connection))
        self.access = cast(AccessControl, _part("access")(connection))
        self.tokens = cast(Tokens, _part("tokens")(connection))
        self.application_ids = cast(ApplicationIds, _part("application_ids")(connection))
        self.audit_log = cast(AuditLog, _part("audit_log")(connection))
        self.overview = cast(CatalogOverview, _part("overview")(connection))
        self.storage_credentials = cast(StorageCredentials, _part("storage_credentials")(connection))

    def _server_now_ms(self) -> int:
        now_ms = self._connection.clock.now_ms()
        if now_ms is None:
            self.registry.identity()
            now_ms = self._connection.clock.now_ms()
        if now_ms is None:
            raise CatalogError(
                f"The server {self._connection.url} did not state its time. Install a server of this release."
            )
        return now_ms

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens its own connections. A token of the environment is read there again."""
        return functools.partial(HttpCatalog, self._connection.url, self._token, now_ms=self._now_ms), ()

    def __repr__(self) -> str:
        return f"HttpCatalog({self._connection.url!r})"

    def __enter__(self) -> "HttpCatalog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


class HttpPart:
    """A part of the catalog whose methods are calls of the server. Thread-safe."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.url!r})"

    def _call(self, operation: CatalogOperation, arguments: Mapping[str, Any]) -> Any:
        return operation.answer.decode(self._connection.call(operation, operation.arguments.encode(arguments)))


def _method(operation: CatalogOperation) -> Callable[..., Any]:
    """The method of a part that calls the operation."""

    @functools.wraps(operation.method)
    def call(part: HttpPart, /, *positional: Any, **named: Any) -> Any:
        return part._call(operation, operation.arguments_of(*positional, **named))

    return call


@functools.cache
def _part(name: str) -> type[HttpPart]:
    """The class of a part, with a method for each of its operations."""
    methods = {operation.name: _method(operation) for operation in operations()[name].values()}
    return type(f"Http{name.title().replace('_', '')}", (HttpPart,), methods)


class _Registry(_part("registry")):  # type: ignore[misc]  # The base is made from the table of operations.
    def identity(self) -> CatalogIdentity:
        """The identity of the server's catalog."""
        stated: CatalogIdentity = self._call(operations()["registry"]["identity"], {})
        return replace(stated, checks_warehouse=True)


class _Coordinator(_part("coordinator")):  # type: ignore[misc]  # As above.
    def __init__(self, connection: ServerConnection, now_ms: Callable[[], int]) -> None:
        super().__init__(connection)
        self.now_ms = now_ms

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        """Acquires nothing: a connection that is cut could neither keep nor release a lock. The writer backs off."""
        return nullcontext(False)


class _Recovery(_part("recovery")):  # type: ignore[misc]  # As above.
    def back_up(self, target: Path) -> int:
        """Raises CatalogError, whose remedy is to copy the database at the server."""
        raise CatalogError(
            f"The catalog of the server {self._connection.url} cannot be copied over HTTP; nothing was copied."
        ).with_remedy(BackUpDatabase(file=target.name))


class _Events(_part("events")):  # type: ignore[misc]  # As above.
    def wait_for_events(self, *, after: int, seconds: float) -> bool:
        """Wait in requests that the server answers after a bounded time. Raises InvalidArgumentError."""
        seconds = checked_wait(seconds)
        wait = operations()["events"]["wait_for_events"]
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            if self._call(wait, {"after": after, "seconds": min(left, MAX_WAIT_SECONDS)}):
                return True
            if left <= MAX_WAIT_SECONDS:
                return False
