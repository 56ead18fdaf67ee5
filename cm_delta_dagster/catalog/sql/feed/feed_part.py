"""The base of the parts of the catalog that read the feed."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.parts import Part
from cm_delta_dagster.catalog.sql.database.schema import FEED_COUNTER, IDENTITY
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.errors import PermissionDeniedError

HEAD = sa.select(
    IDENTITY.c.catalog_id,
    FEED_COUNTER.c.position.label("latest_position"),
    FEED_COUNTER.c.deleted_up_to,
    entries.IS_WAITING,
).select_from(IDENTITY.join(FEED_COUNTER, sa.and_(IDENTITY.c.row_id == 1, FEED_COUNTER.c.counter_id == 1)))
"""The state of the feed."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_FeedPartT = TypeVar("_FeedPartT", bound="FeedPart")


def reads_placed(
    operation: Callable[Concatenate[_FeedPartT, sa.Connection, _P], tuple[_T, bool]],
) -> Callable[Concatenate[_FeedPartT, _P], _T]:
    """Run an operation as ``parts.reads``; if it answers that entries wait for their positions, place them and run it again.

    A database role that may only read sees the entries that other clients have placed.
    """

    @wraps(operation)
    def run(part: _FeedPartT, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        def read() -> tuple[_T, bool]:
            return part._database.read(lambda connection: operation(part, connection, *arguments, **named))

        answer, is_waiting = read()
        return read()[0] if is_waiting and part._place() else answer

    return run


class FeedPart(Part):
    """A part of the catalog that reads the feed.

    A read takes one statement, and a second one after a transaction that places new entries of PostgreSQL.
    """

    @reads_placed
    def _head(self, connection: sa.Connection) -> tuple[Any, bool]:
        """``catalog_id``, ``latest_position`` and ``deleted_up_to`` after all entries are placed."""
        head = connection.execute(HEAD).one()
        return head, bool(head.is_waiting)

    def _place(self) -> bool:
        """Place all entries; whether the caller may do that."""
        try:
            while self._database.write(entries.place):
                pass
            return True
        except PermissionDeniedError:
            return False
