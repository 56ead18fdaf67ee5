"""From revision 0018 to 0019: the catalog records which principal set an application id last."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import APPLICATION_IDS


def upgrade(connection: sa.Connection) -> None:
    """Who set an application id is not known until the next commit that sets it."""
    APPLICATION_IDS.create(connection)
