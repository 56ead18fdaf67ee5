"""Commit rules, commits that wait for an approval, and conditions of maintenance rules."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_MAINTENANCE_RULES = "cm_delta_maintenance_rules"


def upgrade() -> None:
    """No commit rule is set. Maintenance rules keep their decision and hold for everybody, at all times."""
    op.create_table(
        "cm_delta_commit_rules",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "arguments", "on_violation", "reason")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("contact", "set_by")),
        sa.Column("set_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "cm_delta_approvals",
        sa.Column("approval_id", sa.Text, primary_key=True),
        sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("state", "operation", "txn_id")),
        sa.Column("read_version", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("what", "contacts")),
        sa.Column("requested_by", sa.Text),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("requested_ms", "expires_ms")),
        sa.Column("app_id", sa.Text),
        sa.Column("app_version", sa.BigInteger),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("intent", "mode", "file_name")),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text),
        sa.Column("content", sa.LargeBinary),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("decided_by", sa.Text),
        sa.Column("decided_ms", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger),
    )
    op.create_index("cm_delta_approvals_table", "cm_delta_approvals", ["table_id", "state"])
    for name in ("principals", "windows"):
        op.add_column(_MAINTENANCE_RULES, sa.Column(name, sa.Text, nullable=False, server_default=sa.text("'[]'")))
    for name in ("min_retention_ms", "max_files", "max_bytes", "set_ms"):
        op.add_column(_MAINTENANCE_RULES, sa.Column(name, sa.BigInteger))
    op.add_column(_MAINTENANCE_RULES, sa.Column("set_by", sa.Text))


def downgrade() -> None:
    """Delete rules and requests. Maintenance that was allowed under conditions is denied."""
    conditions = sa.text(
        f"UPDATE {_MAINTENANCE_RULES} SET allowed = :denied WHERE principals <> '[]' OR windows <> '[]' "
        "OR min_retention_ms IS NOT NULL OR max_files IS NOT NULL OR max_bytes IS NOT NULL"
    )
    op.get_bind().execute(conditions, {"denied": False})
    for name in ("set_by", "set_ms", "max_bytes", "max_files", "min_retention_ms", "windows", "principals"):
        op.drop_column(_MAINTENANCE_RULES, name)
    op.drop_index("cm_delta_approvals_table", "cm_delta_approvals")
    op.drop_table("cm_delta_approvals")
    op.drop_table("cm_delta_commit_rules")
