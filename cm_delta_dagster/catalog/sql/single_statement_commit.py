"""Ratification in a single statement, on databases that can: one way to the server and back, and locks that no network holds.

It says yes or nothing. Whatever is not a plain next version of a table whose definition stays as it is, and
every refusal, is left to :mod:`~cm_delta_dagster.catalog.sql.commits`, which tells what is the matter. Run a second time, when the
first answer was lost, the statement finds its version taken and has no effect.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import MAX_CLOCK_DIFFERENCE_MS, CommitProposal, Ratified
from cm_delta_dagster.catalog.sql import commits
from cm_delta_dagster.catalog.sql.prepared import Prepared
from cm_delta_dagster.catalog.sql.schema import COMMITS, FEED_COUNTER, IS_ACTIVE, TABLES

_NOT_THROUGH_CATALOG = [
    str(CommitPolicy(kind=kind)) for kind in (CommitPolicyKind.PUT_IF_ABSENT, CommitPolicyKind.SWITCHING)
]
_BEFORE = TABLES.alias("before")


def _long(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.BigInteger)


# Only the table's own policy can lead past the catalog: a wider scope's put-if-absent was copied to its tables.
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
        TABLES.c.latest_version >= _long("mark"),
        sa.exists(sa.select(FEED_COUNTER.c.counter_id)),
        *(sa.func.coalesce(TABLES.c.commit_policy, "") != policy for policy in _NOT_THROUGH_CATALOG),
    )
    .values(
        latest_version=_long("new_version"),
        latest_in_commit_timestamp=_long("new_timestamp"),
        latest_data_version=sa.case(
            (sa.bindparam("changes_data", type_=sa.Boolean), _long("new_version")), else_=TABLES.c.latest_data_version
        ),
        published_version=sa.func.greatest(TABLES.c.published_version, _long("mark")),
        content_from=commits.next_content_from(
            TABLES.c.content_from, _long("new_version"), sa.bindparam("is_kept", type_=sa.Boolean)
        ),
    )
    .returning(
        TABLES.c.latest_data_version,
        TABLES.c.published_version,
        TABLES.c.content_from,
        # Of the row as it was, or a little earlier: good enough to tell whether there is something to forget.
        _BEFORE.c.published_version.label("published_before"),
        _BEFORE.c.content_from.label("content_from_before"),
    )
    .cte("advanced")
)
_POSITION = (
    sa.update(FEED_COUNTER)
    .where(FEED_COUNTER.c.counter_id == 1, sa.exists(sa.select(_ADVANCED.c.content_from)))
    .values(position=FEED_COUNTER.c.position + 1)
    .returning(FEED_COUNTER.c.position)
    .cte("placed")
)
_FROM_STATEMENT = {"position": _POSITION.c.position, "data_version": _ADVANCED.c.latest_data_version}
_INSERTED = (
    sa.insert(COMMITS)
    .from_select(
        [column.name for column in COMMITS.c],
        sa.select(
            *(
                _FROM_STATEMENT.get(column.name, sa.bindparam(f"of_{column.name}", type_=column.type))
                for column in COMMITS.c
            )
        ).select_from(_POSITION.join(_ADVANCED, sa.true())),
    )
    .returning(COMMITS.c.version)
    .cte("inserted")
)
_COMMIT = Prepared(sa.select(_ADVANCED).add_cte(_INSERTED))


def commit(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_CLOCK_DIFFERENCE_MS,
) -> Ratified | None:
    """Ratify the proposal if it is the plain next version; None, and nothing done, if it may not be or is anything else.

    Afterwards published contents that nobody needs are forgotten, in a statement of its own.
    """
    if proposal.metadata is not None or proposal.protocol is not None:
        return None
    summary = proposal.summary
    mark = -1 if proposal.published_version is None else proposal.published_version
    row = {
        "of_table": table_id,
        "new_version": proposal.version,
        "new_timestamp": summary.in_commit_timestamp,
        "max_timestamp": now_ms + max_ahead_ms,
        "changes_data": summary.data_change,
        "mark": mark,
        "is_kept": commits.is_kept(proposal),
    }
    values = commits.values_of(table_id, proposal, now_ms=now_ms)
    found = _COMMIT.rows(
        connection, row | {f"of_{name}": value for name, value in values.items() if name not in _FROM_STATEMENT}
    )
    if not found:
        return None
    done = found[0]
    commits.forget(
        connection,
        table_id,
        published=(done.published_before, done.published_version),
        content_from=(done.content_from_before, done.content_from),
    )
    return Ratified(version=proposal.version, latest_version=proposal.version, published_version=done.published_version)
