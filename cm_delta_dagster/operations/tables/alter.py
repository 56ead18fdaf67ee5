"""ALTER TABLE: change the columns, the properties or the features of a table, in one commit (protocol headings "Change Metadata",
"Protocol Evolution").

The commit conflicts with every other change of the table's metadata or protocol, and not with concurrent appends, unless the
change depends on the rows. No data file is written.
"""

import logging
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError, MaintenanceNotPermittedError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.tables.alterations import Alteration, EnableFeature, SetProperties
from cm_delta_dagster.operations.writing.column_names import unique_name
from cm_delta_dagster.protocol.actions.file_columns import table_to_new_adds
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.clustering import logical_path, stored_clustering_columns
from cm_delta_dagster.protocol.features.enablement import TableDefinition, changed_definition, check_enabled_by_hand
from cm_delta_dagster.protocol.features.feature_removal import CHECKPOINT_PROTECTION, FilesOfTable
from cm_delta_dagster.protocol.features.iceberg_compat import active_versions, has_collections
from cm_delta_dagster.protocol.features.protocol_evolution import shut_out
from cm_delta_dagster.protocol.features.table_features import check_writable, supports
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.remedies import ReplaceByOwnRows, RewriteFiles, SetClusteringColumns

BACKFILL = "ROW TRACKING BACKFILL"
MAX_FILES_PER_BACKFILL = 100_000
_MAX_CONFLICTS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult:
    """The result of an alteration.

    Attributes:
        version: the version that the last commit made; without a commit, the version that was read.
        versions: the versions of all commits, ascending; empty if the table was already as wanted.
        shut_out: which clients cannot use the table any more, because features were added, as sentences.
        snapshot: the table afterwards.
    """

    table_id: str
    version: int
    versions: tuple[int, ...] = ()
    shut_out: tuple[str, ...] = ()
    snapshot: Snapshot = field(repr=False)


@names_table
def alter_table(table: Table, alteration: Alteration, *, context: CommitProperties = NO_PROPERTIES) -> AlterResult:
    """Make one change to a table. Commits nothing if the table is already as wanted.

    Enabling row tracking on a table with files takes several commits: the feature, row ids for all files, the property. If the
    client fails in between, the table can be used, and the same call completes the change.

    Args:
        context: provenance, recorded in the table history.

    Raises:
        InvalidArgumentError: the change cannot be made; the message says why and what to do.
        SchemaMismatchError: a column name or type that the table cannot store.
        UnsupportedFeatureError: the change needs a table feature that this client does not support.
        CommitConflictError: a concurrent commit changed the table's metadata or protocol.
        CommitStateUnknownError: it is unknown whether the commit succeeded.
    """
    snapshot = table.snapshot()
    if isinstance(alteration, SetProperties) and needs_row_ids(alteration, snapshot):
        return _enable_row_tracking(table, alteration, context)
    return _alter(table, snapshot, alteration, context)


def _alter(table: Table, snapshot: Snapshot, alteration: Alteration, context: CommitProperties) -> AlterResult:
    check_writable(snapshot.protocol, snapshot.identifier)
    before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
    change = alteration.apply(before, files_of(snapshot))
    after = changed_definition(before, change.definition, new_name=unique_name, features=change.features)
    if not change.features:
        check_enabled_by_hand(before.protocol, after.protocol)
    check_writable(after.protocol, snapshot.identifier)
    check_files_permit(snapshot, after)
    if after == before:
        return AlterResult(table_id=table.table_id, version=snapshot.version, snapshot=snapshot)
    transaction = table.start_transaction(
        snapshot, operation=alteration.operation, parameters=alteration.parameters(after), context=context
    )
    if change.depends_on_rows:
        transaction.read_whole_table()
    if after.metadata != before.metadata or change.dropped:
        transaction.set_metadata(after.metadata)
    if after.protocol != before.protocol:
        transaction.set_protocol(after.protocol, dropped=change.dropped)
    result = _committed(table, transaction)
    if change.dropped and supports(after.protocol, CHECKPOINT_PROTECTION):
        _checkpoint(table)
    return replace(result, shut_out=shut_out(before.protocol, after.protocol))


def check_files_permit(snapshot: Snapshot, after: TableDefinition) -> None:
    """Refuse a definition that the files or the clustering of the table do not permit. Raises InvalidArgumentError."""
    _check_clustering(snapshot, after)
    _check_files_for_iceberg(snapshot, after)


def _check_files_for_iceberg(snapshot: Snapshot, after: TableDefinition) -> None:
    """Refuse to enable Iceberg compatibility for files that lack what it requires. Raises InvalidArgumentError."""
    enabled = set(active_versions(after.metadata.configuration))
    enabled -= set(active_versions(snapshot.metadata.configuration))
    if not enabled or not snapshot.num_files:
        return
    lacks = [
        ("the partition columns", bool(snapshot.partition_columns)),
        ("ids of array elements, map keys and values", 2 in enabled and has_collections(after.schema)),
        ("row counts in their statistics", logical_row_count(snapshot.files) is None),
    ]
    missing = [name for name, is_missing in lacks if is_missing]
    if files_of(snapshot).deletion_vectors:
        raise InvalidArgumentError(
            f"{snapshot.identifier} cannot get Iceberg compatibility: {files_of(snapshot).deletion_vectors} files have deletion "
            "vectors. Nothing was changed."
        ).with_remedy(RewriteFiles())
    if missing:
        raise InvalidArgumentError(
            f"{snapshot.identifier} cannot get Iceberg compatibility: its data files lack {' and '.join(missing)}. Nothing was "
            "changed. A replacement by its own rows can have the property."
        ).with_remedy(ReplaceByOwnRows())


def _check_clustering(snapshot: Snapshot, after: TableDefinition) -> None:
    """Refuse to drop a clustering column. Raises InvalidArgumentError."""
    columns = zip(snapshot.clustering_columns, stored_clustering_columns(snapshot.domains), strict=True)
    for path, stored in columns if after.schema != snapshot.schema else ():
        if logical_path(stored, after.schema, after.mapping) is None:
            raise InvalidArgumentError(
                f"Column {path_text(path)!r} cannot be dropped: the table is clustered by it. Nothing was changed. Choose other "
                "clustering columns first."
            ).with_remedy(SetClusteringColumns())


def _committed(table: Table, transaction: Transaction) -> AlterResult:
    committed = transaction.commit()
    return AlterResult(
        table_id=table.table_id,
        version=committed.version,
        versions=(committed.version,),
        snapshot=committed.snapshot,
    )


def files_of(snapshot: Snapshot) -> FilesOfTable:
    """What the removal of a feature needs to know of the files."""
    vectors = snapshot.files.column("deletionVector")
    return FilesOfTable(
        files=snapshot.num_files,
        deletion_vectors=len(vectors) - vectors.null_count,
        is_clustered=bool(snapshot.clustering_columns),
        domains=tuple(snapshot.domains),
    )


def _checkpoint(table: Table) -> None:
    """Checkpoint the version without the feature, so that its readers need no older commit."""
    try:
        checkpoint(table)
    except MaintenanceNotPermittedError as error:
        _log.warning("%s has no checkpoint since the feature was dropped: %s", table.identifier, error)


# --- row tracking -----------------------------------------------------------------------------------------------------


def needs_row_ids(alteration: SetProperties, snapshot: Snapshot) -> bool:
    """Whether the properties enable row tracking of a table whose files must get row ids first."""
    if not alteration.enables_row_tracking or row_tracking.is_enabled(snapshot.protocol, snapshot.metadata):
        return False
    return snapshot.num_files > 0


def _enable_row_tracking(table: Table, alteration: SetProperties, context: CommitProperties) -> AlterResult:
    """Add the feature, give row ids to all files, and set the properties: each step only if it is still needed."""
    snapshot = table.snapshot()
    check_beforehand(snapshot, alteration)
    versions: list[int] = []
    if not row_tracking.is_supported(snapshot.protocol):
        versions += _alter(table, snapshot, EnableFeature(row_tracking.FEATURE), context).versions
    versions += _backfill(table, context)
    last = _alter(table, table.snapshot(), alteration, context)
    return AlterResult(
        table_id=table.table_id,
        version=last.version,
        versions=(*versions, *last.versions),
        shut_out=shut_out(snapshot.protocol, last.snapshot.protocol),
        snapshot=last.snapshot,
    )


def check_beforehand(snapshot: Snapshot, alteration: SetProperties) -> None:
    """Refuse what the last commit of several would refuse, before the first one is made."""
    before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
    change = alteration.apply(before, files_of(snapshot))
    after = changed_definition(before, change.definition, new_name=unique_name, features=change.features)
    check_writable(after.protocol, snapshot.identifier)
    check_files_permit(snapshot, after)


def _backfill(table: Table, context: CommitProperties) -> list[int]:
    """Give row ids to all files that have none; the versions of the commits."""
    versions: list[int] = []
    conflicts = 0
    while True:
        snapshot = table.snapshot()
        files = snapshot.files
        missing = files.filter(
            pc.or_(pc.is_null(files["baseRowId"]), pc.is_null(files["defaultRowCommitVersion"]))
        ).slice(0, MAX_FILES_PER_BACKFILL)
        if not missing.num_rows:
            return versions
        transaction = table.start_transaction(
            snapshot, operation=BACKFILL, parameters={"batchId": str(len(versions))}, context=context
        )
        transaction.update_files(table_to_new_adds(missing))
        try:
            versions.append(transaction.commit().version)
        except CommitConflictError:
            # Another writer removed one of the files: the rest is tried again.
            conflicts += 1
            if conflicts > _MAX_CONFLICTS:
                raise
