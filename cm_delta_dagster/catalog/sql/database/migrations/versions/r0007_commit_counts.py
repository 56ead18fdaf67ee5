"""Who made each commit, and rows, files and bytes of its table afterwards."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COLUMNS = {
    "engine_info": sa.Text,
    "user_metadata": sa.Text,
    "num_rows": sa.BigInteger,
    "num_files": sa.BigInteger,
    "size_bytes": sa.BigInteger,
}


def upgrade() -> None:
    """Existing commits get no values; the feed shows them as unknown."""
    for name, kind in _COLUMNS.items():
        op.add_column("cm_delta_commits", sa.Column(name, kind))


def downgrade() -> None:
    """Delete the values."""
    for name in reversed(_COLUMNS):
        op.drop_column("cm_delta_commits", name)
