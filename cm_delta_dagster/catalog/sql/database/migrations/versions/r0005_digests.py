"""The SHA-256 of each commit."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing commits get no digest; readers check them with version checksums instead."""
    op.add_column("cm_delta_commits", sa.Column("sha256", sa.Text))


def downgrade() -> None:
    """Delete the digests."""
    op.drop_column("cm_delta_commits", "sha256")
