"""Ratification: one winner for each version, in order (CM-C1 to CM-C14).

Functions over an open connection; the transaction around them is the caller's.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    KEPT_COMMITS,
    KEPT_CONTENT_BYTES,
    CommitOutcome,
    CommitPolicyChanged,
    CommitProposal,
    CommitSummary,
    InitialCommit,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql import definitions
from cm_delta_dagster.catalog.sql.policies import EFFECTIVE_POLICY
from cm_delta_dagster.catalog.sql.prepared import Prepared
from cm_delta_dagster.catalog.sql.schema import COMMITS, FEED_COUNTER, IS_ACTIVE, TABLES
from cm_delta_dagster.errors import CatalogError, CommitRejectedError, InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.protocol.log import log_files

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

_THE_TABLE = sa.and_(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
_HEAD_COLUMNS = (
    TABLES.c.latest_version,
    TABLES.c.published_version,
    TABLES.c.latest_data_version,
    TABLES.c.latest_in_commit_timestamp,
    TABLES.c.content_from,
    EFFECTIVE_POLICY,
)
_LOCKED_HEAD = Prepared(sa.select(*_HEAD_COLUMNS).where(_THE_TABLE).with_for_update())
_ADVANCE = Prepared(
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(
        latest_version=sa.bindparam("new_version"),
        latest_data_version=sa.bindparam("new_data_version"),
        latest_in_commit_timestamp=sa.bindparam("new_timestamp"),
        published_version=sa.bindparam("published"),
        content_from=sa.bindparam("new_content_from"),
    )
)
_NEXT_POSITION = Prepared(
    sa.update(FEED_COUNTER)
    .where(FEED_COUNTER.c.counter_id == 1)
    .values(position=FEED_COUNTER.c.position + 1)
    .returning(FEED_COUNTER.c.position)
)
_INSERT = Prepared(sa.insert(COMMITS).inline())
_WINNERS = (
    sa.select(*COMMIT_COLUMNS)
    .where(COMMITS.c.table_id == sa.bindparam("of_table"), COMMITS.c.version >= sa.bindparam("first"))
    .order_by(COMMITS.c.version)
)
_KEPT_FROM = sa.bindparam("content_from_version", type_=sa.BigInteger)
_FIRST_KEPT = sa.case((TABLES.c.content_from > _KEPT_FROM, TABLES.c.content_from), else_=_KEPT_FROM)
# Written as one lower bound, which the index can use.
_FIRST_SERVED = sa.case((TABLES.c.published_version >= _FIRST_KEPT, _FIRST_KEPT), else_=TABLES.c.published_version + 1)
_SERVED_CONTENT = sa.case(
    (sa.or_(COMMITS.c.mode == CommitMode.INLINE.value, COMMITS.c.version >= _KEPT_FROM), COMMITS.c.content)
).label("content")
_PRECEDING = COMMITS.alias("preceding")
# Looked up only where a newer version exists: a client that has the latest version already compares that one.
_PRECEDING_TIMESTAMP = sa.case(
    (
        TABLES.c.latest_version >= _KEPT_FROM,
        sa.select(_PRECEDING.c.in_commit_timestamp)
        .where(_PRECEDING.c.table_id == TABLES.c.table_id, _PRECEDING.c.version == _KEPT_FROM - 1)
        .scalar_subquery(),
    )
).label("preceding_timestamp")
# One statement sees one state of the database: the head and the commits fit together without a transaction.
_RATIFIED = Prepared(
    sa.select(*_HEAD_COLUMNS, _PRECEDING_TIMESTAMP, *COMMIT_COLUMNS[:-1], _SERVED_CONTENT)
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
    .where(_THE_TABLE)
    .order_by(COMMITS.c.version)
)
_PUBLISH = (
    sa.update(TABLES)
    .where(
        _THE_TABLE,
        TABLES.c.published_version < sa.bindparam("published"),
        TABLES.c.latest_version >= sa.bindparam("published"),
    )
    .values(published_version=sa.bindparam("published"))
)
_FORGET = (
    sa.update(COMMITS)
    .where(
        COMMITS.c.table_id == sa.bindparam("of_table"),
        COMMITS.c.version <= sa.bindparam("published"),
        COMMITS.c.version
        < sa.select(TABLES.c.content_from).where(TABLES.c.table_id == sa.bindparam("of_table")).scalar_subquery(),
        COMMITS.c.content.is_not(None),
    )
    .values(content=None)
)
_HEAD = sa.select(*_HEAD_COLUMNS).where(_THE_TABLE)

_FIRST_VERSION, _LAST_VERSION = 0, 2**63 - 1
_SLIDES_BY = 16
"""Contents are forgotten so many commits at a time, so that few commits pay for it."""


def locked_head(connection: sa.Connection, table_id: str) -> Any | None:
    """What ratification needs to know of the table, whose row is locked until the transaction ends; None if it is unknown."""
    rows = _LOCKED_HEAD.rows(connection, {"of_table": table_id})
    return rows[0] if rows else None


def commit(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int, max_ahead_ms: int
) -> CommitOutcome:
    """Compare-and-set of the latest version, under the lock of the table's row."""
    head = locked_head(connection, table_id)
    if head is None:
        raise unknown_table(table_id)
    if proposal.version <= head.latest_version:
        return _taken_or_repeated(connection, table_id, proposal, head)
    policy = CommitPolicy.parse(head.commit_policy)
    if not policy.through_catalog:
        return CommitPolicyChanged(policy=policy)
    mark = head.published_version if proposal.published_version is None else proposal.published_version
    if mark > head.latest_version:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was proposed with the word that version {mark} is published, "
            f"but the latest ratified version is {head.latest_version}. Publish only what was ratified."
        )
    check_timestamp(
        table_id,
        proposal.version,
        proposal.summary,
        previous=head.latest_in_commit_timestamp,
        now_ms=now_ms,
        max_ahead_ms=max_ahead_ms,
    )
    published = max(mark, head.published_version)
    _ratify(connection, table_id, proposal, head, published=published, now_ms=now_ms)
    return Ratified(version=proposal.version, latest_version=proposal.version, published_version=published)


def check_timestamp(
    table_id: str, version: int, summary: CommitSummary, *, previous: int | None, now_ms: int, max_ahead_ms: int
) -> None:
    """Refuse a time that all later commits would have to exceed.

    A timestamp right after the previous one is not refused: the history of the table lies in the future already.

    Args:
        previous: in-commit timestamp of the version before; None for version 0.

    Raises:
        CommitRejectedError: the timestamp lies more than ``max_ahead_ms`` ahead of ``now_ms``.
    """
    timestamp = summary.in_commit_timestamp
    if timestamp - now_ms <= max_ahead_ms or (previous is not None and timestamp == previous + 1):
        return
    raise CommitRejectedError(
        f"Version {version} of table {table_id} was proposed with the in-commit timestamp {timestamp}, which lies "
        f"{(timestamp - now_ms) / 1000:.0f} seconds ahead of the catalog's clock ({now_ms}); the catalog allows "
        f"{max_ahead_ms / 1000:.0f} seconds, because every later commit has to have a later timestamp. Nothing was "
        "committed. Set the clock of the writer's machine, and keep ClientSettings.max_clock_difference_ms within "
        "that bound."
    )


def record_published(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int
) -> Ratified | VersionTaken:
    """Ratified and published in one, by a file that is there already; under the lock of the table's row."""
    head = locked_head(connection, table_id)
    if head is None:
        raise unknown_table(table_id)
    if proposal.version <= head.latest_version:
        rows = connection.execute(_WINNERS, {"of_table": table_id, "first": proposal.version}).all()
        if rows and rows[0].txn_id == proposal.summary.txn_id:
            return _repeated(proposal, head)
        return VersionTaken(proposed_version=proposal.version, winners=_winners(head, rows))
    policy = CommitPolicy.parse(head.commit_policy)
    if policy.through_catalog or head.published_version != head.latest_version:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was reported as made by creating its file, but commits of that "
            f"table are made {policy.kind.value} and it is published up to version {head.published_version} of "
            f"{head.latest_version}. Somebody wrote into its _delta_log without asking the catalog."
        )
    _ratify(connection, table_id, proposal, head, published=proposal.version, now_ms=now_ms)
    return Ratified(version=proposal.version, latest_version=proposal.version, published_version=proposal.version)


def _ratify(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, head: Any, *, published: int, now_ms: int
) -> None:
    latest, latest_timestamp = head.latest_version, head.latest_in_commit_timestamp
    if proposal.version > latest + 1:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was proposed, but the latest is {latest}: versions are "
            f"ratified one after the other. Propose {latest + 1} against a fresh snapshot."
        )
    if proposal.summary.in_commit_timestamp <= latest_timestamp:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was proposed with the in-commit timestamp "
            f"{proposal.summary.in_commit_timestamp}, not later than {latest_timestamp} of version {latest}: each has "
            "to be greater than the one before."
        )
    content_from = _content_from(proposal, head.content_from)
    insert_commit(
        connection,
        table_id,
        proposal,
        data_version=proposal.version if proposal.summary.data_change else head.latest_data_version,
        published=published,
        content_from=content_from,
        now_ms=now_ms,
    )
    definitions.record(
        connection,
        table_id,
        metadata=proposal.metadata,
        protocol=proposal.protocol,
        version=proposal.version,
        in_commit_timestamp=proposal.summary.in_commit_timestamp,
        changed_by_commit=True,
    )
    forget(
        connection,
        table_id,
        published=(head.published_version, published),
        content_from=(head.content_from, content_from),
    )


def forget(
    connection: sa.Connection, table_id: str, *, published: tuple[int, int], content_from: tuple[int, int]
) -> None:
    """Drop the contents that neither a reader nor a publisher needs any more, if there can be any.

    Args:
        published, content_from: before and after a commit.
    """
    moved = published[1] > published[0] and published[0] + 1 < content_from[1]
    if moved or content_from[1] - content_from[0] > 1:  # By one only where nothing was kept before.
        connection.execute(_FORGET, {"of_table": table_id, "published": published[1]})


def is_kept(proposal: CommitProposal) -> bool:
    """Whether the content of a commit is served beyond its publication."""
    return proposal.content is not None and len(proposal.content) <= KEPT_CONTENT_BYTES


def _content_from(proposal: CommitProposal, before: int) -> int:
    """From which version on content is kept beyond publication, once ``proposal`` is ratified.

    A commit without content, or with a large one, ends the row of those that are kept: so it has no gaps, and a table never
    keeps more than ``KEPT_COMMITS + _SLIDES_BY`` times ``KEPT_CONTENT_BYTES``.
    """
    if not is_kept(proposal):
        return proposal.version + 1
    oldest = proposal.version - KEPT_COMMITS + 1
    return oldest if oldest - before >= _SLIDES_BY else before


def next_content_from(
    before: sa.ColumnElement[int], version: sa.ColumnElement[int], kept: sa.ColumnElement[bool]
) -> sa.ColumnElement[int]:
    """The same in SQL."""
    oldest = version - (KEPT_COMMITS - 1)
    return sa.case((sa.not_(kept), version + 1), (oldest - before >= _SLIDES_BY, oldest), else_=before)


def insert_commit(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    *,
    data_version: int,
    published: int,
    content_from: int,
    now_ms: int,
) -> None:
    """Advance the table and write the commit with the next feed position. The caller holds the table's row lock."""
    summary = proposal.summary
    _ADVANCE.run(
        connection,
        {
            "of_table": table_id,
            "new_version": proposal.version,
            "new_data_version": data_version,
            "new_timestamp": summary.in_commit_timestamp,
            "published": published,
            "new_content_from": content_from,
        },
    )
    position = next((row.position for row in _NEXT_POSITION.rows(connection, {})), None)
    if position is None:
        raise CatalogError("The catalog's feed has lost its counter; restore the database from a backup.")
    values = values_of(table_id, proposal, now_ms=now_ms)
    _INSERT.run(connection, values | {"position": position, "data_version": data_version})


def values_of(table_id: str, proposal: CommitProposal, *, now_ms: int) -> dict[str, Any]:
    """The row of a commit, but for what only the database knows: ``position`` and ``data_version``."""
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
    }


def _digest(proposal: CommitProposal) -> str | None:
    """The digest of a commit, computed where its content is known and the proposer did not tell."""
    if proposal.sha256 is not None or proposal.content is None:
        return proposal.sha256
    return hashlib.sha256(proposal.content).hexdigest()


def insert_initial_commit(
    connection: sa.Connection, table_id: str, summary: CommitSummary, initial: InitialCommit | None, *, now_ms: int
) -> None:
    """Version 0, which is published from the start, under its published name."""
    proposal = CommitProposal(
        version=0,
        file_name=log_files.commit_file_name(0),
        file_size=0 if initial is None else initial.file_size,
        file_modification_time=0 if initial is None else initial.file_modification_time,
        summary=summary,
        mode=CommitMode.STAGED,
        content=None if initial is None or initial.file_size > KEPT_CONTENT_BYTES else initial.content,
        sha256=None if initial is None else initial.sha256,
    )
    insert_commit(
        connection,
        table_id,
        proposal,
        data_version=0,
        published=0,
        content_from=_content_from(proposal, 0),
        now_ms=now_ms,
    )
    if initial is not None:
        definitions.record(
            connection,
            table_id,
            metadata=initial.metadata,
            protocol=initial.protocol,
            version=0,
            in_commit_timestamp=summary.in_commit_timestamp,
            changed_by_commit=False,
        )


def _taken_or_repeated(connection: sa.Connection, table_id: str, proposal: CommitProposal, head: Any) -> CommitOutcome:
    rows = connection.execute(_WINNERS, {"of_table": table_id, "first": proposal.version}).all()
    if rows and (rows[0].file_name, rows[0].file_size) == (proposal.file_name, proposal.file_size):
        return _repeated(proposal, head)
    return VersionTaken(proposed_version=proposal.version, winners=_winners(head, rows))


def _winners(head: Any, rows: Sequence[Any]) -> RatifiedCommits:
    """Published or not, and with all the content that there is."""
    return replace(ratified_commits(head, ()), commits=tuple(ratified_commit(row) for row in rows))


def _repeated(proposal: CommitProposal, head: Any) -> Ratified:
    return Ratified(
        version=proposal.version,
        latest_version=head.latest_version,
        published_version=head.published_version,
        repeated=True,
    )


def get_ratified_commits(
    connection: sa.Connection, table_id: str, *, start: int | None, end: int | None, content_from_version: int | None
) -> RatifiedCommits:
    """The served commits in the range, and the table's head, from one statement."""
    parameters = {
        "of_table": table_id,
        "content_from_version": _LAST_VERSION if content_from_version is None else content_from_version,
        "first": _FIRST_VERSION if start is None else start,
        "last": _LAST_VERSION if end is None else end,
    }
    rows = _RATIFIED.rows(connection, parameters)
    if not rows:
        raise unknown_table(table_id)
    return ratified_commits(rows[0], rows, preceding_timestamp=rows[0].preceding_timestamp)


def ratified_commits(head: Any, rows: Sequence[Any], *, preceding_timestamp: int | None = None) -> RatifiedCommits:
    """The answer's value; rows of an outer join without a commit are left out."""
    found = [ratified_commit(row) for row in rows if row.version is not None]
    mark = head.published_version
    return RatifiedCommits(
        latest_version=head.latest_version,
        published_version=mark,
        latest_data_version=head.latest_data_version,
        commits=tuple(commit for commit in found if commit.version > mark),
        commit_policy=CommitPolicy.parse(head.commit_policy),
        cached_commits=tuple(commit for commit in found if commit.version <= mark and commit.content is not None),
        latest_in_commit_timestamp=head.latest_in_commit_timestamp,
        preceding_timestamp=preceding_timestamp,
    )


def ratified_commit(row: Any) -> RatifiedCommit:
    """The value of ``COMMIT_COLUMNS``."""
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


def set_published_version(connection: sa.Connection, table_id: str, version: int) -> None:
    """Forwards only, and only up to the latest version; then every content up to there is in ``_delta_log`` too."""
    if connection.execute(_PUBLISH, {"of_table": table_id, "published": version}).rowcount:
        connection.execute(_FORGET, {"of_table": table_id, "published": version})
        return
    head = connection.execute(_HEAD, {"of_table": table_id}).one_or_none()
    if head is None:
        raise unknown_table(table_id)
    if version > head.latest_version:
        raise InvalidArgumentError(
            f"Version {version} of table {table_id} was reported as published, but the latest ratified version is "
            f"{head.latest_version}. Publish only what was ratified."
        )


def unknown_table(table_id: str) -> TableNotFoundError:
    """The error for an id that no registered table has."""
    return TableNotFoundError(
        f"No registered table has the id {table_id}: it was dropped, or never registered. "
        "Load the table by its name again."
    )
