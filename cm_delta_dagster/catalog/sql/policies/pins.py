"""Pinned versions: the version of a table that all processes of a run read.

A pin belongs to the principal that made it: another one does not choose what this one reads. Who writes moves the pins of all
principals of its run. Functions over an open connection; the caller opens the transaction. Of concurrent inserts the primary key
admits one.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of
from cm_delta_dagster.catalog.sql.database.schema import VERSION_PINS
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.version_pins import PIN_LIFETIME_MS
from cm_delta_dagster.errors import InvalidArgumentError

_SAME = sa.and_(VERSION_PINS.c.owner == sa.bindparam("of_owner"), VERSION_PINS.c.table_id == sa.bindparam("of_table"))
_PINNED = sa.select(sa.func.max(VERSION_PINS.c.version)).where(
    _SAME, VERSION_PINS.c.principal.in_([sa.bindparam("caller"), sa.literal("")])
)
_RAISE = (
    sa.update(VERSION_PINS)
    .where(_SAME, VERSION_PINS.c.version < sa.bindparam("to_version"))
    .values(version=sa.bindparam("to_version"), pinned_ms=sa.bindparam("now_ms"))
)
_DELETE_EXPIRED = sa.delete(VERSION_PINS).where(VERSION_PINS.c.pinned_ms < sa.bindparam("before_ms"))


def pin(connection: sa.Connection, table_id: str, version: int, *, owner: str, now_ms: int) -> int:
    """Insert unless there is a pin. Returns the pinned version."""
    _insert(connection, table_id, version, owner=owner, now_ms=now_ms)
    return _pinned_or_unknown(connection, table_id, owner)


def raise_pin(connection: sa.Connection, table_id: str, version: int, *, owner: str, now_ms: int) -> int:
    """Insert, or raise the existing pin. Returns the pinned version."""
    _insert(connection, table_id, version, owner=owner, now_ms=now_ms)
    parameters = {"of_owner": owner, "of_table": table_id, "to_version": version, "now_ms": now_ms}
    if not guard.may_on_table(connection, guard.Operation.MOVE_PINS, table_id):
        own = _RAISE.where(VERSION_PINS.c.principal == _principal(connection))
        connection.execute(own, parameters)
    else:
        connection.execute(_RAISE, parameters)
    return _pinned_or_unknown(connection, table_id, owner)


def pinned(connection: sa.Connection, table_id: str, *, owner: str) -> int | None:
    """The version that the caller has pinned, None without a pin."""
    parameters = {"of_owner": owner, "of_table": table_id, "caller": _principal(connection)}
    found = connection.execute(_PINNED, parameters).scalar_one()
    return None if found is None else int(found)


def _check(version: int, owner: str) -> None:
    """Raises InvalidArgumentError for a version below 0, or no owner."""
    if version < 0 or not owner:
        raise InvalidArgumentError(
            f"A pin requires an owner and a version of at least 0; given were {owner!r} and {version}."
        )


def _principal(connection: sa.Connection) -> str:
    return caller_of(connection) or ""


def _insert(connection: sa.Connection, table_id: str, version: int, *, owner: str, now_ms: int) -> None:
    _check(version, owner)
    if pinned(connection, table_id, owner=owner) is not None:
        return
    guard.require_on_table(connection, guard.Operation.PIN, table_id)
    connection.execute(_DELETE_EXPIRED, {"before_ms": now_ms - PIN_LIFETIME_MS})
    row = {
        "owner": owner,
        "table_id": table_id,
        "version": version,
        "pinned_ms": now_ms,
        "principal": _principal(connection),
    }
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(VERSION_PINS).values(row))
    except sa.exc.IntegrityError:  # Another process pinned concurrently, or there is no such table.
        return


def _pinned_or_unknown(connection: sa.Connection, table_id: str, owner: str) -> int:
    found = pinned(connection, table_id, owner=owner)
    if found is None:
        raise unknown_table(table_id)
    return found
