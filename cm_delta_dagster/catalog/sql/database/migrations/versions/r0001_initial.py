"""Tables, commits, the feed's counter, maintenance rules and leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_tables()
    _create_commits()
    counter = op.create_table(
        "cm_delta_feed_counter",
        sa.Column("counter_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counter, [{"counter_id": 1, "position": 0}])
    op.create_table(
        "cm_delta_maintenance_rules",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("allowed", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "cm_delta_maintenance_claims",
        sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )


def _create_tables() -> None:
    op.create_table(
        "cm_delta_tables",
        sa.Column("table_id", sa.Text, primary_key=True),
        sa.Column("catalog_name", sa.Text, nullable=False),
        sa.Column("schema_name", sa.Text, nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False, unique=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("latest_version", sa.BigInteger, nullable=False),
        sa.Column("published_version", sa.BigInteger, nullable=False),
        sa.Column("latest_data_version", sa.BigInteger, nullable=False),
        sa.Column("latest_in_commit_timestamp", sa.BigInteger, nullable=False),
        sa.Column("reserved_ms", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger),
        sa.Column("dropped_ms", sa.BigInteger),
    )
    op.create_index(
        "cm_delta_tables_active_name",
        "cm_delta_tables",
        ["catalog_name", "schema_name", "table_name"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )


def _create_commits() -> None:
    op.create_table(
        "cm_delta_commits",
        sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False, unique=True),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("file_name", sa.Text, nullable=False),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("file_modification_time", sa.BigInteger, nullable=False),
        sa.Column("txn_id", sa.Text, nullable=False),
        sa.Column("in_commit_timestamp", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("data_change", sa.Boolean, nullable=False),
        sa.Column("data_version", sa.BigInteger, nullable=False),
        sa.Column("ratified_ms", sa.BigInteger, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables; the files of Delta tables stay."""
    for name in ("maintenance_claims", "maintenance_rules", "feed_counter", "commits", "tables"):
        op.drop_table(f"cm_delta_{name}")
