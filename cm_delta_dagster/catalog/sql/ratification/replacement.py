"""Other content of a ratified commit that no reader can use.

Functions over an open connection; the caller opens the transaction. They do not touch files.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, RatifiedCommit
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.rows import locked_heads, marks
from cm_delta_dagster.catalog.sql.rows.commits import COMMIT_COLUMNS
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.errors import RecoveryError

_THE_COMMIT = sa.and_(COMMITS.c.table_id == sa.bindparam("of_table"), COMMITS.c.version == sa.bindparam("at"))
_RECORD = sa.select(*COMMIT_COLUMNS).where(_THE_COMMIT)
_NAME = sa.select(TABLES).where(TABLES.c.table_id == sa.bindparam("of_table"))


def replace_commit(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    *,
    replaces: RatifiedCommit,
    data_change: bool,
    reason: str,
    now_ms: int,
) -> bool:
    """Under the lock of the table's row; see :meth:`RecoverableCatalog.replace_commit`."""
    guard.require_on_table(connection, Operation.RECOVER, table_id)
    if locked_heads.locked_head(connection, table_id) is None:
        raise unknown_table(table_id)
    name = str(identifier_of(connection.execute(_NAME, {"of_table": table_id}).one()))
    which = {"of_table": table_id, "at": proposal.version}
    row = connection.execute(_RECORD, which).one_or_none()
    if row is not None and row.sha256 == proposal.sha256 and row.txn_id == proposal.summary.txn_id:
        return False
    expected = (replaces.txn_id, replaces.file_name, replaces.file_size, replaces.sha256)
    if row is None or (row.txn_id, row.file_name, row.file_size, row.sha256) != expected:
        raise RecoveryError(
            f"Version {proposal.version} of {name} was not replaced: the catalog's record of it has changed since the table was "
            "checked. Run doctor again."
        )
    values = {
        "mode": CommitMode.STAGED.value,
        "file_name": proposal.file_name,
        "file_size": proposal.file_size,
        "file_modification_time": proposal.file_modification_time,
        "sha256": proposal.sha256,
        "data_change": data_change,
        # The catalog serves the content of consecutive versions.
        "content": None if row.content is None else proposal.content,
        "num_rows": None,
        "num_files": None,
        "size_bytes": None,
    }
    connection.execute(sa.update(COMMITS).where(_THE_COMMIT).values(**values), which)
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(**marks.UNKNOWN))
    change = audit.Change(
        action="take back commit",
        scope=name,
        before=f"version {proposal.version}, SHA-256 {replaces.sha256 or 'unknown'}",
        after=f"version {proposal.version}, SHA-256 {proposal.sha256}",
        reason=reason,
        table_id=table_id,
    )
    audit.record(connection, change)
    return True
