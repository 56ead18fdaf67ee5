"""Leases of roles that do not own the tables of a catalog whose grants PostgreSQL enforces: calls of its functions.

As :mod:`~cm_delta_dagster.catalog.sql.leases`, with the server's clock. A lease belongs to the role that acquired it, too: another
role with the same name of an owner neither renews nor releases it.
"""

import json
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, LeaseLost, MaintenanceKind
from cm_delta_dagster.catalog.sql import guard, leases
from cm_delta_dagster.catalog.sql.commit_rows import unknown_table
from cm_delta_dagster.errors import InvalidArgumentError

_ACQUIRE = sa.text("SELECT cm_delta_acquire_lease(:of_table, :of_kind, :of_owner, :duration_ms)")
_RENEW = sa.text("SELECT cm_delta_renew_lease(:of_table, :of_token, :duration_ms)")
_RELEASE = sa.text("SELECT cm_delta_release_lease(:of_table, :of_owner)")
_EXPIRE = sa.text("SELECT cm_delta_expire_lease(:of_table, :of_owner, :reason)")


def acquire(
    connection: sa.Connection, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
) -> LeaseGranted | LeaseHeldByAnother:
    """Acquire or renew the lease unless another owner or role holds it. Raises OperationRefusedError."""
    leases.check_request(owner, duration_ms)
    values = {"of_table": table_id, "of_kind": kind.value, "of_owner": owner, "duration_ms": duration_ms}
    answer = _answer(connection, _ACQUIRE, values)
    if answer["answer"] == "refused":
        guard.require_on_table(connection, guard.Operation.LEASE, table_id)
    return _holder(answer) if answer["answer"] == "held" else _granted(answer)


def renew(connection: sa.Connection, table_id: str, *, token: int, duration_ms: int) -> LeaseGranted | LeaseLost:
    """Extend the lease with this token unless it expired, or another role acquired it."""
    leases.check_request("renewal", duration_ms)
    values = {"of_table": table_id, "of_token": token, "duration_ms": duration_ms}
    answer = _answer(connection, _RENEW, values)
    if answer["answer"] == "granted":
        return _granted(answer)
    return LeaseLost(token=token, holder=None if answer["holder"] is None else _holder(answer))


def release(connection: sa.Connection, table_id: str, *, owner: str) -> None:
    """Delete the lease if this role acquired it for ``owner``."""
    connection.execute(_RELEASE, {"of_table": table_id, "of_owner": owner})


def expire(connection: sa.Connection, table_id: str, *, owner: str, reason: str) -> None:
    """End the lease of another run. Raises LeaseNotHeldError, OperationRefusedError."""
    answer = _answer(connection, _EXPIRE, {"of_table": table_id, "of_owner": owner, "reason": reason})
    if answer["answer"] == "refused":
        guard.require_on_table(connection, guard.Operation.EXPIRE_LEASE, table_id)
    if answer["answer"] == "not_held":
        raise leases.not_held(owner, answer["name"], answer["holder"])


def _answer(connection: sa.Connection, statement: sa.TextClause, values: dict[str, Any]) -> Any:
    found = connection.execute(statement, values).scalar_one()
    answer = json.loads(found) if isinstance(found, str) else found
    if answer["answer"] == "unknown_table":
        raise unknown_table(values["of_table"])
    if answer["answer"] == "rejected":
        raise InvalidArgumentError(
            f"The catalog's database did not change the lease of table {values['of_table']}: {answer['reason']}."
        )
    return answer


def _granted(answer: Any) -> LeaseGranted:
    return LeaseGranted(expires_ms=answer["expires_ms"], token=answer["token"])


def _holder(answer: Any) -> LeaseHeldByAnother:
    holder = answer["holder"]
    return LeaseHeldByAnother(
        owner=holder["owner"], kind=MaintenanceKind(holder["kind"]), expires_ms=holder["expires_ms"]
    )
