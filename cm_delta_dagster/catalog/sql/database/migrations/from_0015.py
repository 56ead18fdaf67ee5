"""From revision 0015 to 0016: the catalog keeps the high-water marks of row ids and identity columns."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.migrations import identity_marks


def upgrade(connection: sa.Connection) -> None:
    """The marks of identity columns are those of the stored metadata.

    That of row ids, which metadata do not have, is not known until the next commit that states one.
    """
    for column in ("row_id_mark BIGINT", "identity_marks TEXT"):
        connection.exec_driver_sql(f"ALTER TABLE cm_delta_tables ADD COLUMN {column}")
    identity_marks.fill(connection)
