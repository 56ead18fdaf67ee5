"""From revision 0015 to 0016: the catalog keeps the high-water marks of row ids and identity columns."""

import sqlalchemy as sa


def upgrade(connection: sa.Connection) -> None:
    """The marks are not known until the next commit that states one."""
    for column in ("row_id_mark BIGINT", "identity_marks TEXT"):
        connection.exec_driver_sql(f"ALTER TABLE cm_delta_tables ADD COLUMN {column}")
