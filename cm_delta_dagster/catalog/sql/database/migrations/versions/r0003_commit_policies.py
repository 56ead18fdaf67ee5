"""Commit policies, and the content of inline commits."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; existing tables keep staged commits."""
    op.add_column("cm_delta_tables", sa.Column("commit_policy", sa.Text))
    op.add_column("cm_delta_tables", sa.Column("barrier_after", sa.BigInteger))
    op.add_column("cm_delta_commits", sa.Column("content", sa.LargeBinary))
    # What is to be forgotten after a publication is found without a look at the commits that never had content.
    op.create_index(
        "cm_delta_commits_inline",
        "cm_delta_commits",
        ["table_id", "version"],
        sqlite_where=sa.text("content IS NOT NULL"),
        postgresql_where=sa.text("content IS NOT NULL"),
    )
    op.create_table(
        "cm_delta_commit_policies",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("policy", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Delete the policies. There must be no unpublished inline commit and no put-if-absent table."""
    op.drop_table("cm_delta_commit_policies")
    op.drop_index("cm_delta_commits_inline", "cm_delta_commits")
    op.drop_column("cm_delta_commits", "content")
    op.drop_column("cm_delta_tables", "barrier_after")
    op.drop_column("cm_delta_tables", "commit_policy")
