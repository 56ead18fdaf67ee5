"""Rows of commits and of the heads of tables: their columns, the query of ratified commits, and their values.

Protocol heading "Getting Ratified Commits from the Catalog". Functions over an open connection.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import CommitProposal, RatifiedCommit, RatifiedCommits
from cm_delta_dagster.catalog.sql import guard
from cm_delta_dagster.catalog.sql.policies import EFFECTIVE_POLICY
from cm_delta_dagster.catalog.sql.prepared import Prepared
from cm_delta_dagster.catalog.sql.schema import COMMITS, IS_ACTIVE, TABLES
from cm_delta_dagster.errors import TableNotFoundError

COMMIT_COLUMNS = (
    COMMITS.c.version,
    COMMITS.c.file_name,
    COMMITS.c.file_size,
    COMMITS.c.file_modification_time,
    COMMITS.c.txn_id,
    COMMITS.c.in_commit_timestamp,
    COMMITS.c.mode,
    COMMITS.c.sha256,
    COMMITS.c.content,
)

THE_TABLE = sa.and_(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
HEAD_COLUMNS = (
    TABLES.c.latest_version,
    TABLES.c.published_version,
    TABLES.c.latest_data_version,
    TABLES.c.latest_in_commit_timestamp,
    TABLES.c.content_from,
    EFFECTIVE_POLICY,
)
_CONTENT_FROM = sa.bindparam("content_from_version", type_=sa.BigInteger)
_FIRST_CACHED = sa.case((TABLES.c.content_from > _CONTENT_FROM, TABLES.c.content_from), else_=_CONTENT_FROM)
# One lower bound, so that the database can use the index.
_FIRST_SERVED = sa.case(
    (TABLES.c.published_version >= _FIRST_CACHED, _FIRST_CACHED), else_=TABLES.c.published_version + 1
)
_SERVED_CONTENT = sa.case(
    (sa.or_(COMMITS.c.mode == CommitMode.INLINE.value, COMMITS.c.version >= _CONTENT_FROM), COMMITS.c.content)
).label("content")
_PRECEDING = COMMITS.alias("preceding")
# Read only if a newer version exists: a client that has the latest version compares the timestamp of that one.
_PRECEDING_TIMESTAMP = sa.case(
    (
        TABLES.c.latest_version >= _CONTENT_FROM,
        sa.select(_PRECEDING.c.in_commit_timestamp)
        .where(_PRECEDING.c.table_id == TABLES.c.table_id, _PRECEDING.c.version == _CONTENT_FROM - 1)
        .scalar_subquery(),
    )
).label("preceding_timestamp")
# One statement reads one state of the database: head and commits are consistent without a transaction.
_RATIFIED = Prepared(
    sa.select(*HEAD_COLUMNS, guard.IS_ENABLED, _PRECEDING_TIMESTAMP, *COMMIT_COLUMNS[:-1], _SERVED_CONTENT)
    .select_from(
        TABLES.outerjoin(
            COMMITS,
            sa.and_(
                COMMITS.c.table_id == TABLES.c.table_id,
                COMMITS.c.version >= _FIRST_SERVED,
                COMMITS.c.version >= sa.bindparam("first"),
                COMMITS.c.version <= sa.bindparam("last"),
            ),
        )
    )
    .where(THE_TABLE)
    .order_by(COMMITS.c.version)
)
_FIRST_VERSION, _LAST_VERSION = 0, 2**63 - 1


def get_ratified_commits(
    connection: sa.Connection, table_id: str, *, start: int | None, end: int | None, content_from_version: int | None
) -> RatifiedCommits:
    """The served commits in the range and the head of the table, in one statement."""
    parameters = {
        "of_table": table_id,
        "content_from_version": _LAST_VERSION if content_from_version is None else content_from_version,
        "first": _FIRST_VERSION if start is None else start,
        "last": _LAST_VERSION if end is None else end,
    }
    rows = _RATIFIED.rows(connection, parameters)
    if not rows:
        raise unknown_table(table_id)
    if rows[0].grants_enabled:
        guard.require_on_table(connection, guard.Operation.READ, table_id)
    return ratified_commits_of(rows[0], rows, preceding_timestamp=rows[0].preceding_timestamp)


def ratified_commits_of(head: Any, rows: Sequence[Any], *, preceding_timestamp: int | None = None) -> RatifiedCommits:
    """The value of a head and its commits. Rows of an outer join without a commit are left out."""
    found = [ratified_commit(row) for row in rows if row.version is not None]
    published = head.published_version
    return RatifiedCommits(
        latest_version=head.latest_version,
        published_version=published,
        latest_data_version=head.latest_data_version,
        commits=tuple(commit for commit in found if commit.version > published),
        commit_policy=CommitPolicy.parse(head.commit_policy),
        cached_commits=tuple(commit for commit in found if commit.version <= published and commit.content is not None),
        latest_in_commit_timestamp=head.latest_in_commit_timestamp,
        preceding_timestamp=preceding_timestamp,
    )


def ratified_commit(row: Any) -> RatifiedCommit:
    """The value of a row of ``COMMIT_COLUMNS``."""
    return RatifiedCommit(
        version=row.version,
        file_name=row.file_name,
        file_size=row.file_size,
        file_modification_time=row.file_modification_time,
        txn_id=row.txn_id,
        in_commit_timestamp=row.in_commit_timestamp,
        content=row.content,
        mode=CommitMode(row.mode),
        sha256=row.sha256,
    )


def values_of(table_id: str, proposal: CommitProposal, *, now_ms: int, principal: str | None = None) -> dict[str, Any]:
    """The row of a commit without ``data_version``, which the database computes."""
    summary = proposal.summary
    return {
        "table_id": table_id,
        "version": proposal.version,
        "mode": proposal.mode.value,
        "file_name": proposal.file_name,
        "file_size": proposal.file_size,
        "file_modification_time": proposal.file_modification_time,
        "txn_id": summary.txn_id,
        "in_commit_timestamp": summary.in_commit_timestamp,
        "operation": summary.operation,
        "data_change": summary.data_change,
        "ratified_ms": now_ms,
        "metrics": json.dumps(dict(summary.metrics)),
        "tags": json.dumps(dict(summary.tags)),
        "content": proposal.content,
        "sha256": _digest(proposal),
        "engine_info": summary.engine_info,
        "user_metadata": summary.user_metadata,
        "num_rows": None if summary.counts is None else summary.counts.num_rows,
        "num_files": None if summary.counts is None else summary.counts.num_files,
        "size_bytes": None if summary.counts is None else summary.counts.size_bytes,
        "principal": principal,
    }


def _digest(proposal: CommitProposal) -> str | None:
    """The digest of the proposal, computed from its content if the proposer did not send it."""
    if proposal.sha256 is not None or proposal.content is None:
        return proposal.sha256
    return hashlib.sha256(proposal.content).hexdigest()


def unknown_table(table_id: str) -> TableNotFoundError:
    """The error for an id that no registered table has."""
    return TableNotFoundError(
        f"No registered table has the id {table_id}: it was dropped, or never registered. "
        "Load the table by its name again."
    )
