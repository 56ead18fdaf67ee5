"""Maintenance leases with fencing tokens.

A lease excludes other maintenance runs from a table, not writers. ``TABLES.lease_token`` is the token of the newest lease. It grows
when a lease begins or is ended by another, under the lock of the table's row, which every commit takes too.
"""

from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.durations import is_duration
from cm_delta_dagster.catalog.leases import Lease
from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, LeaseLost, MaintenanceKind
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    MAINTENANCE_LEASES,
    NAME_COLUMNS,
    PURGING,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.errors import InvalidArgumentError, LeaseNotHeldError
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import ListLeases

_OF_TABLE = MAINTENANCE_LEASES.c.table_id == sa.bindparam("of_table")
_LOCKED_TABLE = (
    sa.select(TABLES.c.table_id, TABLES.c.lease_token, *NAME_COLUMNS)
    .where(TABLES.c.table_id == sa.bindparam("of_table"), TABLES.c.state.in_((ACTIVE, PURGING)))
    .with_for_update()
)
_LEASE = sa.select(MAINTENANCE_LEASES).where(_OF_TABLE)
_LEASES = (
    sa.select(MAINTENANCE_LEASES, *NAME_COLUMNS)
    .join(TABLES, TABLES.c.table_id == MAINTENANCE_LEASES.c.table_id)
    .order_by(*NAME_COLUMNS, MAINTENANCE_LEASES.c.table_id)
)
_DELETE = sa.delete(MAINTENANCE_LEASES).where(_OF_TABLE)
_MAX_OWNER = 500


class SqlLeases(Part):
    """Maintenance leases; implements :class:`~cm_delta_dagster.catalog.leases.Leases`."""

    @writes
    def acquire_maintenance_lease(
        self, connection: sa.Connection, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
    ) -> LeaseGranted | LeaseHeldByAnother:
        """Acquire or renew the lease. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = now_of(connection)
        _check_request(owner, duration_ms)
        table = _locked(connection, table_id)
        guard.require_on_table(connection, Operation.LEASE, table_id)
        lease = connection.execute(_LEASE, {"of_table": table_id}).one_or_none()
        is_own = lease is not None and lease.owner == owner and _is_callers(connection, lease)
        if lease is not None and not is_own and lease.expires_ms > now_ms:
            return _holder(lease)
        expires_ms = now_ms + duration_ms
        if lease is not None and is_own and lease.expires_ms > now_ms:
            _extend(connection, table_id, kind=kind, expires_ms=expires_ms)
            return LeaseGranted(expires_ms=expires_ms, token=lease.token)
        token = _raise_token(connection, table)
        connection.execute(_DELETE, {"of_table": table_id})
        connection.execute(
            sa.insert(MAINTENANCE_LEASES).values(
                table_id=table_id,
                kind=kind.value,
                owner=owner,
                expires_ms=expires_ms,
                token=token,
                acquired_ms=now_ms,
                principal=caller_of(connection),
            )
        )
        before = None if lease is None else f"{_text(lease)}, which expired at {utc_text(lease.expires_ms)}"
        action = "acquire lease" if lease is None else "take over lease"
        _record(connection, table, action, before=before, after=f"{owner} for {kind.value}, token {token}")
        return LeaseGranted(expires_ms=expires_ms, token=token)

    @writes
    def renew_lease(
        self, connection: sa.Connection, table_id: str, *, token: int, duration_ms: int
    ) -> LeaseGranted | LeaseLost:
        """Extend the lease with this token. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = now_of(connection)
        _check_request("renewal", duration_ms)
        _locked(connection, table_id)
        answer = check(connection, table_id, token=token)
        if isinstance(answer, LeaseLost):
            return answer
        lease = connection.execute(_LEASE, {"of_table": table_id}).one()
        if not _is_callers(connection, lease) or not guard.may_on_table(connection, Operation.LEASE, table_id):
            return LeaseLost(token=token, holder=_holder(lease))
        _extend(connection, table_id, expires_ms=now_ms + duration_ms)
        return LeaseGranted(expires_ms=now_ms + duration_ms, token=token)

    @reads
    def check_lease(self, connection: sa.Connection, table_id: str, *, token: int) -> LeaseGranted | LeaseLost:
        """Whether the lease with this token is held, in one statement."""
        return check(connection, table_id, token=token)

    @writes
    def release_maintenance_lease(self, connection: sa.Connection, table_id: str, *, owner: str) -> None:
        """Release the lease of ``owner``."""
        row = connection.execute(_LEASE, {"of_table": table_id}).one_or_none()
        if row is None or row.owner != owner or not _is_callers(connection, row):
            return
        ended = sa.delete(MAINTENANCE_LEASES).where(_OF_TABLE, MAINTENANCE_LEASES.c.owner == owner)
        if connection.execute(ended, {"of_table": table_id}).rowcount:
            table = connection.execute(sa.select(TABLES).where(TABLES.c.table_id == table_id)).one()
            _record(connection, table, "release lease", before=_text(row))

    @writes
    def expire_lease(self, connection: sa.Connection, table_id: str, *, owner: str, reason: str = "") -> None:
        """End the lease of another run. Raises LeaseNotHeldError, TableNotFoundError, OperationRefusedError."""
        guard.require_on_table(connection, Operation.EXPIRE_LEASE, table_id)
        table = _locked(connection, table_id)
        lease = connection.execute(_LEASE, {"of_table": table_id}).one_or_none()
        if lease is None or lease.owner != owner:
            raise _not_held(owner, str(identifier_of(table)), None if lease is None else lease.owner)
        _raise_token(connection, table)
        connection.execute(_DELETE, {"of_table": table_id})
        _record(connection, table, "expire lease", before=_text(lease), reason=reason)

    @reads
    def leases(self, connection: sa.Connection) -> tuple[Lease, ...]:
        """Every lease that was not released, in one statement."""
        now_ms = now_of(connection)
        return tuple(
            Lease(
                identifier=identifier_of(row),
                table_id=row.table_id,
                kind=MaintenanceKind(row.kind),
                owner=row.owner,
                token=row.token,
                acquired_ms=row.acquired_ms,
                expires_ms=row.expires_ms,
                expired=row.expires_ms <= now_ms,
            )
            for row in connection.execute(_LEASES)
        )


def check(connection: sa.Connection, table_id: str, *, token: int) -> LeaseGranted | LeaseLost:
    """Whether the lease with this token is held, in one statement."""
    now_ms = now_of(connection)
    lease = connection.execute(_LEASE, {"of_table": table_id}).one_or_none()
    if lease is not None and lease.token == token and lease.expires_ms > now_ms:
        return LeaseGranted(expires_ms=lease.expires_ms, token=token)
    is_held = lease is not None and lease.token != token and lease.expires_ms > now_ms
    return LeaseLost(token=token, holder=_holder(lease) if is_held else None)


def _not_held(owner: str, name: str, holder: str | None) -> LeaseNotHeldError:
    """The error if another run than ``owner`` holds the lease of the table, or none."""
    state = "no run holds one" if holder is None else f"{holder} holds it"
    return LeaseNotHeldError(
        f"The maintenance lease of {owner} on {name} was not ended: {state}. Nothing was changed."
    ).with_remedy(ListLeases())


def _check_request(owner: object, duration_ms: object) -> None:
    """Raises InvalidArgumentError for an owner that is not a text of 1 to 500 characters, or a duration that is not positive."""
    is_name = isinstance(owner, str) and 1 <= len(owner) <= _MAX_OWNER and owner.isprintable()
    if not is_name or not is_duration(duration_ms, at_least=1):
        raise InvalidArgumentError(
            f"A maintenance lease requires an owner, a text of 1 to {_MAX_OWNER} printable characters, and a positive duration in "
            f"whole milliseconds, at most a hundred years; given were {owner!r} and {duration_ms!r}."
        )


def _is_callers(connection: sa.Connection, lease: Any) -> bool:
    """Whether the caller acquired the lease. Without grants any caller that names its owner has it."""
    return lease.principal == caller_of(connection) or not guard.is_enabled(connection)


def _locked(connection: sa.Connection, table_id: str) -> Any:
    table = connection.execute(_LOCKED_TABLE, {"of_table": table_id}).one_or_none()
    if table is None:
        raise unknown_table(table_id)
    return table


def _raise_token(connection: sa.Connection, table: Any) -> int:
    token = int(table.lease_token) + 1
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table.table_id).values(lease_token=token))
    return token


def _extend(connection: sa.Connection, table_id: str, *, expires_ms: int, kind: MaintenanceKind | None = None) -> None:
    values: dict[str, Any] = {"expires_ms": expires_ms} | ({} if kind is None else {"kind": kind.value})
    connection.execute(sa.update(MAINTENANCE_LEASES).where(_OF_TABLE).values(values), {"of_table": table_id})


def _holder(row: Any) -> LeaseHeldByAnother:
    return LeaseHeldByAnother(owner=row.owner, kind=MaintenanceKind(row.kind), expires_ms=row.expires_ms)


def _text(row: Any) -> str:
    return f"{row.owner} for {row.kind}, token {row.token}"


def _record(
    connection: sa.Connection,
    table: Any,
    action: str,
    *,
    before: str | None = None,
    after: str | None = None,
    reason: str = "",
) -> None:
    change = audit.Change(
        action=action,
        scope=str(identifier_of(table)),
        before=before,
        after=after,
        reason=reason,
        table_id=table.table_id,
    )
    audit.record(connection, change)
