"""The feed of all events with its readers, fencing tokens of leases, and subscriptions by webhook."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_POSITIONS_OF_COMMITS = """
INSERT INTO cm_delta_feed (position, kind, at_ms, table_id, version)
SELECT position, CASE version WHEN 0 THEN 'TABLE_CREATED' ELSE 'COMMIT' END, ratified_ms, table_id, version
FROM cm_delta_commits ORDER BY position
"""
_PLACE = """
UPDATE cm_delta_feed SET position = (SELECT position FROM cm_delta_feed_counter WHERE counter_id = 1)
  + (SELECT count(*) FROM cm_delta_feed f WHERE f.position IS NULL AND f.entry_id <= cm_delta_feed.entry_id)
WHERE position IS NULL
"""
_MOVE_COUNTER = """
UPDATE cm_delta_feed_counter SET position = (SELECT GREATEST_OF(position, (SELECT COALESCE(MAX(position), 0) FROM cm_delta_feed)))
"""
_OF_FEED = """
UPDATE cm_delta_commits SET position = (
  SELECT f.position FROM cm_delta_feed f WHERE f.table_id = cm_delta_commits.table_id AND f.version = cm_delta_commits.version)
"""
_WITHOUT_ENTRY = """
UPDATE cm_delta_commits SET position = -n.number
FROM (
  SELECT c.table_id, c.version, row_number() OVER (ORDER BY c.table_id, c.version) AS number
  FROM cm_delta_commits c WHERE c.position IS NULL) n
WHERE n.table_id = cm_delta_commits.table_id AND n.version = cm_delta_commits.version
"""


def upgrade() -> None:
    """Commits keep their positions, so that the cursors of readers stay valid."""
    _create_feed()
    op.execute(_POSITIONS_OF_COMMITS)
    _drop_position()
    op.add_column(
        "cm_delta_feed_counter", sa.Column("deleted_up_to", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    )
    _create_waiters_and_webhooks()
    op.add_column("cm_delta_tables", _zero("lease_token"))
    for name in ("token", "acquired_ms"):
        op.add_column("cm_delta_maintenance_claims", _zero(name))
    op.add_column("cm_delta_maintenance_claims", sa.Column("principal", sa.Text))


def _zero(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


def _create_feed() -> None:
    op.create_table(
        "cm_delta_feed",
        sa.Column("entry_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("position", sa.BigInteger, unique=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("table_id", sa.Text),
        sa.Column("version", sa.BigInteger),
        sa.Column("scope", sa.Text),
        sa.Column("actor", sa.Text),
        sa.Column("details", sa.Text),
    )
    unplaced = sa.text("position IS NULL")
    op.create_index(
        "cm_delta_feed_unplaced", "cm_delta_feed", ["entry_id"], sqlite_where=unplaced, postgresql_where=unplaced
    )
    op.create_index("cm_delta_feed_table", "cm_delta_feed", ["table_id", "version"])


def _create_waiters_and_webhooks() -> None:
    op.create_table(
        "cm_delta_feed_waiters",
        sa.Column("waiter_id", sa.Text, primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "cm_delta_webhooks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("kinds", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("leased_by", sa.Text),
        _zero("leased_until_ms"),
    )
    op.create_table(
        "cm_delta_webhook_failures",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("failed_ms", sa.BigInteger, nullable=False),
    )


def _drop_position() -> None:
    """SQLite cannot drop a unique column: the table is copied, and its index, which depends on a condition, created again."""
    if op.get_bind().dialect.name != "sqlite":
        op.drop_column("cm_delta_commits", "position")
        return
    op.drop_index("cm_delta_commits_inline", "cm_delta_commits")
    with op.batch_alter_table("cm_delta_commits", recreate="always") as table:
        table.drop_column("position")
    has_content = sa.text("content IS NOT NULL")
    op.create_index("cm_delta_commits_inline", "cm_delta_commits", ["table_id", "version"], sqlite_where=has_content)


def downgrade() -> None:
    """Commits get their positions back; those that were deleted from the feed get negative ones. Other entries are deleted."""
    greatest = "MAX" if op.get_bind().dialect.name == "sqlite" else "GREATEST"
    op.execute(_PLACE)
    op.execute(_MOVE_COUNTER.replace("GREATEST_OF", greatest))
    op.add_column("cm_delta_commits", sa.Column("position", sa.BigInteger))
    op.execute(_OF_FEED)
    op.execute(_WITHOUT_ENTRY)
    with op.batch_alter_table("cm_delta_commits") as table:
        table.alter_column("position", existing_type=sa.BigInteger(), nullable=False)
        table.create_unique_constraint("cm_delta_commits_position_key", ["position"])
    for name in ("webhook_failures", "webhooks", "feed_waiters", "feed"):
        op.drop_table(f"cm_delta_{name}")
    op.drop_column("cm_delta_feed_counter", "deleted_up_to")
    op.drop_column("cm_delta_tables", "lease_token")
    for name in ("token", "acquired_ms", "principal"):
        op.drop_column("cm_delta_maintenance_claims", name)
