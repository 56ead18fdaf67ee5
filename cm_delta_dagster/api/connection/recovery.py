"""``lake.recovery``: reconciliation of catalog and storage, relocation, and the backup of the catalog."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.recovery.plan import KeptHistory, RecoveryPlan, RecoveryResult
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.relocate import RelocationPlan, TableMove, plan_relocation, relocate
from cm_delta_dagster.operations.recovery.warehouse_plan import AdoptionResult, WarehousePlan


class ConnectionRecovery(ConnectionPart):
    """What to do after a restore, a loss or a move of catalog or storage: ``lake.recovery``."""

    def plan_recover(
        self,
        *names: TableIdentifier | str,
        keep: KeptHistory | str | None = None,
        take_staged: Sequence[str] = (),
    ) -> RecoveryPlan:
        """Plan the recovery of tables whose storage holds commits that the catalog does not know; changes nothing.

        Args:
            names: tables; all tables of the catalog if empty.
            keep: ``catalog`` or ``storage``: the history to keep where the two have different commits of one version.
            take_staged: names of staged files to record in the catalog, of those that the plan offers.

        Raises:
            TableNotFoundError: no table has one of the names.
            InvalidArgumentError: an unknown history, or a staged file that cannot be recorded.
        """
        kept = None if keep is None else _kept_history(keep)
        plan = plan_recovery(self._client, tables=names or None, keep=kept, take_staged=take_staged)
        return plan.bound(lambda bound: recover(self._client, bound))

    def recover(
        self,
        *names: TableIdentifier | str,
        keep: KeptHistory | str | None = None,
        take_staged: Sequence[str] = (),
    ) -> RecoveryResult:
        """Record the commits of storage that the catalog does not know. Arguments as of :meth:`plan_recover`.

        Commits that are not kept are moved to ``_delta_log/_set_aside``; no file is deleted.

        Raises:
            RecoveryError: the histories of a table have forked and ``keep`` is not given, or the table of a plan has changed since
                the plan was made.
        """
        return self.plan_recover(*names, keep=keep, take_staged=take_staged).apply()

    def plan_recover_warehouse(
        self, warehouse: str, *, names: Mapping[str, str] | None = None, take_staged: Sequence[str] = ()
    ) -> WarehousePlan:
        """Plan the adoption of the tables of a warehouse whose catalog was lost; changes nothing.

        Args:
            names: table name by location, for tables whose name neither a marker nor the directory gives.

        Raises:
            InvalidArgumentError: a location without a table, or an invalid name or staged file.
        """
        plan = plan_warehouse_recovery(self._client, warehouse=warehouse, names=names, take_staged=take_staged)
        return plan.bound(lambda bound: recover_warehouse(self._client, bound))

    def recover_warehouse(
        self, warehouse: str, *, names: Mapping[str, str] | None = None, take_staged: Sequence[str] = ()
    ) -> AdoptionResult:
        """Adopt the tables of a warehouse whose catalog was lost. Arguments as of :meth:`plan_recover_warehouse`.

        Raises RecoveryError if a conflict is unresolved, or the warehouse has changed since the plan was made.
        """
        return self.plan_recover_warehouse(warehouse, names=names, take_staged=take_staged).apply()

    def plan_relocate(self, moved_from: str, moved_to: str, scope: str = "") -> RelocationPlan:
        """Plan new locations for the tables below ``moved_from``, whose files now lie below ``moved_to``; changes nothing.

        Raises:
            WarehouseMismatchError: the new location belongs to another catalog.
            InvalidArgumentError: one location lies inside the other.
        """
        plan = plan_relocation(self._client, moved_from=moved_from, moved_to=moved_to, scope=scope)
        return plan.bound(lambda bound: relocate(self._client, bound))

    def relocate(self, moved_from: str, moved_to: str, scope: str = "") -> tuple[TableMove, ...]:
        """Change the locations in the catalog. Arguments as of :meth:`plan_relocate`.

        Raises RecoveryError if a table was not found at its new location.
        """
        return self.plan_relocate(moved_from, moved_to, scope).apply()

    def backup(self, file: str | os.PathLike[str]) -> int:
        """Copy the catalog's SQLite database, which may be in use, to a new file, and verify the copy.

        Returns the size of the copy in bytes.

        Back up the catalog first and the storage after it: storage that is newer can be recovered, lost files cannot.

        Raises:
            InvalidArgumentError: the file exists, or its directory does not.
            CatalogError: the copy failed, or the catalog is a PostgreSQL database; the message then gives the command.
        """
        return self._client.recovery.back_up(Path(file).absolute())


def _kept_history(keep: KeptHistory | str) -> KeptHistory:
    try:
        return KeptHistory(keep)
    except ValueError as error:
        raise InvalidArgumentError(f"keep is {keep!r}; give catalog or storage.") from error
