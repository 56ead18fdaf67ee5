"""Alembic's entry: runs the revisions on the connection, and inside the transaction, that the caller opened."""

from alembic import context

from cm_delta_dagster.catalog.sql.migrate import VERSION_TABLE
from cm_delta_dagster.catalog.sql.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # True of SQLite too here: the caller's BEGIN is explicit.
)
with context.begin_transaction():
    context.run_migrations()
