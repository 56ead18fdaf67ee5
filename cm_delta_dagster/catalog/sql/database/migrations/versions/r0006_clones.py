"""Which shallow clones read files of which tables."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No table is a clone yet."""
    op.create_table(
        "cm_delta_clones",
        sa.Column("clone_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
        sa.Column("source_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
    )
    op.create_index("cm_delta_clones_source", "cm_delta_clones", ["source_id"])


def downgrade() -> None:
    """Delete the references. VACUUM and purge of a source then no longer keep the files of its clones."""
    op.drop_index("cm_delta_clones_source", "cm_delta_clones")
    op.drop_table("cm_delta_clones")
