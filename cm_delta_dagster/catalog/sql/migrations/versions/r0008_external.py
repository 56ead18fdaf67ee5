"""Tables that the catalog has adopted, whose files a purge never deletes."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No table was adopted before."""
    op.add_column("cm_delta_tables", sa.Column("is_external", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Delete the column. A purge then deletes the files of adopted tables that were dropped inside the warehouse."""
    op.drop_column("cm_delta_tables", "is_external")
