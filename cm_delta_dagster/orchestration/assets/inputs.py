"""Loads an input from a table: the rows of the selected partitions, or the changes since the last materialization.

A Spark DataFrame is read by Spark. All other types are read through Arrow, without a JVM.
"""

import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.reading.change_query import ChangeFiles, ChangeScan
from cm_delta_dagster.operations.reading.polars.lazy_frame import scan_polars
from cm_delta_dagster.operations.reading.read import ReadPlan, plan_read
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_change_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.orchestration.assets.change_inputs import Consumer, changes_metadata, changes_since, reads_of
from cm_delta_dagster.orchestration.assets.mapped_inputs import mapped_rows
from cm_delta_dagster.orchestration.assets.missing_partitions import check_partitions
from cm_delta_dagster.orchestration.assets.run_writes import RunWrites
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.frame_types import (
    DtypeBackend,
    FrameType,
    frame_type,
    from_batches,
    without_none,
)
from cm_delta_dagster.orchestration.metadata.partitions import keys_text, partition_slice
from cm_delta_dagster.orchestration.metadata.write_contract import ReadContract
from cm_delta_dagster.orchestration.runs.runs import pin_version, pinned_version
from cm_delta_dagster.orchestration.runs.versions_read import TableVersion, record_version_read
from cm_delta_dagster.protocol.changes.change_data_feed import change_schema
from cm_delta_dagster.protocol.predicates.predicates import Predicate, conjunction
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadableState:
    """A state of a table that need not be a version, and the table that it belongs to."""

    table: ReadableTable
    snapshot: Snapshot

    @property
    def store(self) -> Store:
        return self.table.store


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableInput:
    """One input of a function and the version of the table that it reads.

    Attributes:
        step: Dagster's context of the step; None in a unit test.
        session: returns the Spark session; called only for an input of Spark's type.
        reports: whether the read becomes an observation of the upstream asset.
        where: a condition of the rows besides those of the contract.
    """

    context: dg.InputContext
    contract: ReadContract
    table: Table
    snapshot: Snapshot
    frame_type: FrameType
    step: Any
    session: Callable[[], Any]
    reports: bool
    where: Predicate | None = None

    @classmethod
    def of(
        cls,
        context: dg.InputContext,
        contract: ReadContract,
        table: Table,
        *,
        session: Callable[[], Any],
        reports: bool,
    ) -> "TableInput":
        """The input, with the version that the run has pinned.

        Raises:
            InvalidArgumentError: the annotation is not a supported type.
            VersionNotFoundError: the requested version or time cannot be read.
        """
        kind, step = _annotated_type(context), step_of(context)
        return cls(
            context=context,
            contract=contract,
            table=table,
            snapshot=_snapshot(table, contract, step),
            frame_type=kind,
            step=step,
            session=session,
            reports=reports and contract.reports_reads,
        )

    def of_mapped_output(self, run_writes: RunWrites) -> "TableInput":
        """The rows of the upstream output alone, which is one of several with a mapping key."""
        if self.frame_type is FrameType.SNAPSHOT:
            return self
        snapshot, where = mapped_rows(self.context, self.table, self.snapshot, step=self.step, run_writes=run_writes)
        return replace(self, snapshot=snapshot, where=where)

    def rows(self) -> Any:
        """The rows of the selected partitions, or the snapshot."""
        snapshot, contract = self.snapshot, self.contract
        if self.frame_type is FrameType.SNAPSHOT:
            self._report({})
            return snapshot
        scan = SnapshotScan(snapshot=snapshot, store=self.table.store, columns=contract.columns, where=self._where())
        plan = plan_read(scan)
        self._report({facts.FILES_READ: plan.files_read, facts.FILES_TOTAL: plan.files_total})
        return rows_of(scan, plan, self.frame_type, session=self.session, dtype_backend=contract.dtype_backend)

    def changes(self, client: DeltaClient, consumer: Consumer | None) -> Any:
        """The changes that the asset of this step has not read.

        Args:
            consumer: the asset; None in a unit test, which reads like a first materialization.
        """
        contract, context = self.contract, self.context
        if self.frame_type is FrameType.SNAPSHOT:
            raise InvalidArgumentError(
                f"The input {context.name} has the metadata 'changes' and is annotated Snapshot. Changes are rows: annotate it "
                "DataFrame, or remove 'changes'."
            )
        changes, read = changes_since(
            client,
            self.table,
            self.snapshot,
            consumer=consumer,
            first=contract.changes_from,
            step_context=self.step,
        )
        entries: dict[str, Any] = {}
        if consumer is not None and read is not None:
            self.step.add_asset_metadata(changes_metadata(reads_of(self.step), None), asset_key=consumer.asset_key)
            after = "from the beginning" if read.after is None else f"after version {read.after}"
            context.log.info("Changes of %s %s up to version %d.", self.table.identifier, after, read.version)
            entries = {} if read.after is None else {"cm_delta/changes_after": read.after}
            if (stopped := read.stopped_before) is not None:
                context.log.warning(
                    "Changes of %s from version %d on were not read, because its schema cannot represent the rows before it: "
                    "%s. The next run continues there.",
                    self.table.identifier,
                    stopped.version,
                    stopped.reason,
                )
        self._report(entries, version=None if read is None else min(read.version, self.snapshot.version))
        try:
            return self._changed_rows(changes)
        except InvalidArgumentError as error:
            if read is None or read.stopped_before is None:
                raise
            raise read.of_former_columns(error, read.stopped_before) from error

    def _changed_rows(self, changes: ChangeFiles) -> Any:
        contract, where = self.contract, None
        if contract.where is not None:
            where = parse_predicate(contract.where, change_schema(changes.definition.schema))
        scan = ChangeScan(table=self.table, changes=changes, columns=contract.columns, where=where)
        if self.frame_type is FrameType.SPARK:
            return read_changes(scan, spark=self.session())
        return from_batches(read_change_batches(scan), self.frame_type, dtype_backend=contract.dtype_backend)

    def _where(self) -> Predicate | None:
        context = self.context
        parts: list[Predicate] = [] if self.where is None else [self.where]
        if context.has_asset_partitions:
            part = partition_slice(
                context.asset_partitions_def,
                keys=[str(key) for key in context.asset_partition_keys],
                partition_expr=self.contract.partition_expr,
                schema=self.snapshot.schema,
            )
            if self.step is not None:
                allowed = self.contract.allows_missing_partitions
                check_partitions(context, part, self.snapshot, store=self.table.store, allowed=allowed)
            parts.append(part.where)
        if self.contract.where is not None:
            parts.append(parse_predicate(self.contract.where, self.snapshot.schema))
        return conjunction(parts) if parts else None

    def _report(self, details: dict[str, Any], *, version: int | None = None) -> None:
        """Record the version, and observe the upstream asset: what was read, by what, and how far it is behind the latest.

        Args:
            version: the version up to which changes were read; that of the snapshot for None.
        """
        context, snapshot = self.context, self.snapshot
        version = snapshot.version if version is None else version
        if self.contract.reads_latest and context.has_asset_key:
            record_version_read(self.step, context.asset_key, TableVersion(snapshot.table_id, version))
        keys = [str(key) for key in context.asset_partition_keys] if context.has_asset_partitions else []
        if not self.reports:
            context.log.info("Read version %d of %s.", version, snapshot.identifier)
            return
        entries: dict[str, Any] = {
            facts.VERSION_READ: version,
            facts.TABLE_ID: snapshot.table_id,
            facts.OPERATION: facts.READ,
            facts.READ_LAG: self.table.snapshot().version - version,
            **details,
        }
        reader = _reader(self.step)
        if reader is not None:
            entries[facts.READ_BY] = reader
        if not context.has_asset_partitions or len(keys) == 1:
            context.add_input_metadata(entries, description=f"Read by {reader}." if reader else None)
            return
        context.log.info("Read version %d of %s for %d partitions.", snapshot.version, snapshot.identifier, len(keys))
        if keys and self.step is not None:
            # Dagster adds input metadata to one event for each partition; one event without partition avoids thousands.
            entries |= {facts.PARTITIONS_READ: keys_text(keys), "cm_delta/num_partitions_read": len(keys)}
            text = f"Read by {reader}." if reader else None
            observation = dg.AssetObservation(context.asset_key, description=text, metadata=entries)
            dg.DagsterEvent.asset_observation(self.step, observation)


def rows_of(
    scan: SnapshotScan,
    plan: ReadPlan,
    kind: FrameType,
    *,
    session: Callable[[], Any],
    dtype_backend: DtypeBackend | None,
) -> Any:
    """The rows of a scan in the type of an annotation.

    Args:
        plan: of the scan; ``session``: returns the Spark session, and is called only for Spark's type.
    """
    match kind:
        case FrameType.SNAPSHOT:
            return scan.snapshot
        case FrameType.SPARK:
            return plan.frame(session())
        case FrameType.POLARS_LAZY:
            return scan_polars(scan)
        case _:
            return from_batches(read_batches(scan), kind, dtype_backend=dtype_backend)


def step_of(context: dg.InputContext | dg.OutputContext) -> Any:
    """Dagster's context of the step; None under ``build_input_context`` and ``build_output_context``."""
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        return None


def allows_none(context: dg.InputContext | dg.OutputContext) -> bool:
    """Whether the annotation is ``DataFrame | None`` or the like."""
    annotation = _annotation(context)
    return annotation is not without_none(annotation)


def never_written(context: dg.InputContext, contract: ReadContract) -> TableNotFoundError:
    """The error for an input whose table does not exist."""
    return TableNotFoundError(
        f"The input {context.name} cannot be read: the table {contract.identifier} does not exist, so its asset was never "
        f"materialized. Materialize it first. If the table may not exist yet, as for the first partition of an asset that "
        f"reads its own earlier partitions, annotate the input '{context.name}: DataFrame | None'; it is None then."
    )


def _annotation(context: dg.InputContext | dg.OutputContext) -> Any:
    try:
        annotation = context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:  # A context of a unit test, without a type.
        return Any
    if isinstance(context, dg.InputContext) and typing.get_origin(annotation) is list and _is_fan_in(context):
        return typing.get_args(annotation)[0]
    return annotation


def _is_fan_in(context: dg.InputContext) -> bool:
    """Whether the input is a list of several outputs, which are loaded one by one."""
    step = step_of(context)
    return step is not None and hasattr(step.step.step_input_named(context.name).source, "sources")


def _annotated_type(context: dg.InputContext) -> FrameType:
    annotation = without_none(_annotation(context))
    annotated = frame_type(annotation)
    if annotated is None:
        raise InvalidArgumentError(
            f"The input {context.name} is annotated {getattr(annotation, '__name__', annotation)}, which the Delta IO manager "
            f"cannot load. Annotate it with one of {', '.join(FrameType)}. A Snapshot is the state of the table from its log."
        )
    return annotated


def _snapshot(table: Table, contract: ReadContract, step: Any) -> Snapshot:
    if not contract.reads_latest:
        return table.snapshot(version=contract.version, timestamp_ms=contract.timestamp_ms)
    pinned = pinned_version(step, table)
    if pinned is not None:
        return table.snapshot(version=pinned)
    snapshot = table.snapshot()
    pinned_now = pin_version(step, table, snapshot.version)
    return snapshot if pinned_now == snapshot.version else table.snapshot(version=pinned_now)


def _reader(step: Any) -> str | None:
    """The assets that the step materializes, or its name."""
    if step is None:
        return None
    keys = sorted(key.to_user_string() for key in step.get_output_asset_keys())
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "") if keys else str(step.step.key)
