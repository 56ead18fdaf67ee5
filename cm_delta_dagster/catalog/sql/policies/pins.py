"""Pinned versions: the version of a table that all processes of a run read.

A pin belongs to the principal that made it: another one does not choose what this one reads. Who writes moves the pins of all
principals of its run. Of concurrent inserts the primary key admits one.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import NOT_THROUGH_CATALOG
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import TABLES, VERSION_PINS
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.version_pins import PIN_LIFETIME_MS
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError

_SAME = sa.and_(VERSION_PINS.c.owner == sa.bindparam("of_owner"), VERSION_PINS.c.table_id == sa.bindparam("of_table"))
_PINNED = sa.select(sa.func.max(VERSION_PINS.c.version)).where(
    _SAME, VERSION_PINS.c.principal.in_([sa.bindparam("caller"), sa.literal("")])
)
_HAS_VERSION = sa.and_(
    TABLES.c.table_id == sa.bindparam("of_table"),
    sa.or_(
        TABLES.c.latest_version >= sa.bindparam("to_version", type_=sa.BigInteger),
        # Clients see versions of such tables before the catalog does.
        TABLES.c.commit_policy.in_(NOT_THROUGH_CATALOG),
    ),
)
_TABLE_WITH_VERSION = sa.select(TABLES.c.table_id).where(_HAS_VERSION)
_RAISE = (
    sa.update(VERSION_PINS)
    .where(_SAME, VERSION_PINS.c.version < sa.bindparam("to_version"), sa.exists(_TABLE_WITH_VERSION))
    .values(version=sa.bindparam("to_version"), pinned_ms=sa.bindparam("now_ms"))
)
_INSERT = sa.insert(VERSION_PINS).from_select(
    ["owner", "table_id", "version", "pinned_ms", "principal"],
    sa.select(
        sa.bindparam("of_owner", type_=sa.Text),
        TABLES.c.table_id,
        sa.bindparam("to_version", type_=sa.BigInteger),
        sa.bindparam("now_ms", type_=sa.BigInteger),
        sa.bindparam("caller", type_=sa.Text),
    ).where(_HAS_VERSION),
)
_LATEST = sa.select(TABLES.c.latest_version).where(TABLES.c.table_id == sa.bindparam("of_table"))
_DELETE_EXPIRED = sa.delete(VERSION_PINS).where(VERSION_PINS.c.pinned_ms < sa.bindparam("before_ms"))


class SqlVersionPins(Part):
    """Pinned versions; implements :class:`~cm_delta_dagster.catalog.version_pins.VersionPins`."""

    @writes
    def pin_version(self, connection: sa.Connection, table_id: str, version: int, *, owner: str) -> int:
        """Pin a version unless there is a pin. Raises TableNotFoundError, InvalidArgumentError."""
        _insert(connection, table_id, version, owner=owner)
        return _pinned_or_refused(connection, table_id, version, owner=owner)

    @writes
    def raise_pinned_version(self, connection: sa.Connection, table_id: str, version: int, *, owner: str) -> int:
        """Raise the pin. Raises TableNotFoundError, InvalidArgumentError."""
        _insert(connection, table_id, version, owner=owner)
        parameters = {"of_owner": owner, "of_table": table_id, "to_version": version, "now_ms": now_of(connection)}
        if not guard.may_on_table(connection, guard.Operation.MOVE_PINS, table_id):
            own = _RAISE.where(VERSION_PINS.c.principal == _principal(connection))
            connection.execute(own, parameters)
        else:
            connection.execute(_RAISE, parameters)
        version_now = _pinned_or_refused(connection, table_id, version, owner=owner)
        if version_now < version and connection.execute(_TABLE_WITH_VERSION, parameters).first() is None:
            raise _no_such_version(connection, table_id, version)
        return version_now

    @reads
    def pinned_version(self, connection: sa.Connection, table_id: str, *, owner: str) -> int | None:
        """The version that the owner has pinned, in one statement."""
        return pinned(connection, table_id, owner=owner)


def pinned(connection: sa.Connection, table_id: str, *, owner: str) -> int | None:
    """The version that the caller has pinned, None without a pin."""
    parameters = {"of_owner": owner, "of_table": table_id, "caller": _principal(connection)}
    version = connection.execute(_PINNED, parameters).scalar_one()
    return None if version is None else int(version)


def _check(version: int, owner: str) -> None:
    """Raises InvalidArgumentError for a version below 0, or no owner."""
    if version < 0 or not owner:
        raise InvalidArgumentError(
            f"A pin requires an owner and a version of at least 0; given were {owner!r} and {version}."
        )


def _principal(connection: sa.Connection) -> str:
    return caller_of(connection) or ""


def _insert(connection: sa.Connection, table_id: str, version: int, *, owner: str) -> None:
    now_ms = now_of(connection)
    _check(version, owner)
    if pinned(connection, table_id, owner=owner) is not None:
        return
    guard.require_on_table(connection, guard.Operation.PIN, table_id)
    connection.execute(_DELETE_EXPIRED, {"before_ms": now_ms - PIN_LIFETIME_MS})
    row = {
        "of_table": table_id,
        "to_version": version,
        "of_owner": owner,
        "now_ms": now_ms,
        "caller": _principal(connection),
    }
    try:
        with connection.begin_nested():
            connection.execute(_INSERT, row)
    except sa.exc.IntegrityError:  # Another process pinned concurrently.
        return


def _pinned_or_refused(connection: sa.Connection, table_id: str, version: int, *, owner: str) -> int:
    version_now = pinned(connection, table_id, owner=owner)
    if version_now is None:
        raise _no_such_version(connection, table_id, version)
    return version_now


def _no_such_version(
    connection: sa.Connection, table_id: str, version: int
) -> TableNotFoundError | InvalidArgumentError:
    latest = connection.execute(_LATEST, {"of_table": table_id}).scalar_one_or_none()
    if latest is None:
        return unknown_table(table_id)
    return InvalidArgumentError(
        f"Version {version} of table {table_id} cannot be pinned: the latest version is {latest}. Load the table again."
    )
