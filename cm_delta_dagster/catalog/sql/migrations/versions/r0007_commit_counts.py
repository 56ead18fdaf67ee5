"""Who made each commit, and rows, files and bytes of its table afterwards."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COLUMNS = (
    sa.Column("engine_info", sa.Text),
    sa.Column("user_metadata", sa.Text),
    sa.Column("num_rows", sa.BigInteger),
    sa.Column("num_files", sa.BigInteger),
    sa.Column("size_bytes", sa.BigInteger),
)


def upgrade() -> None:
    """Existing commits get no values; the feed shows them as unknown."""
    for column in _COLUMNS:
        op.add_column("cm_delta_commits", column.copy())


def downgrade() -> None:
    """Delete the values."""
    for column in reversed(_COLUMNS):
        op.drop_column("cm_delta_commits", column.name)
