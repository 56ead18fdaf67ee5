"""Methods of a connection that bring tables under the catalog and let them go."""

from collections.abc import Callable, Mapping

from cm_delta_dagster.api.delta_table import DeltaTable
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.adopt_plan import AdoptPlan, plan_adopt
from cm_delta_dagster.operations.onboarding.export import ExportPlan, export, plan_export
from cm_delta_dagster.operations.onboarding.parquet_folder import FolderOptions
from cm_delta_dagster.operations.onboarding.register import RegisteredPath, register_path
from cm_delta_dagster.operations.onboarding.release import ReleasePlan, ReleaseResult, plan_release, release


class OnboardingMethods(ClientSession):
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`; each method calls one operation."""

    def plan_adopt(
        self,
        path: str,
        name: TableIdentifier | str,
        *,
        partition_by: Mapping[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> AdoptPlan:
        """Check whether :meth:`adopt` can bring the table at ``path`` under the catalog; changes nothing.

        Raises as :meth:`adopt`.
        """
        options = FolderOptions(partition_by=partition_by or {}, progress=progress)
        return plan_adopt(self.client, location=path, identifier=name, folder=options)

    def adopt(
        self,
        path: str,
        name: TableIdentifier | str,
        *,
        partition_by: Mapping[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        context: CommitContext = NO_CONTEXT,
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
        return DeltaTable(self, adopt(self.client, location=path, identifier=name, folder=options, context=context))

    def plan_release(self, name: TableIdentifier | str) -> ReleasePlan:
        """Check whether :meth:`release` can make the table one of its path; changes nothing. Raises as :meth:`release`."""
        return plan_release(self.client, identifier=name)

    def release(self, name: TableIdentifier | str, *, context: CommitContext = NO_CONTEXT) -> ReleaseResult:
        """Make the table a Delta table of its path, which any writer can write to; the catalog forgets it.

        Everything is published and checkpointed first. A call after an interruption completes the release.

        Raises:
            TableNotFoundError: there is no such table.
            RecoveryError: shallow clones name the files of the table.
            CommitConflictError: another commit changed metadata or protocol; nothing was released. Try again.
            StoreNotSupportedError: the store cannot create a file exclusively.
        """
        return release(self.client, identifier=name, context=context)

    def plan_export(self, name: TableIdentifier | str, path: str) -> ExportPlan:
        """Compare the table with its export at ``path``; writes nothing. Raises as :meth:`export`."""
        return plan_export(self.client, self.client.table(name), target=path)

    def export(self, name: TableIdentifier | str, path: str) -> ExportPlan:
        """Write a log without the feature ``catalogManaged`` to ``path``, which names the data files of the table.

        Engines that refuse the feature read it as a Delta table. A repeated call brings it up to date. Do not write to it.

        Raises:
            TableNotFoundError: there is no such table.
            InvalidArgumentError: ``path`` overlaps the location of a table of the catalog.
            RecoveryError: there is another Delta table at ``path``.
        """
        return export(self.client, self.client.table(name), target=path)

    def register(self, path: str, name: TableIdentifier | str) -> RegisteredPath:
        """Let ``name`` stand for the Delta table at ``path``, which stays with its writers: ``path_table(name)`` reads it.

        Raises:
            TableNotFoundError: there is no Delta table at ``path``.
            CatalogManagedAccessError: a catalog manages the table.
            TableAlreadyExistsError: a table or another path has the name.
        """
        return register_path(self.client, location=path, identifier=name)

    def registered(self, scope: str = "") -> Mapping[str, str]:
        """Return the locations of the registered names, or of those in ``catalog`` or ``catalog.schema``."""
        return {str(name): location for name, location in self.client.registry.registered_paths(scope).items()}

    def unregister(self, name: TableIdentifier | str) -> None:
        """Remove a registered name; the table stays as it is. Raises TableNotFoundError."""
        self.client.registry.unregister_path(TableIdentifier.of(name))
