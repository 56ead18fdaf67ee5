"""Loads an input from a table: the rows of the selected partitions, or the changes since the last materialization.

A Spark DataFrame is read by Spark. All other types are read through Arrow, without a JVM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.reading.read import plan_snapshot_read
from cm_delta_dagster.operations.reading.read_arrow import read_snapshot_batches
from cm_delta_dagster.operations.reading.read_changes import scan_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import change_batches
from cm_delta_dagster.operations.reading.read_polars import scan_snapshot_polars
from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.change_inputs import Consumer, changes_metadata, changes_since, reads_of
from cm_delta_dagster.orchestration.frame_types import FrameType, frame_type, from_batches, without_none
from cm_delta_dagster.orchestration.partitions import keys_text, partition_slice
from cm_delta_dagster.orchestration.runs import pin_version, pinned_version
from cm_delta_dagster.orchestration.versions_read import record_version_read
from cm_delta_dagster.orchestration.write_contract import ReadContract
from cm_delta_dagster.protocol.changes.change_data_feed import change_schema
from cm_delta_dagster.protocol.predicates.predicates import Predicate, conjunction
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableInput:
    """One input of a function and the version of the table that it reads.

    Attributes:
        step: Dagster's context of the step; None in a unit test.
        session: returns the Spark session; called only for an input of Spark's type.
        reports: whether the read becomes an observation of the upstream asset.
    """

    context: dg.InputContext
    contract: ReadContract
    table: Table
    snapshot: Snapshot
    wanted: FrameType
    step: Any
    session: Callable[[], Any]
    reports: bool

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
        wanted, step = _wanted_type(context), step_of(context)
        return cls(
            context=context,
            contract=contract,
            table=table,
            snapshot=_snapshot(table, contract, step),
            wanted=wanted,
            step=step,
            session=session,
            reports=reports and contract.reports_reads,
        )

    def rows(self) -> Any:
        """The rows of the selected partitions, or the snapshot."""
        snapshot, store, contract = self.snapshot, self.table.store, self.contract
        if self.wanted is FrameType.SNAPSHOT:
            self._report({})
            return snapshot
        where = self._where()
        plan = plan_snapshot_read(snapshot, store=store, columns=contract.columns, where=where)
        self._report({facts.FILES_READ: plan.files_read, facts.FILES_TOTAL: plan.files_total})
        if self.wanted is FrameType.SPARK:
            return plan.frame(self.session())
        if self.wanted is FrameType.POLARS_LAZY:
            return scan_snapshot_polars(snapshot, store=store, columns=contract.columns, where=where)
        return from_batches(
            read_snapshot_batches(snapshot, store=store, columns=contract.columns, where=where), self.wanted
        )

    def changes(self, client: DeltaClient, consumer: Consumer | None) -> Any:
        """The changes that the asset of this step has not read.

        Args:
            consumer: the asset; None in a unit test, which reads like a first materialization.
        """
        contract, context = self.contract, self.context
        if self.wanted is FrameType.SNAPSHOT:
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
        self._report(entries)
        where = None
        if contract.filter is not None:
            where = parse_predicate(contract.filter, change_schema(self.snapshot.schema))
        if self.wanted is FrameType.SPARK:
            return scan_changes(self.table, changes, spark=self.session(), columns=contract.columns, where=where)
        return from_batches(change_batches(self.table, changes, columns=contract.columns, where=where), self.wanted)

    def _where(self) -> Predicate | None:
        context = self.context
        parts: list[Predicate] = []
        if context.has_asset_partitions:
            part = partition_slice(
                context.asset_partitions_def,
                keys=[str(key) for key in context.asset_partition_keys],
                partition_expr=self.contract.partition_expr,
                schema=self.snapshot.schema,
            )
            parts.append(part.predicate)
        if self.contract.filter is not None:
            parts.append(parse_predicate(self.contract.filter, self.snapshot.schema))
        return conjunction(parts) if parts else None

    def _report(self, details: dict[str, Any]) -> None:
        """Record the version, and observe the upstream asset: what was read, by what, and how far it is behind the latest."""
        context, snapshot = self.context, self.snapshot
        if self.contract.reads_latest and context.has_asset_key:
            record_version_read(self.step, context.asset_key, snapshot)
        keys = [str(key) for key in context.asset_partition_keys] if context.has_asset_partitions else []
        if not self.reports:
            context.log.info("Read version %d of %s.", snapshot.version, snapshot.identifier)
            return
        entries: dict[str, Any] = {
            facts.VERSION_READ: snapshot.version,
            facts.TABLE_ID: snapshot.table_id,
            facts.OPERATION: facts.READ,
            facts.READ_LAG: self.table.snapshot().version - snapshot.version,
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
        return context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:  # A context of a unit test, without a type.
        return Any


def _wanted_type(context: dg.InputContext) -> FrameType:
    annotation = without_none(_annotation(context))
    wanted = frame_type(annotation)
    if wanted is None:
        raise InvalidArgumentError(
            f"The input {context.name} is annotated {getattr(annotation, '__name__', annotation)}, which the Delta IO manager "
            f"cannot load. Annotate it with one of {', '.join(FrameType)}. A Snapshot is the state of the table from its log."
        )
    return wanted


def _snapshot(table: Table, contract: ReadContract, step: Any) -> Snapshot:
    if not contract.reads_latest:
        return table.snapshot(version=contract.version, timestamp_ms=contract.timestamp_ms)
    pinned = pinned_version(step, table)
    if pinned is not None:
        return table.snapshot(version=pinned)
    snapshot = table.snapshot()
    held = pin_version(step, table, snapshot.version)
    return snapshot if held == snapshot.version else table.snapshot(version=held)


def _reader(step: Any) -> str | None:
    """The assets that the step materializes, or its name."""
    if step is None:
        return None
    keys = sorted(key.to_user_string() for key in step.get_output_asset_keys())
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "") if keys else str(step.step.key)
