"""How a transaction ends: statements that are sent together with its COMMIT, and what its connection does afterwards.

On PostgreSQL the statements and the COMMIT are one round trip, so that the locks of the transaction are held for one less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.errors import code_of, is_busy
from cm_delta_dagster.catalog.sql.database.prepared import Call, run_and_commit

_END = "cm_delta_transaction_end"

Follow: TypeAlias = Callable[[sa.Connection, Sequence[Any]], None]
"""Takes the rows of the last statement of the transaction, outside of it. Raises nothing."""


class UnknownOutcomeError(Exception):
    """The database did not answer the commit, which may have taken effect."""


@dataclass(slots=True)
class _End:
    calls: list[Call] = field(default_factory=list)
    question: Call | None = None
    follow: Follow | None = None


def defer(connection: sa.Connection, calls: Sequence[Call]) -> None:
    """Run statements at the end of the transaction, in the order in which they were deferred. Their rows are not read."""
    _end_of(connection).calls += calls


def follow(connection: sa.Connection, question: Call, action: Follow) -> None:
    """Have ``action`` get the rows of ``question``, the last statement of the transaction, in place of what was set before."""
    end = _end_of(connection)
    end.question, end.follow = question, action


def forget(connection: sa.Connection) -> None:
    """Call at the start of a transaction: the former one may have been rolled back."""
    connection.info.pop(_END, None)


def commit(connection: sa.Connection) -> None:
    """Run the deferred statements, commit, and run the action.

    Raises:
        sa.exc.DBAPIError: nothing is committed.
        UnknownOutcomeError: do not run the transaction again.
    """
    end: _End = connection.info.pop(_END, None) or _End()
    calls = end.calls if end.question is None else [*end.calls, end.question]
    answers = _run_with_commit(connection, calls) if calls else []
    if connection.in_transaction():
        _commit(connection)
    if end.follow is not None:
        end.follow(connection, answers[-1])


def _run_with_commit(connection: sa.Connection, calls: Sequence[Call]) -> list[Sequence[Any]]:
    try:
        return run_and_commit(connection, calls)
    except sa.exc.DBAPIError as error:
        if error.connection_invalidated:
            raise UnknownOutcomeError(str(error.orig)) from error
        raise


def _commit(connection: sa.Connection) -> None:
    """Commit the transaction; sends nothing if a statement has committed it."""
    try:
        connection.commit()
    except sa.exc.DBAPIError as error:
        if is_busy(error) or code_of(error).startswith("SQLITE_FULL"):
            raise
        raise UnknownOutcomeError(str(error.orig)) from error


def _end_of(connection: sa.Connection) -> _End:
    end: _End = connection.info.setdefault(_END, _End())
    return end
