"""Who made each commit, owners of tables, grants, roles, the audit, and which checks a proposal must pass."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TABLES = ("audit", "role_members", "roles", "grants", "active_checks")


def upgrade() -> None:
    """Existing commits and tables get no principal; no check is active."""
    op.add_column("cm_delta_commits", sa.Column("principal", sa.Text))
    op.add_column("cm_delta_tables", sa.Column("owner", sa.Text))
    op.create_table(
        "cm_delta_active_checks",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("check_name", sa.Text, primary_key=True),
    )
    op.create_table(
        "cm_delta_grants",
        sa.Column("grantee", sa.Text, primary_key=True),
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("privilege", sa.Text, primary_key=True),
        sa.Column("granted_by", sa.Text),
        sa.Column("granted_ms", sa.BigInteger, nullable=False),
    )
    op.create_table("cm_delta_roles", sa.Column("role", sa.Text, primary_key=True))
    op.create_table(
        "cm_delta_role_members",
        sa.Column("member", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, sa.ForeignKey("cm_delta_roles.role"), primary_key=True),
    )
    op.create_table(
        "cm_delta_audit",
        sa.Column("entry_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("principal", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("table_id", sa.Text),
        sa.Column("state_before", sa.Text),
        sa.Column("state_after", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Delete grants, roles and audit: every client may then do everything that its rights in the database allow."""
    for name in _TABLES:
        op.drop_table(f"cm_delta_{name}")
    op.drop_column("cm_delta_tables", "owner")
    op.drop_column("cm_delta_commits", "principal")
