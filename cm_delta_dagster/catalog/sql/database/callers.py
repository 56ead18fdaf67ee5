"""Who calls, and when: the principal that the client states for the call, or on PostgreSQL, without one, the role that logs in."""

import os
from dataclasses import dataclass

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import ROLE, USER, CallerSource
from cm_delta_dagster.errors import InvalidArgumentError

SESSION_USER = "cm_delta_session_user"
"""Key of the connection record's ``info`` under which ``postgres_session`` stores the role that logged in."""

_VARIABLE = "CM_DELTA_PRINCIPAL"
_CALLER = "cm_delta_caller"
_NOW_MS = "cm_delta_now_ms"
_MAX_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIdentity:
    """Who makes a call, as the client states it.

    Attributes:
        principal: None if the client states none.
        roles: names of roles that the principal has in this call, besides those that the catalog records: an identity provider
            has named them. They need no entry in the catalog.
    """

    principal: str | None
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError for a name that no principal or role can have."""
        for name in (self.principal, *self.roles):
            checked_principal(name)


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


def checked_user(name: str | None) -> str:
    """The name of a principal that a token is for. Raises InvalidArgumentError as :func:`checked_principal`, and for a role."""
    checked = checked_principal(name)
    if checked is None or checked.startswith((USER, ROLE)):
        raise InvalidArgumentError(
            f"A token cannot be for {name!r}: give the name of a user or a pipeline, without a prefix and not of a role."
        )
    return checked


_UNSTATED = CallIdentity(principal=None)


def serving(connection: sa.Connection, caller: CallIdentity, *, now_ms: int) -> sa.Connection:
    """The connection while it serves a call of ``caller`` at that time; its next user gets it without."""
    return connection.execution_options(**{_CALLER: caller, _NOW_MS: now_ms})


def now_of(connection: sa.Connection) -> int:
    """The time of the call that the connection serves: epoch milliseconds, by the catalog's clock."""
    return int(connection.get_execution_options()[_NOW_MS])


def caller_of(connection: sa.Connection) -> str | None:
    """The principal of the call that the connection serves; None if the client stated none."""
    principal = _stated(connection).principal or connection.info.get(SESSION_USER)
    return None if principal is None else str(principal)


def roles_of(connection: sa.Connection) -> tuple[str, ...]:
    """The roles that the call which the connection serves states, without prefix."""
    return _stated(connection).roles


def source_of(connection: sa.Connection) -> CallerSource:
    """Where the name of the principal comes from."""
    if _stated(connection).principal is not None:
        return CallerSource.CONNECTION
    return CallerSource.NONE if caller_of(connection) is None else CallerSource.DATABASE


def _stated(connection: sa.Connection) -> CallIdentity:
    """Who calls, as the client states it; nothing on a connection that serves no call."""
    stated = connection.get_execution_options().get(_CALLER)
    return stated if isinstance(stated, CallIdentity) else _UNSTATED
