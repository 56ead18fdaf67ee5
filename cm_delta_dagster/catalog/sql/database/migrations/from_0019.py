"""From revision 0019 to 0020: the catalog has tokens, by which a server knows its callers."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import TOKENS


def upgrade(connection: sa.Connection) -> None:
    """There is no token until the first one is created."""
    TOKENS.create(connection)
