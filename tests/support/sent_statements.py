"""The SQL statements that a process sends to its databases."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

_REQUEST_THREADS = "AnyIO worker thread"


@contextmanager
def sent_statements(part: str) -> Iterator[list[str]]:
    """The statements with the text ``part`` that any SQLAlchemy connection sends within the block, in order."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if part in statement:
            sent.append(statement)

    # The clients of a sensor's tick, and their engines, are not known before the tick.
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@contextmanager
def statements_of_requests() -> Iterator[list[str]]:
    """The statements that the requests of a server in this process run on SQLite within the block, without those of tokens.

    Also those that SQLAlchemy does not see. The server runs requests in threads of their own, beside its background work.
    """
    sent: list[str] = []

    def note(statement: str) -> None:
        if "cm_delta_tokens" not in statement and threading.current_thread().name.startswith(_REQUEST_THREADS):
            sent.append(statement)

    def begin(driver: Any, *_: object) -> None:
        driver.set_trace_callback(note)

    def end(driver: Any, *_: object) -> None:
        driver.set_trace_callback(None)

    sa.event.listen(sa.pool.Pool, "checkout", begin)
    sa.event.listen(sa.pool.Pool, "checkin", end)
    try:
        yield sent
    finally:
        sa.event.remove(sa.pool.Pool, "checkout", begin)
        sa.event.remove(sa.pool.Pool, "checkin", end)
