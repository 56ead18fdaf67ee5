"""``SqlCatalog``: the catalog in one SQL database. The operations are methods of its parts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.application_ids import SqlApplicationIds
from cm_delta_dagster.catalog.sql.access.audit import SqlAuditLog
from cm_delta_dagster.catalog.sql.access.grants import SqlAccessControl
from cm_delta_dagster.catalog.sql.access.storage_credentials import SqlStorageCredentials
from cm_delta_dagster.catalog.sql.access.token_limits import LimitedPart, interfaces, is_limited
from cm_delta_dagster.catalog.sql.access.tokens import SqlTokens
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.callers import CallIdentity, environment_principal
from cm_delta_dagster.catalog.sql.database.database import Database, IfMissing
from cm_delta_dagster.catalog.sql.feed.commits import SqlCommitFeed
from cm_delta_dagster.catalog.sql.policies.commit_policies import SqlCommitPolicies
from cm_delta_dagster.catalog.sql.policies.feed_cleanup import SqlEventFeed
from cm_delta_dagster.catalog.sql.policies.leases import SqlLeases
from cm_delta_dagster.catalog.sql.policies.maintenance import SqlMaintenancePolicies
from cm_delta_dagster.catalog.sql.policies.pins import SqlVersionPins
from cm_delta_dagster.catalog.sql.ratification.coordinator import SqlCommitCoordinator
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.sql.rules.commit_rules import SqlCommitRules
from cm_delta_dagster.catalog.sql.rules.held_commits import SqlHeldCommits
from cm_delta_dagster.catalog.sql.tables.namespaces import SqlNamespaces
from cm_delta_dagster.catalog.sql.tables.overview import SqlOverview
from cm_delta_dagster.catalog.sql.tables.recovery import SqlRecovery
from cm_delta_dagster.catalog.sql.tables.registry import SqlTableRegistry
from cm_delta_dagster.catalog.storage_credentials import CredentialIssuer
from cm_delta_dagster.catalog.tokens import AccessToken

_READ = guard.Operation.READ


class SqlCatalog:
    """Implements :class:`~cm_delta_dagster.catalog.catalog.Catalog` over SQLite (one machine) or PostgreSQL (shared).

    The first use opens the database, and creates or migrates it. Thread-safe. Each ratification is one SQL transaction. Close
    the catalog, or use it as a context manager.

    Args:
        url: ``sqlite:////absolute/path.db`` or ``postgresql://user:password@host/database``.
        warehouse: location under which new tables are placed, e.g. ``s3://bucket/warehouse`` or a local directory; None
            for a client that creates no tables.
        if_missing: whether a missing catalog is created; with REFUSE the first use raises CatalogError.
        now_ms: clock, epoch milliseconds; by default the server's, for SQLite the machine's.
        principal: who uses this client: the name of a user or a pipeline; by default that of the environment variable
            CM_DELTA_PRINCIPAL, and without it on PostgreSQL the role that logs in.
        issuer: gets credentials for files from the store; None for a catalog that gives none.

    Raises:
        InvalidArgumentError: the URL or the warehouse is malformed.
    """

    def __init__(
        self,
        url: str,
        *,
        warehouse: str | None = None,
        if_missing: IfMissing = IfMissing.CREATE,
        now_ms: Callable[[], int] | None = None,
        principal: str | None = None,
        issuer: CredentialIssuer | None = None,
    ) -> None:
        shared = Database(url, if_missing=if_missing)
        self._closes_database = True
        self._issuer = issuer
        self._warehouse = None if warehouse is None else names.checked_warehouse(warehouse)
        caller = CallIdentity(principal=environment_principal() if principal is None else principal)
        database = CallerDatabase(shared, caller, now_ms=now_ms, record_refusal=audit.record_refusal)
        self._open_parts(database)

    def _open_parts(self, database: CallerDatabase) -> None:
        self._database = database
        self.coordinator = SqlCommitCoordinator(database)
        self.feed = SqlCommitFeed(database)
        self.events = SqlEventFeed(database)
        self.registry = SqlTableRegistry(database, warehouse=self._warehouse)
        self.recovery = SqlRecovery(database)
        self.namespaces = SqlNamespaces(database)
        self.commit_policies = SqlCommitPolicies(database)
        self.commit_rules = SqlCommitRules(database)
        self.holds = SqlHeldCommits(database)
        self.maintenance_policies = SqlMaintenancePolicies(database)
        self.leases = SqlLeases(database)
        self.pins = SqlVersionPins(database)
        self.access = SqlAccessControl(database)
        self.tokens = SqlTokens(database)
        self.application_ids = SqlApplicationIds(database)
        self.audit_log = SqlAuditLog(database)
        self.overview = SqlOverview(database)
        self.storage_credentials = SqlStorageCredentials(database, issuer=self._issuer)

    def acting_as(self, principal: str | None, *, roles: Sequence[str] = ()) -> "SqlCatalog":
        """The same catalog by the same connections, for the calls of ``principal``.

        Args:
            roles: names of roles that the principal has in these calls, besides those that the catalog records.

        Raises:
            InvalidArgumentError: a name that no principal or role can have.
        """
        other = object.__new__(type(self))  # copy() would open other connections, as __reduce__ says.
        vars(other).update(vars(self))
        other._closes_database = False
        other._open_parts(self._database.acting_as(CallIdentity(principal=principal, roles=tuple(roles))))
        return other

    def for_token(self, token: AccessToken) -> "SqlCatalog":
        """The same catalog by the same connections, for the calls of the token's principal within the limits of the token."""
        other = self.acting_as(token.principal)
        if is_limited(token):
            parts = {name: LimitedPart(name, getattr(other, name), token, other._database) for name in interfaces()}
            vars(other).update(parts)
        return other

    def check_token(self, part: str, operation: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a call that the token of :meth:`for_token` does not permit, before other work is done for it.

        The call itself checks the same. Raises CommitRefusedError, OperationRefusedError.
        """
        limited = getattr(self, part)
        if isinstance(limited, LimitedPart):
            limited.check(operation, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same database with its own connections, and does not create it."""
        create = partial(
            SqlCatalog,
            self._database.shared.url_text,
            warehouse=self._warehouse,
            if_missing=IfMissing.REFUSE,
            principal=self._database.caller.principal,
        )
        return create, ()

    def __repr__(self) -> str:
        return f"SqlCatalog({self._database.shared.shown_url!r})"

    def __enter__(self) -> "SqlCatalog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; those of :meth:`acting_as` stay open until the catalog that it was called on is closed."""
        if self._closes_database:
            self._database.shared.close()
