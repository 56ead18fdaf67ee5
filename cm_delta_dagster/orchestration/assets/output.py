"""Writes one output as one commit: calls the operation that the write contract and the partition slice select.

Invalid contracts, keys and schemas are refused before a data file is written. A concurrent commit of another writer is
handled by the commit; the function of the asset does not run again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties, Progress
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    SchemaMismatchError,
    TableAlreadyExistsError,
)
from cm_delta_dagster.operations.reading.any_row import has_rows
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema
from cm_delta_dagster.operations.tables.declaration import (
    TableDeclaration,
    apply_declaration,
    declare_with_write,
    declared_schema,
)
from cm_delta_dagster.operations.tables.write_attempts import create_if_missing, write_attempts
from cm_delta_dagster.operations.writing.deferred_writes import DeferredTable, DeferredWrites
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.rows import WriteRows
from cm_delta_dagster.operations.writing.write import WriteResult, append, check_partitions, overwrite
from cm_delta_dagster.operations.writing.write_result import already_committed, is_already_committed
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.orchestration.assets.run_writes import RunWrites
from cm_delta_dagster.orchestration.metadata.merge_clauses import merge_change, others_changed
from cm_delta_dagster.orchestration.metadata.partitions import PartitionSlice, partition_columns, partition_slice
from cm_delta_dagster.orchestration.metadata.write_contract import OnConflict, WriteContract, WriteMode
from cm_delta_dagster.orchestration.runs.refusals import refuse_waiting
from cm_delta_dagster.orchestration.runs.runs import EarlierWrite, WriteOrigin, idempotency, refuse_other_asset
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.features.type_widening import widening_in_writes
from cm_delta_dagster.protocol.predicates.predicates import Predicate, columns_of, conjunction, partition_only
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.library import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputWrite:
    """One output to write.

    Attributes:
        definition: partitions of the asset, None for an output without.
        keys: partition keys of this output; they are written in one commit.
        progress: how far the asset has then read the changes of its inputs.
        run_writes: finds what other outputs of the run have written.
    """

    contract: WriteContract
    origin: WriteOrigin
    definition: dg.PartitionsDefinition[Any] | None = None
    keys: tuple[str, ...] = ()
    progress: tuple[Progress, ...] = ()
    run_writes: RunWrites = field(default_factory=RunWrites, compare=False, repr=False)

    def slice_for(self, schema: StructType) -> PartitionSlice | None:
        """The rows that this output may change; None for all rows."""
        if self.definition is None:
            return None
        return partition_slice(
            self.definition, keys=self.keys, partition_expr=self.contract.partition_expr, schema=schema
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The table, the result of the write, the partition slice that it changed, and the versions that altered the table before."""

    table: Table
    result: WriteResult
    part: PartitionSlice | None
    altered: tuple[int, ...] = ()


def write_output(
    client: DeltaClient, *, rows: WriteRows, write: OutputWrite, together: DeferredWrites | None = None
) -> Written:
    """Write ``rows`` as one commit, creating the table if it does not exist.

    Args:
        together: the transaction over several tables that commits the write later. The result is then STAGED, unless an earlier
            attempt committed the write or no row changes. A table that does not exist is created empty before.

    Raises:
        InvalidArgumentError: the contract does not fit the partitions or the columns, or the table has other partition columns.
        PartitionMismatchError: rows lie outside of the partitions being written.
        SchemaMismatchError: the columns do not fit the table.
        TableAlreadyExistsError: mode ``error_if_exists``, and the table or partition has rows.
        InvalidDataError: a row violates a constraint of the table or of the contract.
        CommitConflictError: another writer changed what this write depends on.
    """
    output_schema = rows.schema
    identifier = write.contract.identifier
    if together is not None:
        context = write.origin.commit_context()
        table = create_if_missing(
            client, identifier=identifier, design=lambda: _design(output_schema, write, rows), context=context
        )
        result, part, altered = _write(together.table(identifier), rows, output_schema, write)
    else:
        for attempt in write_attempts(client, identifier=identifier):
            design = _design(output_schema, write, rows) if attempt.creates else None
            with attempt.target(design) as target:
                result, part, altered = _write(target, rows, output_schema, write)
        table = attempt.table
    return Written(table=table, result=result, part=part, altered=altered)


def _write(
    table: WriteTarget, rows: WriteRows, output_schema: StructType, write: OutputWrite
) -> tuple[WriteResult, PartitionSlice | None, tuple[int, ...]]:
    """Bring the table in line with the contract, and write. Returns the result, the slice, and the versions of the first."""
    snapshot = table.snapshot()
    refuse_other_asset(snapshot, write.origin, named_after=write.contract.named_after)
    schema = _resulting_schema(snapshot, output_schema, write.contract)
    part = write.slice_for(schema)
    identity = idempotency(table, write.origin)
    if isinstance(identity, EarlierWrite):
        version = identity.version
        return already_committed(table, table.snapshot(), version=version, data_version=version), part, ()
    refuse_waiting(table, write.origin)
    context = write.origin.commit_context()
    altered: tuple[int, ...] = ()

    def refuse_lost_rows(replaced: Snapshot) -> None:
        _refuse_lost_rows(table, replaced, write, part, rows)

    if not is_already_committed(snapshot, identity):
        if write.contract.schema_mode is not SchemaMode.OVERWRITE:
            check_partitions(snapshot, write.contract.partition_by)  # A merge checks none.
        refuse_lost_rows(snapshot)
        if write.contract.mode is WriteMode.ERROR_IF_EXISTS:
            _refuse_existing_rows(table, snapshot, part, rows)
        altered = _brought_in_line(table, write.contract, context, session=_session_for_declarations(rows))
    options = CommitOptions(
        idempotency=identity,
        context=context,
        progress=write.progress,
        replaces_winners=write.contract.on_conflict is OnConflict.LAST_WINS,
        check_replaced=refuse_lost_rows,
    )
    if part is not None and not _checks_slice(write.contract):
        rows.check(part.where, schema, partition_columns=snapshot.partition_columns)
    return _dispatch(table, rows, write.contract, part, options), part, altered


def _refuse_lost_rows(
    table: WriteTarget, snapshot: Snapshot, write: OutputWrite, part: PartitionSlice | None, rows: WriteRows
) -> None:
    """Refuse a write that replaces rows of another output of the run."""
    stored = table.table if isinstance(table, DeferredTable) else table
    if not isinstance(stored, Table) or not write.contract.replaces_rows:
        return
    replaced = None if part is None else part.where
    if write.contract.mode is WriteMode.REPLACE_WHERE:
        replaced = _rows_to_replace(table, write.contract, replaced)
    elif write.contract.merge_clauses:
        others = others_changed(write.contract.merge_clauses, snapshot.schema)
        replaced = others if replaced is None else conjunction((replaced, others))
    write.run_writes.refuse_lost_rows(
        stored, snapshot, origin=write.origin, replaced=replaced, session=_session_for_conditions(rows)
    )


def _session_for_conditions(rows: WriteRows) -> Callable[[], SparkSession]:
    return lambda: rows.needed_session("only Spark evaluates the condition of the rows that the output replaces")


def _session_for_declarations(rows: WriteRows) -> Callable[[], SparkSession]:
    return lambda: rows.needed_session("Spark checks the expressions that the asset declares for its table")


def _brought_in_line(
    table: WriteTarget, contract: WriteContract, context: CommitProperties, *, session: Callable[[], SparkSession]
) -> tuple[int, ...]:
    """Alter a table that exists as its owner declares; the versions of the commits. A deferred write does it in its own commit."""
    if not isinstance(table, Table | DeferredTable) or contract.declaration == TableDeclaration():
        return ()  # A creation has what is declared.
    schema = table.snapshot().schema
    # A column that this write adds gets its default with the next write.
    known = {name: text for name, text in contract.declaration.defaults.items() if schema.field(name) is not None}
    if contract.schema_mode is SchemaMode.STRICT:
        known = dict(contract.declaration.defaults)
    declaration = replace(contract.declaration, defaults=known)
    if isinstance(table, DeferredTable):
        declare_with_write(table, declaration, spark=session)
        return ()
    return apply_declaration(table, declaration, spark=session, context=context).versions


def complete_declaration(written: Written, write: OutputWrite, *, session: Callable[[], SparkSession]) -> Written:
    """Alter the table of a deferred write, which is committed, as far as its own commit could not.

    Raises CmDeltaError: the write stays committed.
    """
    versions = _brought_in_line(written.table, write.contract, write.origin.commit_context(), session=session)
    return replace(written, altered=(*written.altered, *versions))


def _design(output_schema: StructType, write: OutputWrite, rows: WriteRows) -> TableDesign:
    """The design of the table if this output creates it."""
    contract, declaration = write.contract, write.contract.declaration
    schema = declared_schema(first_schema(output_schema), declaration, spark=_session_for_declarations(rows))
    write.slice_for(schema)  # Refuses invalid keys before the catalog reserves a location.
    columns: Sequence[str] = ()
    if contract.partition_by is not None:
        columns = contract.partition_by
    elif not declaration.clustering_columns:
        columns = partition_columns(write.definition, partition_expr=contract.partition_expr, schema=schema)
    return TableDesign(
        schema=schema,
        partition_columns=columns,
        properties=declaration.creation_properties(),
        clustering_columns=declaration.clustering_columns or (),
    )


def _resulting_schema(snapshot: Snapshot, output_schema: StructType, contract: WriteContract) -> StructType:
    configuration = {**snapshot.metadata.configuration, **contract.declaration.properties}
    schema = reconcile_schemas(
        snapshot.schema,
        output_schema,
        mode=contract.schema_mode,
        widens=widening_in_writes(TableProperties(configuration)),
    )
    for column in contract.partition_expr.values():
        if schema.field(column) is not None and output_schema.field(column) is None:
            raise SchemaMismatchError(
                f"The column {column}, which determines the partition of a row, is missing in the output for "
                f"{contract.identifier}; it has the columns {', '.join(output_schema.names)}. Nothing was written."
            )
    return schema


def _dispatch(
    table: WriteTarget,
    rows: WriteRows,
    contract: WriteContract,
    part: PartitionSlice | None,
    options: CommitOptions,
) -> WriteResult:
    """Write ``rows`` with the operation that belongs to the mode of ``contract``, limited to ``part``."""
    where = None if part is None else part.where
    match contract.mode:
        case WriteMode.APPEND | WriteMode.ERROR_IF_EXISTS:
            return append(
                table,
                frame=rows,
                schema_mode=contract.schema_mode,
                options=options,
            )
        case WriteMode.OVERWRITE | WriteMode.REPLACE_WHERE:
            by_condition = contract.mode is WriteMode.REPLACE_WHERE
            return overwrite(
                table,
                frame=rows,
                where=_rows_to_replace(table, contract, where) if by_condition else where,
                schema_mode=contract.schema_mode,
                partition_by=contract.partition_by if contract.schema_mode is SchemaMode.OVERWRITE else None,
                options=options,
            )
        case WriteMode.MERGE if contract.merge_clauses:
            change = merge_change(
                contract.merge_clauses,
                source=rows,
                on=contract.on,
                where=where,
                evolves=contract.schema_mode is SchemaMode.MERGE,
            )
            return merge_rows(table, change=change, options=options)
        case WriteMode.MERGE:
            return merge(
                table,
                frame=rows,
                keys=tuple(contract.on),
                mode=contract.merge_mode,
                where=where,
                schema_mode=contract.schema_mode,
                options=options,
            )


def _rows_to_replace(table: WriteTarget, contract: WriteContract, where: Predicate | None) -> Predicate:
    assert contract.where is not None
    of_contract = parse_predicate(contract.where, table.snapshot().schema)
    return conjunction([of_contract] if where is None else [where, of_contract])


def _checks_slice(contract: WriteContract) -> bool:
    """Whether the operation itself refuses rows outside of the slice that it replaces or merges into."""
    return contract.mode in (WriteMode.OVERWRITE, WriteMode.REPLACE_WHERE) or (
        contract.mode is WriteMode.MERGE and not contract.merge_clauses
    )


def _refuse_existing_rows(table: WriteTarget, snapshot: Snapshot, part: PartitionSlice | None, rows: WriteRows) -> None:
    if not snapshot.num_files:
        return
    if part is None:
        raise TableAlreadyExistsError(
            f"{table.identifier} exists and has rows, and the mode of the write is error_if_exists. Nothing was written. Choose "
            "another mode, or drop the table."
        )
    files = snapshot.matching_files(part.where)
    is_taken = files.num_rows > 0
    if is_taken and not partition_only(part.where, snapshot.partition_columns):
        scan = SnapshotScan(
            snapshot=snapshot, store=table.store, columns=sorted(columns_of(part.where)), where=part.where
        )
        is_taken = has_rows(scan, _session_for_conditions(rows))
    if is_taken:
        raise TableAlreadyExistsError(
            f"{table.identifier} already has rows of the partition {', '.join(part.keys[:5])}, and the mode of the "
            "write is error_if_exists. Nothing was written. Choose another mode, or delete those rows."
        )
