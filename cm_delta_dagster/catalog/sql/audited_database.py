"""A catalog database that records what its rules refuse."""

import logging
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import audit
from cm_delta_dagster.catalog.sql.database import Database
from cm_delta_dagster.errors import CatalogError, CommitRefusedError, OperationRefusedError, Refusal

_log = logging.getLogger(__name__)

T = TypeVar("T")


class AuditedDatabase(Database):
    """A database whose refusals are entries of the audit.

    The refused transaction is rolled back, so that the entry is written in another one. A failure to write it is logged, and
    does not hide the refusal.
    """

    def read(self, statements: Callable[[sa.Connection], T]) -> T:
        try:
            return super().read(statements)
        except (CommitRefusedError, OperationRefusedError) as error:
            self._record(error)
            raise

    def write(self, statements: Callable[[sa.Connection], T]) -> T:
        try:
            return super().write(statements)
        except (CommitRefusedError, OperationRefusedError) as error:
            self._record(error)
            raise

    def _record(self, error: CommitRefusedError | OperationRefusedError) -> None:
        refusal = error.refusal
        if refusal is None:
            return
        action = "commit" if isinstance(error, CommitRefusedError) else "operation"
        try:
            self._write_refusal(action, refusal)
        except CatalogError:
            _log.warning("The refusal of %s was not recorded in the audit", refusal.what, exc_info=True)

    def _write_refusal(self, action: str, refusal: Refusal) -> None:
        now_ms = self.now_ms()
        super().write(lambda connection: audit.record_refusal(connection, action, refusal, now_ms=now_ms))
