"""Metadata and protocol of each table, etags, and the content of small published commits."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing tables get a definition with its next change, or by ``doctor``; content with their next commit."""
    op.add_column(
        "cm_delta_tables", sa.Column("content_from", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    )
    op.add_column("cm_delta_tables", sa.Column("etag", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    # No published commit has content yet, and what is unpublished and inline is to be forgotten as before.
    op.execute("UPDATE cm_delta_tables SET content_from = latest_version + 1")
    op.create_table(
        "cm_delta_definitions",
        sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
        sa.Column("metadata", sa.Text),
        sa.Column("protocol", sa.Text),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("in_commit_timestamp", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Delete definitions and content; unpublished commits keep their content."""
    op.drop_table("cm_delta_definitions")
    op.execute(
        "UPDATE cm_delta_commits SET content = NULL WHERE mode <> 'inline' OR version <= (SELECT published_version "
        "FROM cm_delta_tables WHERE cm_delta_tables.table_id = cm_delta_commits.table_id)"
    )
    op.drop_column("cm_delta_tables", "etag")
    op.drop_column("cm_delta_tables", "content_from")
