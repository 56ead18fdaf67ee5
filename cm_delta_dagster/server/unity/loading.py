"""Loads tables for answers: what the catalog has not in one row is added here.

Clients of Unity Catalog read unpublished commits as staged files. An inline commit is staged under its name before it is shown.
"""

import json
from dataclasses import replace

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.tables.set_commit_mode import stage_inline_commits
from cm_delta_dagster.protocol.features.clustering import DOMAIN as CLUSTERING_DOMAIN
from cm_delta_dagster.server.table_access import TableAccess
from cm_delta_dagster.server.unity.tables import ShownTable

_CLEANUPS = (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.METADATA_CLEANUP)
_OF_CLIENTS = (MaintenanceKind.DATA_REORGANIZATION, *_CLEANUPS)


def shown_table(access: TableAccess, client: DeltaClient, entry: TableEntry) -> ShownTable:
    """The table as other clients can read it; its unpublished commits are shown with their staged files.

    Raises:
        OperationRefusedError: an inline commit cannot be staged, because the table is outside of the storage roots.
        StorageError: it cannot be staged.
    """
    commits = staged_commits(access, entry)
    described = described_table(access, client, entry)
    return replace(described, commits=commits, maintenance=permitted_maintenance(client, entry))


def staged_commits(access: TableAccess, entry: TableEntry) -> tuple[RatifiedCommit, ...]:
    """The unpublished commits, ascending, each with its staged file. Raises as :func:`shown_table`."""
    commits = entry.ratified.unpublished
    if any(commit.content is not None for commit in commits):
        stage_inline_commits(access.storage.store_for(entry.location), entry.location, commits)
    return commits


def described_table(access: TableAccess, client: DeltaClient, entry: TableEntry) -> ShownTable:
    """The table without its commits. Raises as :func:`definition_of`."""
    return ShownTable(
        entry=entry,
        definition=definition_of(access, client, entry),
        clustering=_clustering(access, client, entry),
    )


def definition_of(access: TableAccess, client: DeltaClient, entry: TableEntry) -> RecordedDefinition:
    """Metadata and protocol of the latest version, from the log if the catalog does not have them."""
    if entry.definition is not None:
        return entry.definition
    access.storage.store_for(entry.location)
    snapshot = client.open(entry).snapshot()
    return RecordedDefinition(
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        version=snapshot.version,
        in_commit_timestamp=snapshot.timestamp_ms,
    )


def _clustering(access: TableAccess, client: DeltaClient, entry: TableEntry) -> str | None:
    """The clustering columns as JSON text; None if the table has none, or if its log cannot be read here."""
    definition = entry.definition
    if definition is None or "clustering" not in (definition.protocol.writer_features or ()):
        return None
    try:
        access.storage.store_for(entry.location)
        domain = client.open(entry).snapshot().domains.get(CLUSTERING_DOMAIN)
        columns = None if domain is None else json.loads(domain.configuration).get("clusteringColumns")
    except (CmDeltaError, ValueError):
        return None
    return None if columns is None else json.dumps(columns, separators=(",", ":"))


def permitted_maintenance(client: DeltaClient, entry: TableEntry) -> tuple[MaintenanceKind, ...]:
    """The kinds of maintenance that a client without this package may do by itself.

    The rules decide, and a rule with limits permits nothing here, because other clients do not know the limits. Clean-up deletes
    files that shallow clones and held commits need; only this package knows of them.
    """
    allowed_kinds = {rule.kind for rule in client.maintenance_policies.maintenance_rules() if rule.allowed}
    kinds = [kind for kind in _OF_CLIENTS if kind in allowed_kinds and _is_permitted(client, entry, kind)]
    if not set(kinds).isdisjoint(_CLEANUPS) and _has_dependents(client, entry):
        kinds = [kind for kind in kinds if kind not in _CLEANUPS]
    return tuple(kinds)


def _is_permitted(client: DeltaClient, entry: TableEntry, kind: MaintenanceKind) -> bool:
    decision = client.maintenance_policies.maintenance_decision(entry.identifier, kind, table_id=entry.table_id)
    limits = (decision.min_retention, decision.max_files, decision.max_bytes)
    return decision.allowed and limits == (None, None, None)


def _has_dependents(client: DeltaClient, entry: TableEntry) -> bool:
    return bool(client.registry.clones_of(entry.table_id) or client.holds.protected_commits(entry.table_id))
