"""The high-water marks of each table, which proposals must not lower.

The caller holds the lock of the table's row. A commit whose content is not known leaves them as they are, unless its operation
replaces the table. A commit that exists without the consent of the catalog, because it was made put-if-absent, raises them and does
not lower them. Adopted and recovered tables have the marks of their log. A catalog that is migrated from a release without marks
has those of identity columns in the stored metadata, and none of row ids. Marks are not known of a table of which no commit has
stated one, and after a commit was taken back.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, TABLES
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.commits.proposal_checks.content import illegal
from cm_delta_dagster.protocol.commits.proposal_checks.marks import (
    Marks,
    StatedMarks,
    redefines_columns,
    stated_marks,
)

UNKNOWN = {"row_id_mark": None, "identity_marks": None}
"""The columns of a table whose marks are not known."""

_STORED = sa.select(TABLES.c.row_id_mark, TABLES.c.identity_marks).where(TABLES.c.table_id == sa.bindparam("of_table"))
_NUM_FILES = Prepared(
    sa.select(COMMITS.c.num_files).where(
        COMMITS.c.table_id == sa.bindparam("of_table"), COMMITS.c.version == sa.bindparam("at")
    )
)
_RECORD = Prepared(
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(row_id_mark=sa.bindparam("to_row_id"), identity_marks=sa.bindparam("to_identity"))
)


def check(connection: sa.Connection, table_id: str, proposal: CommitProposal, head: Any) -> None:
    """Refuse a proposal that lowers a mark. Raises IllegalCommitError."""
    if proposal.checked is None:
        return
    stated = proposal.checked.marks
    if stated.redefines_columns:
        stated = stated.believed(num_files=num_files(connection, table_id, head))
    flaw = stated.flaw_after(_stored(head))
    if flaw is not None:
        raise illegal(flaw)


def num_files(connection: sa.Connection, table_id: str, head: Any) -> int | None:
    """Number of files of the table, as its latest commit stated it; None if the catalog does not know it."""
    rows = _NUM_FILES.rows(connection, {"of_table": table_id, "at": head.latest_version})
    return rows[0].num_files if rows else None


def writes(table_id: str, proposal: CommitProposal, head: Any) -> list[Call]:
    """The statement that stores the marks after the proposal, if it changes them.

    Args:
        head: None for version 0. If the content of that is not known, the marks are those of its metadata. So are those of identity
            columns after a replacement of the table whose content is not known. Without metadata none is known then: a new sequence
            may begin, and nothing else of such a commit is checked either.
    """
    stated = None if proposal.checked is None else proposal.checked.marks
    is_replaced = stated is None and redefines_columns(proposal.summary.operation)
    if stated is None and (head is None or is_replaced):
        stated = _of_metadata(proposal.metadata, operation=proposal.summary.operation)
    if is_replaced and (stated is None or stated.identity is None):
        stated = StatedMarks(identity={}, redefines_columns=True)
    if stated is None:
        return []
    before = Marks() if head is None else _stored(head)
    after = stated.after(before)
    if after == before:
        return []
    return [(_RECORD, {"of_table": table_id, "to_row_id": after.row_id, "to_identity": after.identity_text()})]


def after_history(metadata: Metadata, row_id_mark: int | None) -> Mapping[str, Any]:
    """The columns of a table with this metadata, whose commits are taken from storage."""
    stated = _of_metadata(metadata)
    after = Marks() if stated is None else stated.after(Marks())
    return {"row_id_mark": row_id_mark, "identity_marks": after.identity_text()}


def flaw_of_published(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> CommitFlaw | None:
    """Which mark a recorded commit lowers, whose file existed before; None if it lowers none."""
    row = connection.execute(_STORED, {"of_table": table_id}).one_or_none()
    # The record of the commit has not lowered the marks of the table.
    return None if row is None or proposal.checked is None else proposal.checked.marks.flaw_after(_stored(row))


def _of_metadata(metadata: Metadata | None, *, operation: str | None = None) -> StatedMarks | None:
    """What the metadata say about marks; None if they are not valid."""
    try:
        return stated_marks(domain=None, metadata=metadata, protocol=None, operation=operation)
    except CmDeltaError:
        return None


def _stored(head: Any) -> Marks:
    return Marks.stored(head.row_id_mark, head.identity_marks)
