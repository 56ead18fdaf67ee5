"""REPLACE TABLE and CREATE OR REPLACE TABLE: a new definition and new rows for an existing table, in one commit.

The table keeps its name, its id, its location and its history, so that older versions can be read and restored. Columns, partition
columns, clustering columns, properties, constraints and the comment become those of the new definition; only row tracking stays
enabled unless the new definition disables it. The protocol keeps its features, because older versions use them (protocol heading
"Protocol Evolution").
"""

from dataclasses import replace
from enum import StrEnum

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError, TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.tables.create import (
    TableDesign,
    clustering_of,
    create_empty,
    creation_of,
    creation_parameters,
    definition_of,
)
from cm_delta_dagster.operations.tables.write_attempts import created_meanwhile
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.operations.writing.target_shape import TargetShape
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.operations.writing.write_result import WriteResult, earlier_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    WriteTransaction,
    check_not_append_only,
    start_write,
)
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.clustering import (
    clustering_domain,
    is_clustered,
    physical_path,
    stored_clustering_columns,
)
from cm_delta_dagster.protocol.features.column_ids import MAX_COLUMN_ID
from cm_delta_dagster.protocol.features.enablement import TableDefinition, check_change_feed_columns
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.restoration import log_properties


class CreationMode(StrEnum):
    """What a creation does if the name is taken."""

    CREATE = "create"
    """It is an error."""
    REPLACE = "replace"
    """Replace the table; it is an error if there is none."""
    CREATE_OR_REPLACE = "create_or_replace"
    """Replace the table, or create it if there is none."""


def create_or_replace(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: TableDesign,
    frame: AnyRows | WriteRows | None = None,
    mode: CreationMode = CreationMode.CREATE_OR_REPLACE,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> Table:
    """Create or replace the table of that name.

    Args:
        design: the definition of the table afterwards.
        frame: its rows; none for None.

    Raises:
        TableNotFoundError: ``mode`` is REPLACE and there is no such table.
        CmDeltaError: as :func:`create_empty`, :func:`creation_of` and :func:`replace_table`.
    """
    name = TableIdentifier.of(identifier)
    if mode is CreationMode.CREATE:
        return _create(client, name, design, frame, options)
    try:
        table = client.table(name)
    except TableNotFoundError:
        if mode is CreationMode.REPLACE:
            raise
        try:
            return _create(client, name, design, frame, options)
        except TableAlreadyExistsError as refusal:
            table = created_meanwhile(client, name, refusal)
    replace_table(table, design=design, frame=frame, mode=mode, options=options)
    return table


def _create(
    client: DeltaClient,
    name: TableIdentifier,
    design: TableDesign,
    frame: AnyRows | WriteRows | None,
    options: CommitOptions,
) -> Table:
    if frame is not None:
        with creation_of(client, identifier=name, design=design) as creation:
            append(creation, frame=frame, options=options)
        return creation.table()
    return create_empty(client, identifier=name, design=design, context=options.context)


@names_table
def replace_table(
    table: WriteTarget,
    *,
    design: TableDesign,
    frame: AnyRows | WriteRows | None = None,
    mode: CreationMode = CreationMode.REPLACE,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Give a table a new definition and new rows, in one commit. Its history stays.

    Args:
        design: the definition afterwards. A property that it does not name gets its default, or stays if it enables row tracking.
        frame: the rows afterwards, which may be read from the table itself; none for None.
        mode: named in the history of the table.

    Raises:
        InvalidArgumentError: a partition or clustering column or a property is invalid, a clustered table would get partition
            columns, the table would get another location, or its change data feed does not permit the change of columns.
        SchemaMismatchError: a column name that cannot be stored.
        InvalidDataError: a row violates NOT NULL or another rule of the new definition.
        IllegalCommitError: the table is append-only and has rows.
        CommitConflictError: a concurrent commit changed the table; nothing was committed.
    """
    rows = None if frame is None else WriteRows.of(frame)
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    check_writable(snapshot.protocol, snapshot.identifier)
    if snapshot.num_files:
        check_not_append_only(snapshot, "a replacement")
    if design.location is not None and absolute_location(design.location).rstrip("/") != table.location:
        raise InvalidArgumentError(
            f"{table.identifier} was not replaced: it is at {table.location}, and a replaced table keeps its location; given is "
            f"{design.location}. Leave out the location, or drop the table and create it again."
        )
    if design.partition_columns and is_clustered(snapshot.protocol):
        raise InvalidArgumentError(
            f"{snapshot.identifier} is a clustered table, and its replacement cannot have partition columns. Nothing was written. "
            "Cluster by these columns, or drop the table and create it again."
        )
    after = definition_of(design, base=_base(snapshot, design, table.services.now_ms()), name=table.identifier)
    if frame is not None or snapshot.num_files:
        before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
        check_change_feed_columns(before, after)
    write = start_write(
        table,
        snapshot,
        shape=TargetShape(schema=after.schema, metadata=after.metadata, protocol=after.protocol),
        operation=mode.value.upper().replace("_", " ") + (" TABLE" if frame is None else " TABLE AS SELECT"),
        parameters=creation_parameters(after.metadata, design),
        options=options,
    )
    with write:
        _define(write, design, after)
        if rows is not None:
            write.add_new_rows(rows)
        return write.commit(snapshot.files, _metrics(write))


def _base(snapshot: Snapshot, design: TableDesign, now_ms: int) -> TableDefinition:
    """What the replacement continues: the protocol, the id, and numbers that must not be used twice."""
    present = snapshot.metadata.configuration
    new_properties = TableProperties(design.properties)
    names = [MAX_COLUMN_ID] if new_properties.column_mapping_mode != "none" else []
    # As in delta-spark, row tracking stays enabled.
    if design.properties.get(row_tracking.ENABLED, present.get(row_tracking.ENABLED, "")).lower() == "true":
        names += [row_tracking.ENABLED, row_tracking.MATERIALIZED_ROW_ID, row_tracking.MATERIALIZED_ROW_COMMIT_VERSION]
    continued = {name: present[name] for name in names if name in present}
    metadata = replace(
        snapshot.metadata, configuration={**log_properties(snapshot.metadata), **continued}, created_time=now_ms
    )
    return TableDefinition(protocol=snapshot.protocol, metadata=metadata)


def _define(write: WriteTransaction, design: TableDesign, after: TableDefinition) -> None:
    """Declare what the commit replaces, and set what the metadata do not hold."""
    transaction = write.transaction
    snapshot = transaction.snapshot
    transaction.read_whole_table()
    transaction.keeps_row_ids = True  # No row is copied.
    transaction.redefines_columns = True
    if after.protocol != snapshot.protocol:
        transaction.set_protocol(after.protocol)
    write.clustering = clustering_of(design, after) if design.clustering_columns else ()
    stored = tuple(physical_path(path, after.schema, after.mapping) for path in write.clustering)
    if stored != stored_clustering_columns(snapshot.domains):
        transaction.set_clustering(clustering_domain(stored))


def _metrics(write: WriteTransaction) -> dict[str, int]:
    removed = write.transaction.snapshot.files
    return {
        "numFiles": sum(len(files.adds) for files in write.written),
        "numOutputRows": sum(files.num_rows for files in write.written),
        "numOutputBytes": sum(files.size_bytes for files in write.written),
        "numRemovedFiles": removed.num_rows,
        "numRemovedBytes": size_of(removed),
    }
