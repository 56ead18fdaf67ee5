"""Interface of the target of a write: a table, or the creation of a table."""

import typing
from collections.abc import Callable, Mapping

from cm_delta_dagster.catalog.held_commits import HeldCommits
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.commits.written_data import WrittenData
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.storage.store import Store


class _WriteServices(typing.Protocol):
    @property
    def holds(self) -> HeldCommits: ...

    @property
    def settings(self) -> ClientSettings: ...

    @property
    def now_ms(self) -> Callable[[], int]:
        """The client's clock, epoch milliseconds."""
        ...


class WriteTarget(typing.Protocol):
    """Implemented by ``client.table.Table``, ``client.creation.CreateTransaction`` and subclasses of ``TableTarget``."""

    @property
    def identifier(self) -> TableIdentifier: ...

    @property
    def table_id(self) -> str: ...

    @property
    def location(self) -> str:
        """Absolute URI of the table root, no trailing slash."""
        ...

    @property
    def store(self) -> Store: ...

    @property
    def services(self) -> _WriteServices: ...

    def snapshot(self) -> Snapshot:
        """The state that the write builds on: the latest version, or that of :meth:`Snapshot.before_creation`."""
        ...

    def find_transaction(self, *, app_id: str, version: int) -> int | None:
        """The table version whose commit holds ``txn`` of ``app_id`` and ``version``; None if no recent commit does."""
        ...

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitProperties = NO_PROPERTIES,
    ) -> Transaction:
        """Start the write that builds on ``snapshot``.

        Args:
            snapshot: what :meth:`snapshot` returned. A creation always builds on its own, whatever is passed.
            operation, parameters: name and parameters of the operation, which a write to a table records in ``commitInfo``. A
                creation records ``CREATE TABLE AS SELECT`` and the parameters of the creation instead.
            context: what its user says about the commit.
        """
        ...

    def commit_write(self, transaction: Transaction, data: WrittenData) -> Committed:
        """Commit a transaction of :meth:`start_transaction`, or keep it and ``data`` until other tables are committed, too.

        Raises as :meth:`Transaction.commit`.
        """
        ...
