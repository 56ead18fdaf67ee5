"""A target of writes that forwards to a table of the catalog; a base of targets that change how a write starts or ends."""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.commits.written_data import WrittenData
from cm_delta_dagster.client.services import Services
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.storage.store import Store


class TableTarget:
    """The part of :class:`~cm_delta_dagster.client.write_target.WriteTarget` that is the same for each such target."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def identifier(self) -> TableIdentifier:
        return self.table.identifier

    @property
    def table_id(self) -> str:
        return self.table.table_id

    @property
    def location(self) -> str:
        """See :attr:`Table.location`."""
        return self.table.location

    @property
    def store(self) -> Store:
        return self.table.store

    @property
    def services(self) -> Services:
        return self.table.services

    def snapshot(self) -> Snapshot:
        """The latest version of the table."""
        return self.table.snapshot()

    def find_transaction(self, *, app_id: str, version: int) -> int | None:
        """See :meth:`Table.find_transaction`."""
        return self.table.find_transaction(app_id=app_id, version=version)

    def commit_write(self, transaction: Transaction, data: WrittenData) -> Committed:
        """See :meth:`Table.commit_write`."""
        return self.table.commit_write(transaction, data)
