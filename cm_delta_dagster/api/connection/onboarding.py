"""``lake.onboarding``: tables that come under the catalog, leave it, or are read and copied by their path."""

from collections.abc import Callable, Mapping

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.api.table.path_delta_table import PathDeltaTable
from cm_delta_dagster.api.table.table_reads import TableReads
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.arguments import Timestamp
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.adopt_plan import AdoptPlan, plan_adopt
from cm_delta_dagster.operations.onboarding.export import ExportPlan, apply_export, export, plan_export
from cm_delta_dagster.operations.onboarding.parquet_folder import FolderOptions
from cm_delta_dagster.operations.onboarding.register import RegisteredPath, register_path
from cm_delta_dagster.operations.onboarding.release import ReleasePlan, ReleaseResult, plan_release, release
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneResult, open_source
from cm_delta_dagster.operations.tables.replace import CreationMode


class ConnectionOnboarding(ConnectionPart):
    """Bring tables under the catalog, and let them go: ``lake.onboarding``."""

    def plan_adopt(
        self,
        path: str,
        name: TableIdentifier | str,
        *,
        partition_by: Mapping[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> AdoptPlan:
        """Check whether :meth:`adopt` can bring the table at ``path`` under the catalog; changes nothing.

        Raises as :meth:`adopt`.
        """
        options = FolderOptions(partition_by=partition_by or {}, progress=progress)
        plan = plan_adopt(self._client, location=path, identifier=name, folder=options)
        return plan.bound(
            lambda bound: self._adopted(
                bound.location, name, options, commit_properties=commit_properties, planned=bound
            )
        )

    def adopt(
        self,
        path: str,
        name: TableIdentifier | str,
        *,
        partition_by: Mapping[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> "DeltaTable":
        """Bring the Delta table or the Parquet files at ``path`` under this catalog, without copying or rewriting data files.

        One commit adds the feature ``catalogManaged`` to a Delta table; writers by path are refused by the protocol afterwards.
        Parquet files without a Delta log become version 0 of a table. A call after an interruption completes the adoption, and a
        repeated call does nothing.

        Args:
            path: directory, or URI with its scheme; a relative path starts at the working directory.
            name: ``catalog.schema.table``.
            partition_by: of Parquet files in directories ``day=2024-05-01``: the types of these columns, in the order of the
                directories, e.g. ``{"day": "date"}``.
            progress: called with the number of Parquet files whose footers were read, and of all.

        Raises:
            TableNotFoundError: there is neither a Delta table nor a Parquet file at ``path``.
            TableAlreadyExistsError: another table has the name, or the catalog has the table under another name.
            CatalogManagedAccessError: another catalog manages the table.
            RecoveryError: the location overlaps that of a table of the catalog.
            UnsupportedFeatureError: the table needs a feature that this client cannot read or write.
            CorruptLogError: the latest version cannot be read as a whole.
            SchemaMismatchError, InvalidDataError, InvalidArgumentError: the Parquet files cannot be one table.
        """
        options = FolderOptions(partition_by=partition_by or {}, progress=progress)
        return self._adopted(path, name, options, commit_properties=commit_properties)

    def _adopted(
        self,
        path: str,
        name: TableIdentifier | str,
        folder: FolderOptions,
        *,
        commit_properties: CommitProperties = NO_PROPERTIES,
        planned: AdoptPlan | None = None,
    ) -> DeltaTable:
        adopted = adopt(
            self._client, location=path, identifier=name, folder=folder, context=commit_properties, planned=planned
        )
        return DeltaTable(self._session, adopted)

    def plan_release(
        self, name: TableIdentifier | str, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> ReleasePlan:
        """Check whether :meth:`release` can make the table one of its path; changes nothing. Raises as :meth:`release`."""
        plan = plan_release(self._client, identifier=name)
        return plan.bound(
            lambda bound: release(self._client, identifier=name, context=commit_properties, planned=bound)
        )

    def release(
        self, name: TableIdentifier | str, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> ReleaseResult:
        """Make the table a Delta table of its path, which any writer can write to; the catalog forgets it.

        Everything is published and checkpointed first. A call after an interruption completes the release.

        Raises:
            TableNotFoundError: there is no such table.
            RecoveryError: shallow clones name the files of the table.
            CommitConflictError: another commit changed metadata or protocol; nothing was released. Try again.
            StoreNotSupportedError: the store cannot create a file exclusively.
        """
        return release(self._client, identifier=name, context=commit_properties)

    def plan_export(self, name: TableIdentifier | str, path: str) -> ExportPlan:
        """Compare the table with its export at ``path``; writes nothing. Raises as :meth:`export`."""
        table = self._client.table(name)
        plan = plan_export(self._client, table, target=path)
        return plan.bound(lambda bound: apply_export(self._client, table, bound))

    def export(self, name: TableIdentifier | str, path: str) -> ExportPlan:
        """Write a log without the feature ``catalogManaged`` to ``path``, which names the data files of the table.

        Engines that refuse the feature read it as a Delta table. A repeated call brings it up to date. Do not write to it.

        Raises:
            TableNotFoundError: there is no such table.
            InvalidArgumentError: ``path`` overlaps the location of a table of the catalog.
            RecoveryError: there is another Delta table at ``path``.
        """
        return export(self._client, self._client.table(name), target=path)

    def register(self, path: str, name: TableIdentifier | str) -> RegisteredPath:
        """Let ``name`` stand for the Delta table at ``path``, which stays with its writers: ``lake.path_table(name)`` reads it.

        Raises:
            TableNotFoundError: there is no Delta table at ``path``.
            CatalogManagedAccessError: a catalog manages the table.
            TableAlreadyExistsError: a table or another path has the name.
        """
        return register_path(self._client, location=path, identifier=name)

    def list_registered(self, scope: str = "") -> Mapping[str, str]:
        """Return the locations of the registered names, or of those in ``catalog`` or ``catalog.schema``."""
        return {str(name): location for name, location in self._client.registry.registered_paths(scope).items()}

    def unregister(self, name: TableIdentifier | str) -> None:
        """Remove a registered name; the table stays as it is. Raises TableNotFoundError."""
        self._client.registry.unregister_path(TableIdentifier.of(name))

    def clone(
        self,
        source: DeltaTable | PathDeltaTable | TableIdentifier | str,
        name: TableIdentifier | str,
        mode: CloneMode | str = CloneMode.SHALLOW,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        properties: Mapping[str, str] | None = None,
        creation: CreationMode | str = CreationMode.CREATE,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> CloneResult:
        """Create the table ``name`` as a clone of ``source``: CREATE TABLE name SHALLOW CLONE source VERSION AS OF version.

        Args:
            source: an open table; the name of a table of this catalog; or the path or URI of a table of another writer.

        Other arguments, result and errors as in :meth:`DeltaTable.clone`.

        Raises:
            TableNotFoundError: the catalog has no table ``source``.
        """
        table = source if isinstance(source, DeltaTable | PathDeltaTable) else self._opened(source)
        return table.clone(
            name,
            mode,
            version=version,
            timestamp=timestamp,
            properties=properties,
            creation=creation,
            commit_properties=commit_properties,
        )

    def _opened(self, source: TableIdentifier | str) -> TableReads[ReadableTable]:
        return TableReads(self._session, open_source(self._client, source))
