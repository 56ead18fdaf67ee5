"""Alembic's environment: runs the revisions on the connection and in the transaction of the caller."""

from alembic import context

from cm_delta_dagster.catalog.sql.database.migrate import VERSION_TABLE
from cm_delta_dagster.catalog.sql.database.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # Also for SQLite: the caller's BEGIN is explicit.
)
with context.begin_transaction():
    context.run_migrations()
