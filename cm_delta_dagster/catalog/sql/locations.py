"""Which tables are at, above or below a location."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.schema import PURGED, TABLES


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
