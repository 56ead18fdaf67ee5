"""Pinned versions and the identity of the catalog."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "cm_delta_version_pins",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("pinned_ms", sa.BigInteger, nullable=False, index=True),
    )
    identity = op.create_table(
        "cm_delta_catalog",
        sa.Column("row_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("catalog_id", sa.Text, nullable=False),
    )
    op.bulk_insert(identity, [{"row_id": 1, "catalog_id": str(uuid.uuid4())}])


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("cm_delta_catalog")
    op.drop_table("cm_delta_version_pins")
