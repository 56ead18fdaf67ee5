"""One output becomes one commit: the write contract and the partition slice turned into a call of ``operations``.

Checks come before work: whatever cannot be right is refused before a data file is written. A
conflict with another writer is settled inside the commit; the user's code is never run again for it.
"""

from dataclasses import dataclass
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitContext, Idempotency
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
)
from cm_delta_dagster.operations.reading.read import read_snapshot
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema, write_or_create
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.write import WriteOutcome, WriteResult, append, overwrite
from cm_delta_dagster.orchestration.partitions import PartitionSlice, partition_columns, partition_slice
from cm_delta_dagster.orchestration.runs import EarlierWrite, WriteOrigin, check_sole_asset, idempotency
from cm_delta_dagster.orchestration.write_contract import WriteContract, WriteMode
from cm_delta_dagster.protocol.predicates.predicates import Predicate, columns_of, conjunction, partition_only
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.evolution import reconcile_schemas
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.guards import guarded
from cm_delta_dagster.spark.schema import from_spark


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputWrite:
    """One output to be written.

    Attributes:
        definition: partitions of the asset, None for an output without.
        keys: partition keys of this output; all of them become one commit.
    """

    contract: WriteContract
    origin: WriteOrigin
    definition: dg.PartitionsDefinition[Any] | None = None
    keys: tuple[str, ...] = ()

    def slice_for(self, schema: StructType) -> PartitionSlice | None:
        """The rows that this output may touch; None for all."""
        if self.definition is None:
            return None
        return partition_slice(
            self.definition, keys=self.keys, partition_expr=self.contract.partition_expr, schema=schema
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The write, the partition slice it stayed within, and the table it went to."""

    table: Table
    result: WriteResult
    part: PartitionSlice | None


def write_output(client: DeltaClient, *, frame: DataFrame, write: OutputWrite) -> Written:
    """Write ``frame`` as one commit, creating the table if it does not exist.

    Raises:
        InvalidArgumentError: the contract does not fit the partitions or the columns.
        PartitionMismatchError: rows lie outside of the partitions being written.
        SchemaMismatchError: the columns do not fit the table.
        TableAlreadyExistsError: mode ``error_if_exists``, and there are rows.
        CommitConflictError: another writer changed what this write depends on.
    """
    offered = from_spark(frame.schema)
    context = write.origin.commit_context()
    table, (result, part) = write_or_create(
        client,
        identifier=write.contract.identifier,
        design=lambda: _design(offered, write),
        write=lambda table: _write(table, frame, offered, write, context),
    )
    return Written(table=table, result=result, part=part)


def _write(
    table: WriteTarget, frame: DataFrame, offered: StructType, write: OutputWrite, context: CommitContext
) -> tuple[WriteResult, PartitionSlice | None]:
    snapshot = table.snapshot()
    check_sole_asset(snapshot, write.origin, named_after=write.contract.named_after)
    part = write.slice_for(_resulting_schema(snapshot, offered, write.contract))
    identity = idempotency(table, write.origin)
    if isinstance(identity, EarlierWrite):
        return _earlier(table, identity), part
    if write.contract.mode is WriteMode.ERROR_IF_EXISTS and not _is_done(snapshot, identity):
        _refuse_existing(table, snapshot, part, frame)
    return _dispatch(table, frame, offered, write.contract, part, identity, context), part


def _design(offered: StructType, write: OutputWrite) -> TableDesign:
    """What the table is to be if this output is its first."""
    schema = first_schema(offered)
    write.slice_for(schema)  # A key without a value in its column is refused before anything is reserved.
    contract = write.contract
    if contract.partition_by is not None:
        columns = contract.partition_by
    else:
        columns = partition_columns(write.definition, partition_expr=contract.partition_expr, schema=schema)
    return TableDesign(schema=schema, partition_columns=columns, properties=contract.table_properties)


def _resulting_schema(snapshot: Snapshot, offered: StructType, contract: WriteContract) -> StructType:
    schema = reconcile_schemas(snapshot.schema, offered, mode=contract.schema_mode)
    for column in contract.partition_expr.values():
        if schema.field(column) is not None and offered.field(column) is None:
            raise SchemaMismatchError(
                f"The column {column}, which decides the partition of a row, is missing from the output for "
                f"{contract.identifier}; it has the columns {', '.join(offered.names)}. Nothing was written."
            )
    return schema


def _dispatch(
    table: WriteTarget,
    frame: DataFrame,
    offered: StructType,
    contract: WriteContract,
    part: PartitionSlice | None,
    identity: Idempotency | None,
    context: CommitContext,
) -> WriteResult:
    within = None if part is None else part.predicate
    match contract.mode:
        case WriteMode.APPEND | WriteMode.ERROR_IF_EXISTS:
            return append(
                table,
                frame=_inside(frame, offered, within),
                schema_mode=contract.schema_mode,
                idempotency=identity,
                context=context,
            )
        case WriteMode.OVERWRITE:
            return overwrite(
                table,
                frame=frame,
                where=within,
                schema_mode=contract.schema_mode,
                idempotency=identity,
                context=context,
            )
        case WriteMode.REPLACE_WHERE:
            return overwrite(
                table,
                frame=frame,
                where=_replaced(table, contract, within),
                schema_mode=contract.schema_mode,
                idempotency=identity,
                context=context,
            )
        case WriteMode.MERGE:
            return merge(
                table,
                frame=frame,
                keys=contract.merge_keys,
                mode=contract.merge_mode,
                within=within,
                schema_mode=contract.schema_mode,
                idempotency=identity,
                context=context,
            )


def _replaced(table: WriteTarget, contract: WriteContract, within: Predicate | None) -> Predicate:
    assert contract.replace_where is not None
    asked = parse_predicate(contract.replace_where, table.snapshot().schema)
    return conjunction([asked] if within is None else [within, asked])


def _inside(frame: DataFrame, offered: StructType, within: Predicate | None) -> DataFrame:
    """``frame``, which fails while it is computed if a row lies outside of ``within``."""
    if within is None:
        return frame
    columns = guarded(frame, offered, guard=within)
    return frame.withColumns(columns) if columns else frame


def _is_done(snapshot: Snapshot, identity: Idempotency | None) -> bool:
    if identity is None:
        return False
    known = snapshot.transactions.get(identity.app_id)
    return identity.is_done(None if known is None else known.version)


def _refuse_existing(table: WriteTarget, snapshot: Snapshot, part: PartitionSlice | None, frame: DataFrame) -> None:
    if not snapshot.num_files:
        return  # There is nothing to protect.
    if part is None:
        raise TableAlreadyExistsError(
            f"{table.identifier} exists and holds rows, and the write contract says error_if_exists. Nothing was written. Choose "
            "another mode, or drop the table."
        )
    files = snapshot.matching_files(part.predicate)
    found = files.num_rows > 0
    if found and not partition_only(part.predicate, snapshot.partition_columns):
        rows = read_snapshot(
            snapshot,
            spark=frame.sparkSession,
            store=table.store,
            columns=sorted(columns_of(part.predicate)),
            where=part.predicate,
        )
        found = not rows.isEmpty()
    if found:
        raise TableAlreadyExistsError(
            f"{table.identifier} already holds rows of the partition {', '.join(part.keys[:5])}, and the write "
            "contract says error_if_exists. Nothing was written. Choose another mode, or delete those rows."
        )


def _earlier(table: WriteTarget, earlier: EarlierWrite) -> WriteResult:
    return WriteResult(
        table_id=table.table_id,
        version=earlier.version,
        data_version=earlier.version,
        outcome=WriteOutcome.ALREADY_COMMITTED,
        num_output_rows=0,
        num_added_files=0,
        num_removed_files=0,
        added_bytes=0,
        removed_bytes=0,
        retries=0,
        metrics={},
        snapshot=table.snapshot(),
        rows_by_partition={},
    )


def check_frame(value: Any, *, name: str) -> DataFrame:
    """``value`` if it is a PySpark frame, classic or Connect. Raises InvalidArgumentError."""
    if isinstance(value, DataFrame):
        return value
    raise InvalidArgumentError(
        f"{name} returned a {type(value).__module__}.{type(value).__qualname__}; the Delta IO manager writes frames of "
        "pyspark.sql.DataFrame. Return one (spark.createDataFrame(...) makes it from pandas or Arrow), return nothing, "
        "or give the output another io_manager_key."
    )
