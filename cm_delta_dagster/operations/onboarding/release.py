"""RELEASE: make a table of the catalog a table of its path again, without copying data files.

The table enters put-if-absent mode, so that everything is published, and gets a checkpoint. The creation of one commit file then
drops the feature ``catalogManaged``: it decides at once for the catalog and for readers by path. At last the catalog removes its
entry. A client that fails before the commit leaves the table with the catalog, in put-if-absent mode. One that fails after it
leaves a table by path; releasing it again removes the entry.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.client.backoff import attempts_without_jitter
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import read_table_marker
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CmDeltaError,
    CommitStateUnknownError,
    NotCatalogManagedError,
    RecoveryError,
    StorageError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.tables.set_commit_mode import begin_release, set_commit_policy
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.feature_removal import (
    LOST_WITHOUT_CATALOG,
    OF_CATALOG_MANAGED,
    without_catalog_managed,
)
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.markers import TABLE_MARKER_NAME

_log = logging.getLogger(__name__)

OPERATION = "RELEASE TABLE"
RELEASED_TAG = "cm_delta/released_table"
"""Tag of the commit that releases a table: the id that the table had in the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlan(Plan["ReleaseResult"]):
    """What :func:`release` would do.

    Attributes:
        version: the latest version of the table.
        is_interrupted: an earlier release has made its commit; only the entry in the catalog is left.
        num_unpublished: commits that are published first.
        features: what readers and writers of the released table must support.
        warning: which tables of the catalog have files that the table reads, as a shallow clone; None if none has.
    """

    name: str
    location: str
    table_id: str
    version: int
    is_interrupted: bool
    num_unpublished: int
    features: tuple[str, ...]
    warning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResult:
    """A released table: a Delta table at ``location``, from ``version`` on. ``warning`` is that of the plan."""

    name: str
    location: str
    version: int
    warning: str | None = None


def plan_release(client: DeltaClient, *, identifier: TableIdentifier | str) -> ReleasePlan:
    """Check whether a table can be released; changes nothing.

    Raises:
        TableNotFoundError: there is no such table.
        PermissionDeniedError: the caller may not release it.
        RecoveryError: shallow clones name the files of the table.
        CatalogBehindStorageError: the log has commits that the catalog does not know.
        NotCatalogManagedError: its log does not list the feature, and no release has dropped it.
    """
    table = client.table(identifier)
    client.recovery.check_release(table.table_id)
    _refuse_clones(client, table)
    entry = client.registry.load_table(table.identifier)
    try:
        snapshot = table.snapshot()
    except NotCatalogManagedError:
        version = _released_version(table)
        if version is None:
            raise
        return _plan(client, entry, version=version, is_interrupted=True)
    if snapshot.commit_policy.through_catalog:
        table.refuse_if_behind()
    definition = without_catalog_managed(TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata))
    features = writer_features(definition.protocol) | reader_features(definition.protocol)
    plan = _plan(client, entry, version=snapshot.version, is_interrupted=False)
    return replace(
        plan, num_unpublished=snapshot.version - snapshot.published_version, features=tuple(sorted(features))
    )


def release(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    context: CommitProperties = NO_PROPERTIES,
    planned: ReleasePlan | None = None,
) -> ReleaseResult:
    """Make the table one of its path. Everything is published and checkpointed first.

    Args:
        planned: a plan for this table. Without one, commits that were made meanwhile are released too.

    Raises:
        RecoveryError: the table has changed since the plan was made; nothing was changed.
        CmDeltaError: as :func:`plan_release`; nothing was changed.
        MaintenanceNotPermittedError: the policy denies CHECKPOINT.
        StoreNotSupportedError: the store cannot create a file exclusively.
        CommitConflictError: another commit changed metadata or protocol; nothing was released. Try again.
        CommitStateUnknownError: storage or catalog did not answer. Release the table again.
    """
    plan = plan_release(client, identifier=identifier)
    if planned is not None and plan != replace(planned, num_unpublished=plan.num_unpublished):
        raise RecoveryError(
            f"{plan.name} was not released: it has changed since the plan was made, at version {planned.version}. Nothing was "
            "changed. Make a new plan."
        )
    table = client.table(identifier)
    version = plan.version if plan.is_interrupted else _commit(client, table, context)
    client.wait_for_background()  # Checksums and reports of the last commits.
    _remove_entry(client, plan)
    if plan.warning is not None:
        _log.warning("%s", plan.warning)
    return ReleaseResult(name=plan.name, location=plan.location, version=version, warning=plan.warning)


def explain(plan: ReleasePlan) -> Iterator[str]:
    """The lines of text that show a plan to a user."""
    if plan.is_interrupted:
        yield f"{plan.name}: version {plan.version} has released the table at {plan.location}; the catalog would remove its entry."
        return
    yield (
        f"{plan.name} would be released: {plan.num_unpublished} commits are published and a checkpoint is written, and version "
        f"{plan.version + 1} drops the features {' and '.join(OF_CATALOG_MANAGED)}. The table stays at {plan.location}; its "
        f"readers and writers must support {', '.join(plan.features)}."
    )
    if plan.warning is not None:
        yield f"Warning: {plan.warning}"


def _plan(client: DeltaClient, entry: TableEntry, *, version: int, is_interrupted: bool) -> ReleasePlan:
    return ReleasePlan(
        name=str(entry.identifier),
        location=entry.location,
        table_id=entry.table_id,
        version=version,
        is_interrupted=is_interrupted,
        num_unpublished=0,
        features=(),
        warning=_warning(client, entry),
    )


def _warning(client: DeltaClient, entry: TableEntry) -> str | None:
    """What the catalog does not protect a released shallow clone from."""
    sources = client.registry.sources_of(entry.table_id)
    if not sources:
        return None
    names = ", ".join(str(source.identifier) for source in sources)
    return (
        f"{entry.identifier} may read files of {names}, as a shallow clone does. After its release the catalog does not know that "
        f"it needs them, and VACUUM of {names} deletes them. Release a deep clone of it instead."
    )


def _refuse_clones(client: DeltaClient, table: Table) -> None:
    clones = client.registry.clones_of(table.table_id)
    if clones:
        names = ", ".join(str(clone.identifier) for clone in clones)
        raise RecoveryError(
            f"{table.identifier} was not released: the shallow clones {names} may read its files, which other writers could delete "
            "then. Nothing was changed. Drop and purge the clones first."
        )


def _released_version(table: Table) -> int | None:
    """The latest version, if its commit is the one that released the table; else None."""
    version = table.latest_version()
    info = commit_json.decode_commit_info(table.store.read(published_source(table.location, version).location))
    tags = {} if info is None else info.tags or {}
    return version if tags.get(RELEASED_TAG) == table.table_id else None


def _commit(client: DeltaClient, table: Table, context: CommitProperties) -> int:
    """Create the commit that drops the feature. After an error the table has its former commit mode again."""
    before = table.snapshot().commit_policy
    begin_release(table)
    try:
        checkpoint(table)
        _refuse_clones(client, table)  # One may have been made since the plan.
        return _drop_feature(table, table.snapshot(), context)
    except CommitStateUnknownError:
        raise
    except CmDeltaError:
        _restore_policy(table, before)
        raise


def _drop_feature(table: Table, snapshot: Snapshot, context: CommitProperties) -> int:
    definition = without_catalog_managed(TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata))
    tags = {**context.tags, RELEASED_TAG: table.table_id}
    transaction = table.start_transaction(snapshot, operation=OPERATION, context=replace(context, tags=tags))
    transaction.set_protocol(definition.protocol, dropped=LOST_WITHOUT_CATALOG)
    transaction.set_metadata(definition.metadata)
    return transaction.commit().version


def _restore_policy(table: Table, policy: CommitPolicy) -> None:
    if policy.kind in (CommitPolicyKind.PUT_IF_ABSENT, CommitPolicyKind.SWITCHING):
        return
    try:
        set_commit_policy(table, policy)
    except CmDeltaError as error:
        _log.warning("%s stays in put-if-absent mode: %s", table.identifier, error)


def _remove_entry(client: DeltaClient, plan: ReleasePlan) -> None:
    last: CatalogUnavailableError | None = None
    for _ in attempts_without_jitter(client.settings, client.settings.max_resolve_attempts):
        try:
            client.recovery.release_table(plan.table_id)
        except CatalogUnavailableError as error:
            last = error
            continue
        client.forget(plan.table_id)
        _remove_marker(client, plan)
        return
    raise CommitStateUnknownError(
        f"{plan.name} is released, and the catalog did not answer whether it removed its entry ({last}). Once it answers again, "
        "release the table again; if it is not found, the entry is gone."
    ) from last


def _remove_marker(client: DeltaClient, plan: ReleasePlan) -> None:
    """Delete the marker of the table; a failure is logged only. That of a catalog that has adopted the table since stays."""
    store, location = client.stores.store_for(plan.location), plan.location
    try:
        marker = read_table_marker(store, location)
        if marker is None or marker.table_id == plan.table_id:
            store.delete(f"{log_files.log_directory(location)}/{TABLE_MARKER_NAME}")
    except (StorageError, OSError) as error:
        _log.warning("The marker of the table at %s was not deleted: %s", location, error)
