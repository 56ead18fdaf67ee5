"""Tables that the catalog has adopted, whose files a purge never deletes, and names of tables that are read by path."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No table was adopted and no path registered before."""
    op.add_column("cm_delta_tables", sa.Column("is_external", sa.Boolean, nullable=False, server_default=sa.false()))

    op.create_table(
        "cm_delta_registered_paths",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("catalog_name", "schema_name", "table_name")),
        sa.Column("location", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Delete column and names. A purge then deletes the files of adopted tables that were dropped inside the warehouse."""
    op.drop_table("cm_delta_registered_paths")
    op.drop_column("cm_delta_tables", "is_external")
