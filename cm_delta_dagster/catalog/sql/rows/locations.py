"""Which tables are at, above or below a location, and below which one all files of a table are."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import CLONES, COMMITS, PURGED, TABLES

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
