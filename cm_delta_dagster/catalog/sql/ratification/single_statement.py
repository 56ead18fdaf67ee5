"""Ratification in a single statement, on PostgreSQL: one round trip, and no row lock is held during a network round trip.

Commits to several tables are one transaction with a statement for each. A statement ratifies the next version of a table whose
metadata and protocol do not change, and which sets at most one application id, if no check of ``checks`` is active for the table.
Every other proposal, and every refusal, is left to ``commits``. After an unknown outcome the statement can run again: its version
is taken then, and it has no effect.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from cm_delta_dagster.catalog.commit_policy import NOT_THROUGH_CATALOG
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.ratification import MAX_CLOCK_DIFFERENCE_MS, CommitProposal, Ratified, RatifiedTogether
from cm_delta_dagster.catalog.sql.database.callers import caller_of
from cm_delta_dagster.catalog.sql.database.prepared import Prepared
from cm_delta_dagster.catalog.sql.database.schema import APPLICATION_IDS, COMMITS, FEED, FEED_COUNTER, IS_ACTIVE, TABLES
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.ratification import cached_content
from cm_delta_dagster.catalog.sql.rows import application_ids
from cm_delta_dagster.catalog.sql.rows.active_checks import NONE_ACTIVE
from cm_delta_dagster.catalog.sql.rows.commits import values_of

_BEFORE = TABLES.alias("before")


def _long(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.BigInteger)


# Only the table's own policy can be put-if-absent: registration copies that of a wider scope to the table.
_ADVANCED = (
    sa.update(TABLES)
    .where(
        TABLES.c.table_id == sa.bindparam("of_table"),
        _BEFORE.c.table_id == TABLES.c.table_id,
        IS_ACTIVE,
        TABLES.c.latest_version == _long("new_version") - 1,
        TABLES.c.latest_in_commit_timestamp < _long("new_timestamp"),
        sa.or_(
            _long("new_timestamp") <= _long("max_timestamp"),
            TABLES.c.latest_in_commit_timestamp == _long("new_timestamp") - 1,
        ),
        TABLES.c.latest_version >= _long("reported"),
        sa.func.coalesce(TABLES.c.row_id_mark, -1) <= sa.func.coalesce(_long("row_id_mark"), TABLES.c.row_id_mark, -1),
        sa.exists(sa.select(FEED_COUNTER.c.counter_id)),
        NONE_ACTIVE,
        *(sa.func.coalesce(TABLES.c.commit_policy, "") != policy for policy in NOT_THROUGH_CATALOG),
    )
    .values(
        latest_version=_long("new_version"),
        latest_in_commit_timestamp=_long("new_timestamp"),
        latest_data_version=sa.case(
            (sa.bindparam("changes_data", type_=sa.Boolean), _long("new_version")), else_=TABLES.c.latest_data_version
        ),
        row_id_mark=sa.func.coalesce(_long("row_id_mark"), TABLES.c.row_id_mark),
        published_version=sa.func.greatest(TABLES.c.published_version, _long("reported")),
        content_from=cached_content.content_from_after_sql(
            TABLES.c.content_from, _long("new_version"), sa.bindparam("is_cached", type_=sa.Boolean)
        ),
    )
    .returning(
        TABLES.c.latest_data_version,
        TABLES.c.published_version,
        TABLES.c.content_from,
        # Of an earlier state of the row, not always the last one: enough to decide whether there is content to delete.
        _BEFORE.c.published_version.label("published_before"),
        _BEFORE.c.content_from.label("content_from_before"),
    )
    .cte("advanced")
)
_FROM_STATEMENT = {"data_version": _ADVANCED.c.latest_data_version}
_INSERTED = (
    sa.insert(COMMITS)
    .from_select(
        [column.name for column in COMMITS.c],
        sa.select(
            *(
                _FROM_STATEMENT.get(column.name, sa.bindparam(f"of_{column.name}", type_=column.type))
                for column in COMMITS.c
            )
        ).select_from(_ADVANCED),
    )
    .returning(COMMITS.c.version)
    .cte("inserted")
)
# The id of the entry is assigned after the row of the table is locked, so that the ids are in the order of the commits.
_APPENDED = (
    sa.insert(FEED)
    .from_select(
        ["kind", "at_ms", "table_id", "version"],
        sa.select(
            sa.literal(FeedKind.COMMIT.value),
            sa.bindparam("of_ratified_ms", type_=sa.BigInteger),
            sa.bindparam("of_table_id", type_=sa.Text),
            _INSERTED.c.version,
        ).select_from(_INSERTED),
    )
    .returning(FEED.c.entry_id)
    .cte("appended")
)
_SET_APPLICATION_ID = application_ids.changed_by(
    postgresql.insert(APPLICATION_IDS).from_select(
        [column.name for column in APPLICATION_IDS.c],
        sa.select(
            sa.bindparam("of_table_id", type_=sa.Text),
            sa.bindparam("of_app_id", type_=sa.Text),
            sa.bindparam("of_principal", type_=sa.Text),
            sa.bindparam("of_ratified_ms", type_=sa.BigInteger),
        ).select_from(_INSERTED),
    )
).cte("application_id")
_DONE = sa.select(_ADVANCED, entries.HAS_WAITERS).add_cte(_APPENDED)
_COMMIT = Prepared(_DONE)
_COMMIT_WITH_APPLICATION_ID = Prepared(_DONE.add_cte(_SET_APPLICATION_ID))


def can_ratify(proposal: CommitProposal) -> bool:
    """Whether the statement takes the proposal: it changes no definition, and has neither the token of a lease nor an approval."""
    is_plain = proposal.lease_token is None and proposal.approval_id is None
    checked = proposal.checked
    if checked is not None and (checked.metadata or checked.marks.forgets_row_id or len(set(checked.app_ids)) > 1):
        return False
    return is_plain and proposal.metadata is None and proposal.protocol is None


def commit(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_CLOCK_DIFFERENCE_MS,
) -> Ratified | None:
    """Ratify the proposal if it is the next version and :func:`can_ratify`.

    Afterwards content that is no longer needed is deleted, by a separate statement.

    Returns:
        None if the statement did not ratify the proposal; nothing was changed.
    """
    done = _run(connection, table_id, proposal, now_ms=now_ms, max_ahead_ms=max_ahead_ms)
    if done is None:
        return None
    if done.has_waiters:
        entries.notify(connection)
    _delete_unneeded(connection, table_id, done)
    return _ratified(proposal, done)


class NotRatifiedError(Exception):
    """A statement did not ratify its proposal; the transaction must be rolled back."""


def commit_together(
    connection: sa.Connection, proposals: Mapping[str, CommitProposal], *, now_ms: int, max_ahead_ms: int
) -> RatifiedTogether:
    """Ratify a proposal for each table inside of the caller's transaction, in the order of the ids, as ``commits.commit_together``.

    Raises NotRatifiedError; then nothing must be committed.
    """
    found: dict[str, Any] = {}
    for table_id, proposal in sorted(proposals.items()):
        done = _run(connection, table_id, proposal, now_ms=now_ms, max_ahead_ms=max_ahead_ms)
        if done is None:
            raise NotRatifiedError(table_id)
        found[table_id] = done
    for table_id, done in found.items():
        _delete_unneeded(connection, table_id, done)
    if any(done.has_waiters for done in found.values()):
        entries.notify_after_transaction(connection, at_ms=now_ms)
    return RatifiedTogether(
        commits={table_id: _ratified(proposals[table_id], done) for table_id, done in found.items()}
    )


def _run(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int, max_ahead_ms: int
) -> Any | None:
    """The row of the statement; None if it ratified nothing."""
    if not can_ratify(proposal):
        return None
    summary = proposal.summary
    row = {
        "of_table": table_id,
        "new_version": proposal.version,
        "new_timestamp": summary.in_commit_timestamp,
        "max_timestamp": now_ms + max_ahead_ms,
        "changes_data": summary.data_change,
        "reported": -1 if proposal.published_version is None else proposal.published_version,
        "row_id_mark": None if proposal.checked is None else proposal.checked.marks.row_id,
        "is_cached": cached_content.is_cached(proposal),
        "now_ms": now_ms,
    }
    values = values_of(table_id, proposal, now_ms=now_ms, principal=caller_of(connection))
    row |= {f"of_{name}": value for name, value in values.items() if name not in _FROM_STATEMENT}
    if proposal.checked is not None and proposal.checked.app_ids:
        row["of_app_id"] = application_ids.stored_id(proposal.checked.app_ids[0])
        found = _COMMIT_WITH_APPLICATION_ID.rows(connection, row)
    else:
        found = _COMMIT.rows(connection, row)
    return found[0] if found else None


def _delete_unneeded(connection: sa.Connection, table_id: str, done: Any) -> None:
    cached_content.delete_unneeded(
        connection,
        table_id,
        published=(done.published_before, done.published_version),
        content_from=(done.content_from_before, done.content_from),
    )


def _ratified(proposal: CommitProposal, done: Any) -> Ratified:
    return Ratified(version=proposal.version, latest_version=proposal.version, published_version=done.published_version)
