"""Methods of a connection that bring catalog and storage together again: recovery, relocation, backup."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.recovery.plan import KeptHistory, RecoveryPlan, RecoveryResult
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.relocate import RelocationPlan, TableMove, plan_relocation, relocate
from cm_delta_dagster.operations.recovery.warehouse_plan import AdoptionResult, WarehousePlan


class RecoveryMethods:
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`; each method calls one operation."""

    client: DeltaClient

    def plan_recover(
        self,
        *names: TableIdentifier | str,
        keep: KeptHistory | str | None = None,
        take_staged: Sequence[str] = (),
    ) -> RecoveryPlan:
        """What :meth:`recover` would do about tables whose storage holds commits that the catalog does not know.

        Args:
            names: tables; none for all of them.
            keep: ``catalog`` or ``storage``: which history is kept where both have other commits of one version.
            take_staged: names of staged files that are taken in, of those that the plan offers.

        Raises:
            TableNotFoundError: no table has one of the names.
            InvalidArgumentError: an unknown history, or a staged file that cannot be taken in.
        """
        kept = None if keep is None else _kept_history(keep)
        return plan_recovery(self.client, tables=names or None, keep=kept, take_staged=take_staged)

    def recover(self, plan: RecoveryPlan) -> RecoveryResult:
        """Carry out a plan. Nothing is deleted: what is not kept is set aside beside the table's log.

        Raises:
            RecoveryError: a history has forked and the plan does not say which one is kept, or a table has changed since.
        """
        return recover(self.client, plan)

    def plan_recover_warehouse(
        self, warehouse: str, *, names: Mapping[str, str] | None = None, take_staged: Sequence[str] = ()
    ) -> WarehousePlan:
        """Which tables of a warehouse, whose catalog was lost, :meth:`recover_warehouse` would adopt into this catalog.

        Args:
            names: table name by location, where markers and directories do not decide.

        Raises:
            InvalidArgumentError: a location without a table, an unusable name or staged file.
        """
        return plan_warehouse_recovery(self.client, warehouse=warehouse, names=names, take_staged=take_staged)

    def recover_warehouse(self, plan: WarehousePlan) -> AdoptionResult:
        """Adopt the tables of the plan. Raises RecoveryError while a conflict is open, or after a change of the warehouse."""
        return recover_warehouse(self.client, plan)

    def plan_relocate(self, moved_from: str, moved_to: str, scope: str = "") -> RelocationPlan:
        """Where the tables are that lay below ``moved_from`` before the warehouse moved to ``moved_to``.

        Raises:
            WarehouseMismatchError: the new place belongs to another catalog.
            InvalidArgumentError: one place lies inside the other.
        """
        return plan_relocation(self.client, moved_from=moved_from, moved_to=moved_to, scope=scope)

    def relocate(self, plan: RelocationPlan) -> tuple[TableMove, ...]:
        """Change the locations of the plan in the catalog. Raises RecoveryError if a table was not found at its new place."""
        return relocate(self.client, plan)

    def backup(self, file: str | os.PathLike[str]) -> int:
        """Copy the catalog's SQLite database to a new file while it is in use, and check the copy; gives its bytes.

        Back up the catalog first and the storage after it: storage that is newer can be recovered, lost files cannot.

        Raises:
            InvalidArgumentError: the file exists, or its directory does not.
            CatalogError: the copy could not be made, or the catalog is a PostgreSQL database; the message gives its command.
        """
        catalog = self.client.catalog
        if not isinstance(catalog, SqlCatalog):
            raise InvalidArgumentError(f"{catalog!r} cannot be copied to a file; use the tools of its own.")
        return catalog.back_up(Path(file).absolute())


def _kept_history(keep: KeptHistory | str) -> KeptHistory:
    try:
        return KeptHistory(keep)
    except ValueError as error:
        raise InvalidArgumentError(f"{keep!r} is no history; there are catalog and storage.") from error
