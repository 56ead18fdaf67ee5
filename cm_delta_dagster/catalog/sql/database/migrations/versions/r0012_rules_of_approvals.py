"""Which rules a request for approval covers."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Older requests cover no rule: the catalog does not know the arguments of the rules that they were made for."""
    op.add_column("cm_delta_approvals", sa.Column("rules", sa.Text, nullable=False, server_default=sa.text("'[]'")))


def downgrade() -> None:
    """Requests stay. The former revision lets an approved commit pass every rule; after the next upgrade it passes none."""
    op.drop_column("cm_delta_approvals", "rules")
