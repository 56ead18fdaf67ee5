"""Who made a pin."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_PINS = "cm_delta_version_pins"
_OLD = "cm_delta_old_pins"
_KEY = f"{_PINS}_pkey"
_INDEX = f"ix_{_PINS}_pinned_ms"


def upgrade() -> None:
    """Older pins hold for every principal until they expire."""
    if op.get_bind().dialect.name != "sqlite":
        op.add_column(_PINS, _principal())
        op.drop_constraint(_KEY, _PINS)
        op.create_primary_key(_KEY, _PINS, ["owner", "table_id", "principal"])
        return
    _copy(_principal(primary_key=True), "SELECT owner, table_id, version, pinned_ms, '' FROM")


def downgrade() -> None:
    """Of the pins of several principals for a run and a table, the highest stays."""
    if op.get_bind().dialect.name != "sqlite":
        op.execute(
            f"DELETE FROM {_PINS} p USING {_PINS} other WHERE other.owner = p.owner AND other.table_id = p.table_id "
            "AND (other.version, other.principal) > (p.version, p.principal)"
        )
        op.drop_constraint(_KEY, _PINS)
        op.drop_column(_PINS, "principal")
        op.create_primary_key(_KEY, _PINS, ["owner", "table_id"])
        return
    _copy(None, "SELECT owner, table_id, max(version), pinned_ms FROM", " GROUP BY owner, table_id")


def _principal(*, primary_key: bool = False) -> "sa.Column[str]":
    return sa.Column("principal", sa.Text, primary_key=primary_key, nullable=False, server_default=sa.text("''"))


def _copy(more: "sa.Column[str] | None", rows: str, suffix: str = "") -> None:
    """SQLite cannot change a primary key: the table is created again, with ``more`` as its last column."""
    op.drop_index(_INDEX, _PINS)
    op.rename_table(_PINS, _OLD)
    op.create_table(
        _PINS,
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("table_id", sa.Text, sa.ForeignKey("cm_delta_tables.table_id"), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("pinned_ms", sa.BigInteger, nullable=False, index=True),
        *([] if more is None else [more]),
    )
    op.execute(f"INSERT INTO {_PINS} {rows} {_OLD}{suffix}")
    op.drop_table(_OLD)
