"""``lake.settings``: how clients commit, and the catalogs."""

from collections.abc import Mapping

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.namespaces import create_namespace, drop_namespace
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy


class ConnectionSettings(ConnectionPart):
    """How clients commit to tables, and the catalogs that the database has: ``lake.settings``."""

    def list_catalogs(self) -> tuple[Namespace, ...]:
        """Return the catalogs, sorted by name."""
        return self._client.namespaces.list_catalogs()

    def create_catalog(
        self,
        name: str,
        *,
        comment: str = "",
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Create a catalog without schemas. The creation of a table or a schema creates its catalog, too.

        Args:
            name: letters, digits, ``_`` and ``-``.
            comment: a description.
            properties: texts by name, which this package stores and does not interpret.
            if_not_exists: do nothing if the catalog exists.

        Raises:
            NamespaceAlreadyExistsError: the catalog exists.
            InvalidArgumentError: an unusable name, or a comment or property that is no text.
        """
        create_namespace(
            self._client, name, levels=1, comment=comment, properties=properties, if_not_exists=if_not_exists
        )

    def drop_catalog(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a catalog that has no schemas; with ``if_exists`` do nothing if there is no such catalog.

        Raises NamespaceNotFoundError, NamespaceNotEmptyError.
        """
        drop_namespace(self._client, name, levels=1, if_exists=if_exists)

    def set_commit_mode(
        self,
        scope: str,
        mode: CommitPolicyKind | str,
        *,
        inline_max_bytes: int | None = None,
        future: bool = False,
    ) -> None:
        """Set how clients commit to ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. The longest scope decides.

        Repeat the call after a failure to complete it. ``put_if_absent`` for a catalog or schema applies to tables that are
        created later.

        Args:
            mode: ``staged``, ``inline``, ``auto`` or ``put_if_absent``.
            inline_max_bytes: for ``auto``: the largest commit, in bytes, that the catalog stores until it is published.
            future: set the mode for a catalog or schema that does not exist yet.

        Raises:
            InvalidArgumentError: an unknown mode, a malformed scope, a scope that names nothing, or ``auto`` without a size.
            TableNotFoundError: no table has that name.
            StoreNotSupportedError: ``put_if_absent``, and the store of the table has no put-if-absent.
            CommitRetriesExceededError: concurrent commits won every attempt to switch the table.
        """
        policy = CommitPolicy(kind=_commit_mode(mode), inline_max_bytes=inline_max_bytes)
        if not future:
            check_scope(self._client.registry, self._client.namespaces, scope, remedy=IF_MEANT, with_tables=False)
        choose_commit_policy(self._client, scope=scope, policy=policy)

    def remove_commit_mode(self, scope: str) -> None:
        """Remove the mode of that scope, so that the wider scope or the default decides. Errors as :meth:`set_commit_mode`."""
        choose_commit_policy(self._client, scope=scope, policy=None)

    def list_commit_modes(self) -> tuple[CommitPolicyRule, ...]:
        """Return the mode of every scope that has one. Without a mode, commits are staged."""
        return self._client.commit_policies.commit_policies()


def _commit_mode(mode: CommitPolicyKind | str) -> CommitPolicyKind:
    try:
        return CommitPolicyKind(mode)
    except ValueError as error:
        known = ", ".join(kind.value for kind in CommitPolicyKind if kind is not CommitPolicyKind.SWITCHING)
        raise InvalidArgumentError(f"{mode!r} is not a commit mode; the modes are {known}.") from error
