"""The high-water marks of each table, which proposals must not lower.

The caller holds the lock of the table's row. A commit whose content is not known leaves them as
they are. They are not known until the first commit that states one, and after a recovery.
"""

from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.database.schema import TABLES
from cm_delta_dagster.protocol.commits.proposal_checks.content import illegal
from cm_delta_dagster.protocol.commits.proposal_checks.marks import Marks

UNKNOWN = {"row_id_mark": None, "identity_marks": None}
"""The columns of a table whose marks are not known."""

_RECORD = Prepared(
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(row_id_mark=sa.bindparam("to_row_id"), identity_marks=sa.bindparam("to_identity"))
)


def check(proposal: CommitProposal, head: Any) -> None:
    """Refuse a proposal that lowers a mark. Raises IllegalCommitError."""
    flaw = None if proposal.checked is None else proposal.checked.marks.flaw_after(_stored(head))
    if flaw is not None:
        raise illegal(flaw)


def writes(table_id: str, proposal: CommitProposal, head: Any) -> list[Call]:
    """The statement that stores the marks after the proposal, if it changes them."""
    if proposal.checked is None:
        return []
    before = _stored(head)
    after = proposal.checked.marks.after(before)
    if after == before:
        return []
    return [(_RECORD, {"of_table": table_id, "to_row_id": after.row_id, "to_identity": after.identity_text()})]


def _stored(head: Any) -> Marks:
    return Marks.stored(head.row_id_mark, head.identity_marks)
