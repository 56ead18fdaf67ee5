"""The catalog database for the calls of one principal."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.callers import CallIdentity, serving
from cm_delta_dagster.catalog.sql.database.database import Database
from cm_delta_dagster.errors import CatalogError, CommitRefusedError, OperationRefusedError
from cm_delta_dagster.refusals import Refusal

_log = logging.getLogger(__name__)

T = TypeVar("T")


class RecordRefusal(Protocol):
    """Records a refusal in a transaction of its own."""

    def __call__(self, connection: sa.Connection, action: str, refusal: Refusal) -> None: ...


class CallerDatabase:
    """Reads and writes of one principal, whose refusals are recorded. Thread-safe.

    The refused transaction is rolled back, so that its record is written in another one. A failure to write it is logged,
    and does not hide the refusal.

    Attributes:
        shared: the database, whose connections serve the calls of all principals.
        caller: who calls; without a stated principal, on PostgreSQL the role that logs in.
        now_ms: the catalog's clock, epoch milliseconds.
    """

    def __init__(
        self,
        shared: Database,
        caller: CallIdentity,
        *,
        now_ms: Callable[[], int] | None,
        record_refusal: RecordRefusal,
    ) -> None:
        self.shared = shared
        self.caller = caller
        self.now_ms = shared.now_ms if now_ms is None else now_ms
        self._record_refusal = record_refusal

    def acting_as(self, caller: CallIdentity) -> "CallerDatabase":
        """The same database for the calls of another caller."""
        return CallerDatabase(self.shared, caller, now_ms=self.now_ms, record_refusal=self._record_refusal)

    def read(self, statements: Callable[[sa.Connection], T]) -> T:
        """As :meth:`Database.read`."""
        return self._recorded(self.shared.read, statements)

    def write(self, statements: Callable[[sa.Connection], T]) -> T:
        """As :meth:`Database.write`."""
        return self._recorded(self.shared.write, statements)

    def _recorded(
        self, run: Callable[[Callable[[sa.Connection], T]], T], statements: Callable[[sa.Connection], T]
    ) -> T:
        try:
            return run(self._called(statements))
        except (CommitRefusedError, OperationRefusedError) as error:
            self._record(error)
            raise

    def _called(self, statements: Callable[[sa.Connection], T]) -> Callable[[sa.Connection], T]:
        now_ms = self.now_ms()
        return lambda connection: statements(serving(connection, self.caller, now_ms=now_ms))

    def _record(self, error: CommitRefusedError | OperationRefusedError) -> None:
        refusal = error.refusal
        if refusal is None:
            return
        action = "commit" if isinstance(error, CommitRefusedError) else "operation"
        try:
            self._write_refusal(action, refusal)
        except CatalogError as failure:
            _log.warning("The refusal of %s was not recorded in the audit: %s", refusal.what, failure)

    def _write_refusal(self, action: str, refusal: Refusal) -> None:
        self.shared.write(self._called(lambda connection: self._record_refusal(connection, action, refusal)))
