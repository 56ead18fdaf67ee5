"""The high-water marks of identity columns that the stored metadata of tables has, for catalogs that did not keep marks."""

import sqlalchemy as sa

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from cm_delta_dagster.protocol.commits.proposal_checks.marks import Marks, stated_marks

_DEFINITIONS = sa.text("SELECT table_id, metadata, protocol FROM cm_delta_definitions WHERE metadata IS NOT NULL")
_SET = sa.text("UPDATE cm_delta_tables SET identity_marks = :marks WHERE table_id = :of_table")


def fill(connection: sa.Connection) -> None:
    """Store the marks of each table. None is known of one without metadata, or with damaged ones."""
    for row in connection.execute(_DEFINITIONS).all():
        marks = _marks_of(row.metadata, row.protocol)
        if marks is not None:
            connection.execute(_SET, {"marks": marks, "of_table": row.table_id})


def _marks_of(metadata: str, protocol: str | None) -> str | None:
    lines = "".join(f"{line}\n" for line in (protocol, metadata) if line is not None)
    try:
        actions = decode_commit(lines.encode(), version=0)
        stated = stated_marks(domain=None, metadata=actions.metadata, protocol=actions.protocol, operation=None)
    except CmDeltaError:
        return None
    return stated.after(Marks()).identity_text()
