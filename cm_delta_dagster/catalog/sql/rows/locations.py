"""Which tables are at, above or below a location, and below which one all files of a table are."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import ACTIVE, CLONES, COMMITS, NAME_COLUMNS, PURGED, STAGING, TABLES
from cm_delta_dagster.catalog.texts import is_storable
from cm_delta_dagster.protocol.actions.paths import canonical_location

_CLONE = "CLONE"
_RESERVED_ELSEWHERE = sa.or_(
    TABLES.c.is_external, sa.exists(sa.select(CLONES.c.clone_id).where(CLONES.c.clone_id == TABLES.c.table_id))
)
_IS_CREATED = sa.exists(
    sa.select(COMMITS.c.table_id).where(
        COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version == 0, COMMITS.c.operation != _CLONE
    )
)
_RESERVED = sa.select(TABLES.c.location).where(TABLES.c.table_id == sa.bindparam("of_table"), ~_RESERVED_ELSEWHERE)
_OWN = _RESERVED.where(_IS_CREATED)
_LOCATIONS_IN_STATEMENT = 500
_IS_SOURCE = sa.exists(
    sa.select(CLONES.c.source_id).where(
        CLONES.c.clone_id == sa.bindparam("of_table"), CLONES.c.source_id == TABLES.c.table_id
    )
)
_AT = sa.select(TABLES.c.table_id).where(
    TABLES.c.location.in_(sa.bindparam("locations", expanding=True)),
    TABLES.c.table_id != sa.bindparam("of_table"),
    TABLES.c.state != PURGED,
    ~_IS_SOURCE,
)
_WITH_FILES = sa.select(
    *NAME_COLUMNS, TABLES.c.table_id, TABLES.c.location, TABLES.c.state, TABLES.c.is_external
).where(TABLES.c.location.in_(sa.bindparam("locations", expanding=True)), TABLES.c.state.in_((ACTIVE, STAGING)))


def nested(location: str) -> sa.ColumnElement[bool]:
    """Whether a table is above or below ``location``."""
    below = sa.func.substr(TABLES.c.location, 1, len(location) + 1) == f"{location}/"
    above = sa.func.substr(sa.literal(location), 1, sa.func.length(TABLES.c.location) + 1) == TABLES.c.location.concat(
        "/"
    )
    return sa.or_(below, above)


def taken(location: str) -> sa.ColumnElement[bool]:
    """Whether a table prevents another one at ``location``: it is there in any state, or it is above or below and not purged."""
    return sa.or_(TABLES.c.location == location, sa.and_(TABLES.c.state != PURGED, nested(location)))


def own_location(connection: sa.Connection, table_id: str) -> str | None:
    """The location below which all files of the table must be; None for a clone, an adopted or external table, and no table."""
    return connection.execute(_OWN, {"of_table": table_id}).scalar_one_or_none()


def location_to_create(connection: sa.Connection, table_id: str, *, operation: str) -> str | None:
    """As :func:`own_location`, for a reserved table whose version 0 is made by ``operation``."""
    return None if operation == _CLONE else connection.execute(_RESERVED, {"of_table": table_id}).scalar_one_or_none()


def table_of_files(connection: sa.Connection, location: str) -> Any | None:
    """The row of the table at or above a location that has a name, or that is reserved; None without one."""
    above = _at_or_above(canonical_location(location))[-_LOCATIONS_IN_STATEMENT:] if is_storable(location) else []
    return connection.execute(_WITH_FILES, {"locations": above}).one_or_none()


def _at_or_above(location: str) -> list[str]:
    steps = location.rstrip("/").split("/")
    return ["/".join(steps[:count]) for count in range(len(steps), 2, -1)]


def tables_with_files(connection: sa.Connection, paths: Sequence[str], *, apart_from: str) -> tuple[str, ...]:
    """The ids of tables that are not purged and have one of these absolute paths below their location.

    Args:
        apart_from: the id of a table which is left out, with the sources that it is a shallow clone of.
    """
    above: set[str] = set()
    for directory in {path.rpartition("/")[0] for path in map(canonical_location, paths)}:
        above.update(_at_or_above(directory))
    table_ids: dict[str, None] = {}
    ordered = sorted(above)
    for start in range(0, len(ordered), _LOCATIONS_IN_STATEMENT):
        some = ordered[start : start + _LOCATIONS_IN_STATEMENT]
        rows = connection.execute(_AT, {"locations": some, "of_table": apart_from})
        table_ids.update(dict.fromkeys(rows.scalars()))
    return tuple(table_ids)
