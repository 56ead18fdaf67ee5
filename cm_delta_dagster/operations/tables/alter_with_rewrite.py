"""Alterations after which the data files of a table must be written differently.

The files are rewritten in one commit that changes no row and already sets the properties of the table, so that no writer adds files
of the old kind afterwards. An alteration that drops a table feature is a second commit. If the client fails in between, the table
can be used, and the same call completes the change.
"""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease
from cm_delta_dagster.operations.maintenance.optimize import REMOVE_COLUMN_MAPPING, TARGET_SIZE, apply_and_load
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan
from cm_delta_dagster.operations.maintenance.packing import pack
from cm_delta_dagster.operations.maintenance.rewritten_partitions import stored_partitions
from cm_delta_dagster.operations.tables.alter import AlterResult, alter_table, files_of
from cm_delta_dagster.operations.tables.alterations import Alteration, DropFeature, SetProperties, UnsetProperties
from cm_delta_dagster.operations.tables.clustering import cluster_by
from cm_delta_dagster.operations.writing.column_names import unique_name
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice, SessionSource
from cm_delta_dagster.protocol.features import type_widening
from cm_delta_dagster.protocol.features.clustering import FEATURE as CLUSTERING
from cm_delta_dagster.protocol.features.column_ids import MAPPING_PREFIX, MAX_COLUMN_ID, strip_metadata
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.enablement import COLUMN_MAPPING_MODE, TableDefinition, changed_definition
from cm_delta_dagster.protocol.features.feature_removal import (
    DOMAIN_METADATA,
    REMOVABLE_DOMAINS,
    FilesOfTable,
    without_feature,
)
from cm_delta_dagster.protocol.features.table_features import canonical_name, check_writable, supports
from cm_delta_dagster.protocol.features.table_properties import DELETION_VECTORS_KEY
from cm_delta_dagster.protocol.schema.types import check_column_names, walk_fields


@names_table
def alter_with_rewrite(
    table: Table,
    alteration: Alteration,
    *,
    spark: SessionSource | EngineChoice,
    context: CommitProperties = NO_PROPERTIES,
) -> AlterResult:
    """As :func:`~cm_delta_dagster.operations.tables.alter.alter_table`; rewrites data files if the change requires it.

    Column mapping is removed, by ``delta.columnMapping.mode`` = ``none`` or with the feature, by rewriting all files; the feature
    ``deletionVectors`` by rewriting the files with deletion vectors; ``typeWidening``, after a type was changed, by rewriting all
    files. Clustering columns are removed with the feature ``clustering``, metadata domains with ``domainMetadata``.

    Args:
        spark: the session that rewrites more than 1 GiB of files, and those that Arrow cannot write.

    Raises:
        InvalidArgumentError: only Spark can rewrite the files, and no session runs or was configured; nothing was written.
        MaintenanceInProgressError: files must be rewritten, and a maintenance run holds the lease of the table.
        SchemaMismatchError: a column has a name that files without column mapping cannot have.
        CmDeltaError: as :func:`alter_table`.
    """
    snapshot = table.snapshot()
    check_writable(snapshot.protocol, snapshot.identifier)
    if isinstance(alteration, SetProperties | UnsetProperties) and _ends_mapping(alteration, snapshot):
        return _without_mapping(table, alteration, spark, context)
    if isinstance(alteration, DropFeature) and supports(snapshot.protocol, canonical_name(alteration.feature)):
        first = _prepared(table, snapshot, alteration, spark, context)
        last = alter_table(table, alteration, context=context)
        return replace(last, versions=(*first, *last.versions))
    return alter_table(table, alteration, context=context)


def _ends_mapping(alteration: SetProperties | UnsetProperties, snapshot: Snapshot) -> bool:
    if snapshot.column_mapping is ColumnMappingMode.NONE:
        return False
    if isinstance(alteration, UnsetProperties):
        return COLUMN_MAPPING_MODE in alteration.names
    return str(alteration.properties.get(COLUMN_MAPPING_MODE, "")).lower() == ColumnMappingMode.NONE.value


def _without_mapping(
    table: Table, alteration: Alteration, spark: SessionSource | EngineChoice, context: CommitProperties
) -> AlterResult:
    snapshot = table.snapshot()
    before = _definition(snapshot)
    change = alteration.apply(before, files_of(snapshot))
    after = changed_definition(
        _unmapped(before), _unmapped(change.definition), new_name=unique_name, features=change.features
    )
    altered = _rewrite(table, snapshot, after, snapshot.files, spark, context)
    version = altered.version
    return AlterResult(table_id=table.table_id, version=version, versions=(version,), snapshot=altered)


def _unmapped(definition: TableDefinition) -> TableDefinition:
    """Without ids and physical names; the property stays only as ``none``."""
    schema = strip_metadata(definition.schema, (MAPPING_PREFIX,))
    check_column_names(schema)
    ends = definition.mapping is not ColumnMappingMode.NONE
    changes: dict[str, str | None] = {COLUMN_MAPPING_MODE: None} if ends else {}
    return definition.with_schema(schema).with_properties(**{MAX_COLUMN_ID: None, **changes})


def _prepared(
    table: Table,
    snapshot: Snapshot,
    alteration: DropFeature,
    spark: SessionSource | EngineChoice,
    context: CommitProperties,
) -> tuple[int, ...]:
    """Remove what the feature left in the table; the versions of the commits.

    Raises InvalidArgumentError, before anything is written, if the feature cannot be dropped afterwards.
    """
    before, files = _definition(snapshot), snapshot.files
    match canonical_name(alteration.feature):
        case "columnMapping" if before.mapping is not ColumnMappingMode.NONE:
            after = _unmapped(before)
        case "deletionVectors":
            files = files.filter(pc.is_valid(files["deletionVector"]))
            after = before.with_properties(**{DELETION_VECTORS_KEY: None})
            if not files.num_rows:
                return ()
        case "typeWidening" | "typeWidening-preview" if _has_type_changes(before) and files.num_rows:
            plain = before.with_schema(strip_metadata(before.schema, (type_widening.TYPE_CHANGES,)))
            after = plain.with_properties(**{type_widening.ENABLED: None})
        case name if name == CLUSTERING and snapshot.clustering_columns:
            after = before
        case name if name == DOMAIN_METADATA and snapshot.domains:
            return _without_domains(table, snapshot, alteration, context)
        case _:
            return ()
    without_feature(after, alteration.feature, FilesOfTable(files=snapshot.num_files, deletion_vectors=0))
    if after is before:
        return cluster_by(table, columns=(), context=context).versions
    return (_rewrite(table, snapshot, after, files, spark, context).version,)


def _without_domains(
    table: Table, snapshot: Snapshot, alteration: DropFeature, context: CommitProperties
) -> tuple[int, ...]:
    """Remove the metadata domains of a table of which no other feature needs them; the version of the commit."""
    kept = tuple(name for name in snapshot.domains if name.startswith("delta.") and name not in REMOVABLE_DOMAINS)
    without_feature(_definition(snapshot), alteration.feature, replace(files_of(snapshot), domains=kept))
    transaction = table.start_transaction(
        snapshot,
        operation="DOMAIN METADATA CLEANUP",
        parameters={"domainMetadataRemovedCount": str(len(snapshot.domains))},
        context=context,
    )
    transaction.remove_all_domains()
    return (transaction.commit().version,)


def _has_type_changes(definition: TableDefinition) -> bool:
    return any(type_widening.TYPE_CHANGES in item.metadata for _, item in walk_fields(definition.schema))


def _rewrite(
    table: Table,
    snapshot: Snapshot,
    after: TableDefinition,
    files: pa.Table,
    spark: SessionSource | EngineChoice,
    context: CommitProperties,
) -> Snapshot:
    """Rewrite ``files`` and change the definition in one commit; the table after it. Raises as :func:`apply_and_load`."""
    target = snapshot.properties.target_file_size or TARGET_SIZE
    is_unmapped = after.mapping is not snapshot.column_mapping
    plan = OptimizePlan(
        snapshot=snapshot,
        bins=pack(files, partition_columns=stored_partitions(snapshot), target_size=target, min_size=0, all_files=True),
        target_size=target,
        operation=REMOVE_COLUMN_MAPPING if is_unmapped else "REORG",
        definition=after,
    )
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as lease:
        return apply_and_load(table, plan, spark=spark, lease=lease, context=context)[1]


def _definition(snapshot: Snapshot) -> TableDefinition:
    return TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
