"""Who calls, and when: the principal that the client states for the call, or on PostgreSQL, without one, the role that logs in."""

import os

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import CallerSource
from cm_delta_dagster.errors import InvalidArgumentError

SESSION_USER = "cm_delta_session_user"
"""Key of the connection record's ``info`` under which ``postgres_session`` stores the role that logged in."""

_VARIABLE = "CM_DELTA_PRINCIPAL"
_PRINCIPAL = "cm_delta_principal"
_NOW_MS = "cm_delta_now_ms"
_MAX_LENGTH = 200


def environment_principal() -> str | None:
    """The principal that the environment variable CM_DELTA_PRINCIPAL names; None without one."""
    return os.environ.get(_VARIABLE) or None


def checked_principal(name: str | None) -> str | None:
    """The name of a principal or role. Raises InvalidArgumentError if it is empty, long, or has control characters."""
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
        raise InvalidArgumentError(
            f"{name!r} cannot be a principal or a role: give a name of printable characters that does not begin or end with a "
            "space, e.g. the name of a user or a pipeline."
        )
    if len(name) > _MAX_LENGTH:
        raise InvalidArgumentError(
            f"A principal has a name of {len(name)} characters; names have at most {_MAX_LENGTH}. Give a shorter name."
        )
    return name


def serving(connection: sa.Connection, principal: str | None, *, now_ms: int) -> sa.Connection:
    """The connection while it serves a call of ``principal`` at that time; its next user gets it without."""
    return connection.execution_options(**{_PRINCIPAL: principal, _NOW_MS: now_ms})


def now_of(connection: sa.Connection) -> int:
    """The time of the call that the connection serves: epoch milliseconds, by the catalog's clock."""
    return int(connection.get_execution_options()[_NOW_MS])


def caller_of(connection: sa.Connection) -> str | None:
    """The principal of the call that the connection serves; None if the client stated none."""
    principal = connection.get_execution_options().get(_PRINCIPAL) or connection.info.get(SESSION_USER)
    return None if principal is None else str(principal)


def source_of(connection: sa.Connection) -> CallerSource:
    """Where the name of the principal comes from."""
    if connection.get_execution_options().get(_PRINCIPAL) is not None:
        return CallerSource.CONNECTION
    return CallerSource.NONE if caller_of(connection) is None else CallerSource.DATABASE
