"""Waits for new entries of the feed.

PostgreSQL wakes the waiting reader with NOTIFY. A notification can be lost, for example if the writer dies between its commit and
the notification, or behind a connection pooler. Therefore a reader also looks by itself every few seconds. Readers of SQLite, and
roles of PostgreSQL that may only read, look with increasing intervals.
"""

import time
import uuid
from collections.abc import Callable

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.database import Database
from cm_delta_dagster.catalog.sql.database.schema import FEED_WAITERS
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.errors import CatalogError, PermissionDeniedError

_FIRST_POLL_S, _MAX_POLL_S = 0.01, 1.0
_NOTIFIED_POLL_S = 5.0
"""Seconds after which a reader that waits for notifications looks by itself."""


def wait(database: Database, has_new: Callable[[], bool], *, seconds: float) -> bool:
    """Whether ``has_new()`` became true within ``seconds``. Raises CatalogError if the catalog cannot be read."""
    deadline = time.monotonic() + seconds
    if has_new():
        return True
    if seconds <= 0:
        return False
    if database.is_sqlite:
        return _poll(has_new, deadline)
    return _listen(database, has_new, deadline)


def _poll(has_new: Callable[[], bool], deadline: float) -> bool:
    backoff = _FIRST_POLL_S
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(backoff, left))
        if has_new():
            return True
        backoff = min(2 * backoff, _MAX_POLL_S)
    return False


def _listen(database: Database, has_new: Callable[[], bool], deadline: float) -> bool:
    waiter = str(uuid.uuid4())
    until_ms = database.now_ms() + int((deadline - time.monotonic()) * 1000) + 1
    try:
        database.read(
            lambda connection: connection.execute(sa.insert(FEED_WAITERS).values(waiter_id=waiter, until_ms=until_ms))
        )
    except PermissionDeniedError:  # Writers do not notify a role that may only read.
        return _poll(has_new, deadline)
    try:
        with database.listening(entries.CHANNEL) as notified:
            # A writer that did not see this reader has usually committed before this look; one that waited for a lock is found by
            # a later look.
            while not has_new():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                notified(min(left, _NOTIFIED_POLL_S))
            return True
    finally:
        _forget(database, waiter)


def _forget(database: Database, waiter: str) -> None:
    gone = sa.delete(FEED_WAITERS).where(
        sa.or_(FEED_WAITERS.c.waiter_id == waiter, FEED_WAITERS.c.until_ms < database.now_ms() - 60_000)
    )
    try:
        database.read(lambda connection: connection.execute(gone))
    except CatalogError:  # The entry expires.
        return
