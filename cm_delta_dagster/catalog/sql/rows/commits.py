"""Rows of commits and of the heads of tables: their columns and their values."""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import CommitProposal, RatifiedCommit, RatifiedCommits
from cm_delta_dagster.catalog.sql.database.callers import now_of
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, IS_ACTIVE, TABLES
from cm_delta_dagster.catalog.sql.rows.effective_policy import EFFECTIVE_POLICY

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


def ratified_commits_of(head: Any, rows: Sequence[Any], *, preceding_timestamp: int | None = None) -> RatifiedCommits:
    """The value of a head and its commits. Rows of an outer join without a commit are left out."""
    commits = [ratified_commit(row) for row in rows if row.version is not None]
    published = head.published_version
    return RatifiedCommits(
        latest_version=head.latest_version,
        published_version=published,
        latest_data_version=head.latest_data_version,
        commits=tuple(commit for commit in commits if commit.version > published),
        commit_policy=_policy(head.commit_policy),
        cached_commits=tuple(
            commit for commit in commits if commit.version <= published and commit.content is not None
        ),
        latest_in_commit_timestamp=head.latest_in_commit_timestamp,
        preceding_timestamp=preceding_timestamp,
    )


@lru_cache(maxsize=256)
def _policy(text: str) -> CommitPolicy:
    """The policy of a row; many rows have the same one."""
    return CommitPolicy.parse(text)


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


def values_of(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, *, principal: str | None = None
) -> dict[str, Any]:
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
        "ratified_ms": now_of(connection),
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
