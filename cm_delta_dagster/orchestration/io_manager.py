"""The IO manager: writes the DataFrames that assets return to tables of the catalog, and reads inputs from them.

``write_contract`` parses the metadata of assets, ``partitions`` translates partition keys to predicates, ``output`` writes an
output as one commit, and ``runs`` makes writes idempotent and pins versions.
"""

import time
import typing
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.maintenance.auto_compaction import compacts_after_writes
from cm_delta_dagster.operations.reading.read import ReadPlan, plan_snapshot_read
from cm_delta_dagster.operations.reading.read_changes import scan_changes
from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.change_inputs import (
    Consumer,
    changes_metadata,
    changes_since,
    consumer_of,
    io_manager_of,
    reads_of,
)
from cm_delta_dagster.orchestration.metadata_keys import DEFAULT_READ_KEYS, WRITE_KEYS, own_entries, own_run_tags
from cm_delta_dagster.orchestration.output import OutputWrite, Written, check_output, write_output
from cm_delta_dagster.orchestration.partitions import keys_text, partition_slice
from cm_delta_dagster.orchestration.resources import CatalogResource, HasSparkSession, SparkResource
from cm_delta_dagster.orchestration.run_checks import checked_warehouse
from cm_delta_dagster.orchestration.runs import WriteOrigin, pin_version, pinned_version, raise_pinned_version, run_tags
from cm_delta_dagster.orchestration.write_contract import (
    ReadContract,
    TableNames,
    parse_read_contract,
    parse_write_contract,
    table_identifier,
)
from cm_delta_dagster.protocol.changes.change_data_feed import change_schema
from cm_delta_dagster.protocol.predicates.predicates import Predicate, conjunction
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.spark.session import running_session


class CatalogManagedDeltaIOManager(dg.ConfigurableIOManager):
    """Writes PySpark DataFrames to catalog-managed Delta tables and reads them.

    Args:
        catalog: the catalog; ``spark``: anything with a ``spark_session``, e.g. ``SparkResource`` or
            ``LazyPySparkResource``.
        default_catalog: first part of a table's name, if the asset's metadata does not set it.
        default_schema: second part, for assets whose key has a single part.
    """

    catalog: dg.ResourceDependency[CatalogResource]
    spark: dg.ResourceDependency[Any]
    default_catalog: str = Field(default="main", description="Catalog of tables whose asset does not name one.")
    default_schema: str = Field(default="default", description="Schema of tables whose asset key has one part.")

    _checked: ExitStack = PrivateAttr(default_factory=ExitStack)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Find out before an asset is computed that the catalog or the warehouse cannot be reached."""
        is_remote = isinstance(self.spark, SparkResource) and self.spark.remote is not None
        session = None if is_remote else running_session()
        self._checked.enter_context(checked_warehouse(self.catalog.client, session=session))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._checked.close()

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output as one commit, and add metadata about the commit."""
        if obj is None and not context.has_asset_key and not context.definition_metadata:
            return  # An op without an asset and without metadata has no table.
        write = self._output_write(context)
        if obj is None:
            self._report_none(context, write)
            return
        frame = check_output(obj, name=write.origin.name)
        started = time.monotonic()
        compacts_after_writes(self.catalog.client, self._session)
        written = write_output(self.catalog.client, frame=frame, write=write)
        raise_pinned_version(write.origin.step_context, written.table, written.result.version)
        self._report(context, write, written, time.monotonic() - started)

    def load_input(self, context: dg.InputContext) -> Any:
        """A DataFrame of the selected rows, or a :class:`Snapshot` if the parameter is annotated so.

        Returns None if there is no table yet and the annotation allows it.

        Raises:
            TableNotFoundError: the upstream asset was never materialized, and the annotation does not allow None.
            VersionNotFoundError: the requested version or time cannot be read.
        """
        wanted = _wanted_type(context)
        contract = self._read_contract(context)
        step = _step(context)
        try:
            table = self.catalog.client.table(contract.identifier)
        except TableNotFoundError as error:
            if not _allows_none(context):
                raise _never_written(context, contract) from error
            context.log.info("There is no table %s yet, so the input %s is None.", contract.identifier, context.name)
            return None
        snapshot = _snapshot(table, contract, step)
        if contract.changes:
            return self._changes(context, contract, table, snapshot)
        if wanted is Snapshot:
            _report_read(context, snapshot)
            return snapshot
        where = _where(context, contract, snapshot)
        plan = plan_snapshot_read(snapshot, store=table.store, columns=contract.columns, where=where)
        _report_read(context, snapshot, plan)
        return plan.frame(self._session())

    def _changes(self, context: dg.InputContext, contract: ReadContract, table: Table, snapshot: Snapshot) -> Any:
        """The changes that the asset of this step has not read."""
        if _wanted_type(context) is Snapshot:
            raise InvalidArgumentError(
                f"The input {context.name} has the metadata 'changes' and is annotated Snapshot. Changes are rows: annotate it "
                "DataFrame, or remove 'changes'."
            )
        step = _step(context)
        consumer = None if step is None else self._consumer(context.name, step)
        changes, read = changes_since(
            self.catalog.client,
            table,
            snapshot,
            consumer=consumer,
            first=contract.changes_from,
            step_context=step,
        )
        if consumer is not None and read is not None:
            step.add_asset_metadata(changes_metadata(reads_of(step), None), asset_key=consumer.asset_key)
            after = "from the beginning" if read.after is None else f"after version {read.after}"
            context.log.info("Changes of %s %s up to version %d.", table.identifier, after, read.version)
        _report_read(context, snapshot, changes_after=None if read is None else read.after)
        return scan_changes(
            table, changes, spark=self._session(), columns=contract.columns, where=_changes_filter(contract, snapshot)
        )

    def _consumer(self, name: str, step: Any) -> Consumer:
        """The asset that reads changes, and the table in which an IO manager of this kind stores it."""
        asset_key, table = consumer_of(step, name=name), None
        manager = io_manager_of(step, asset_key)
        if isinstance(manager, CatalogManagedDeltaIOManager):
            table = manager.table_of(step.job_def.asset_layer.get(asset_key).metadata, asset_key)
        return Consumer(asset_key=asset_key, table=table, instance=step.instance)

    def table_of(self, metadata: Mapping[str, Any], asset_key: dg.AssetKey) -> TableIdentifier:
        """The table of an asset with this metadata. Raises InvalidArgumentError."""
        entries = own_entries(metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, where="The asset's metadata")
        return table_identifier(entries, asset_path=asset_key.path, names=self._names)

    def _session(self) -> Any:
        if not isinstance(self.spark, HasSparkSession):
            raise InvalidArgumentError(
                f"The resource 'spark' of the Delta IO manager is a {type(self.spark).__name__} without a "
                "spark_session. Use cm_delta_dagster's SparkResource, dagster-pyspark's LazyPySparkResource, or another "
                "resource with that property."
            )
        return self.spark.spark_session

    @property
    def _names(self) -> TableNames:
        return TableNames(catalog=self.default_catalog, schema=self.default_schema)

    def _output_write(self, context: dg.OutputContext) -> OutputWrite:
        step = _step(context)
        asset_key = context.asset_key if context.has_asset_key else None
        definition = _output_partitions(context)
        keys = tuple(str(key) for key in context.asset_partition_keys) if definition is not None else ()
        contract = parse_write_contract(
            definition=context.definition_metadata,
            run=own_run_tags(run_tags(step)),
            output=context.output_metadata,
            asset_path=() if asset_key is None else asset_key.path,
            partitioned=definition is not None,
            names=self._names,
        )
        origin = WriteOrigin(
            name=asset_key.to_user_string() if asset_key is not None else _op_output_name(context),
            partition_keys=keys,
            asset_key=asset_key,
            step_key=None if step is None else context.step_key,
            step_context=step,
        )
        progress = tuple(read.progress for read in reads_of(step))
        return OutputWrite(contract=contract, origin=origin, definition=definition, keys=keys, progress=progress)

    def _read_contract(self, context: dg.InputContext) -> ReadContract:
        upstream = context.upstream_output
        return parse_read_contract(
            upstream={} if upstream is None else upstream.definition_metadata,
            own=context.definition_metadata,
            asset_path=context.asset_key.path if context.has_asset_key else (),
            names=self._names,
        )

    def _report_none(self, context: dg.OutputContext, write: OutputWrite) -> None:
        """Accept None if the annotation allows it: there is no commit, and the data version of the table stays."""
        if not _allows_none(context):
            raise InvalidArgumentError(
                f"{write.origin.name} returned None, and its annotation does not allow it. Nothing was written. Return a "
                "DataFrame (an empty one clears the partition or table); annotate '-> DataFrame | None' if the asset "
                "sometimes has nothing to write; or annotate '-> None' if it stores its result itself."
            )
        context.log.info("The output %s is None, so nothing was written.", context.name)
        entries: dict[str, Any] = {facts.OUTCOME: facts.NOTHING_WRITTEN}
        step, asset_key = write.origin.step_context, write.origin.asset_key
        try:
            snapshot = self.catalog.client.table(write.contract.identifier).snapshot()
        except TableNotFoundError:
            snapshot = None
        if snapshot is not None:
            entries |= facts.table_metadata(snapshot)
            if step is not None and asset_key is not None and not step.has_data_version(asset_key):
                step.set_data_version(asset_key, facts.data_version(snapshot.table_id, snapshot.data_version))
        context.add_output_metadata(entries)

    def _report(self, context: dg.OutputContext, write: OutputWrite, written: Written, seconds: float) -> None:
        result = written.result
        operation = write.contract.mode.value
        _report_altered(context, write, written)
        context.add_output_metadata(
            facts.write_metadata(result, operation=operation, part=written.part, duration_seconds=seconds)
        )
        context.log.info(
            "%s is at version %d (%s, %s, %d rows written, %d conflict retries).",
            written.table.identifier,
            result.version,
            operation,
            result.outcome.value,
            result.num_output_rows,
            result.retries,
        )
        step, asset_key = write.origin.step_context, write.origin.asset_key
        if step is None or asset_key is None:
            return
        if not step.has_data_version(asset_key):
            step.set_data_version(asset_key, facts.data_version(result.table_id, result.data_version))
        positions = changes_metadata(reads_of(step), result.snapshot)
        if positions:
            step.add_asset_metadata(positions, asset_key=asset_key)
        if written.part is not None and len(written.part.keys) > 1:
            for key, rows in facts.rows_by_key(result.snapshot, written.part).items():
                step.add_asset_metadata({"dagster/partition_row_count": rows}, asset_key=asset_key, partition_key=key)


def _step(context: dg.InputContext | dg.OutputContext) -> Any:
    """Dagster's context of the step; None under ``build_input_context`` and ``build_output_context``."""
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        return None


def _output_partitions(context: dg.OutputContext) -> dg.PartitionsDefinition[Any] | None:
    """The partitions definition of the asset, None without. Raises InvalidArgumentError if the run has no partition."""
    try:
        definition = context.asset_partitions_def
    except dg.DagsterInvariantViolationError:
        definition = None
    if definition is None and context.has_asset_partitions:
        raise InvalidArgumentError(
            f"The output {context.name} has a partition but no partitions definition. In a unit test, give "
            "build_output_context the argument asset_partitions_def."
        )
    if definition is not None and not context.has_asset_partitions:
        raise InvalidArgumentError(
            f"The asset {context.asset_key.to_user_string()} is partitioned, but this run has no partition key, which "
            "determines the rows to replace. Nothing was written. Launch the run for a partition."
        )
    return definition


def _op_output_name(context: dg.OutputContext) -> str:
    parts = ("op", context.job_name if _step(context) is not None else "", context.step_key, context.name)
    return ":".join(part for part in (*parts, context.mapping_key or "") if part)


def _wanted_type(context: dg.InputContext) -> type:
    try:
        wanted = context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        return DataFrame
    if _allows_none(context):
        wanted = next((part for part in typing.get_args(wanted) if part is not type(None)), wanted)
    if wanted is Snapshot:
        return Snapshot
    if wanted is Any or wanted is object or (isinstance(wanted, type) and issubclass(DataFrame, wanted)):
        return DataFrame
    if isinstance(wanted, type) and issubclass(wanted, DataFrame):
        return DataFrame  # The classic or the Connect class; the session determines which one.
    raise InvalidArgumentError(
        f"The input {context.name} is annotated {getattr(wanted, '__name__', wanted)}, which the Delta IO manager "
        "cannot load. Annotate it pyspark.sql.DataFrame, or cm_delta_dagster's Snapshot for the state from the log."
    )


def _allows_none(context: dg.InputContext | dg.OutputContext) -> bool:
    """Whether the annotation is ``DataFrame | None`` or the like."""
    try:
        return type(None) in typing.get_args(context.dagster_type.typing_type)
    except dg.DagsterInvariantViolationError:  # A context of a unit test, without a type.
        return False


def _never_written(context: dg.InputContext, contract: ReadContract) -> TableNotFoundError:
    return TableNotFoundError(
        f"The input {context.name} cannot be read: there is no table {contract.identifier}, so its asset was never "
        f"materialized. Materialize it first. If the table may not exist yet, as for the first partition of an asset that "
        f"reads its own earlier partitions, annotate the input '{context.name}: DataFrame | None'; it is None then."
    )


def _snapshot(table: Table, contract: ReadContract, step: Any) -> Snapshot:
    if contract.version is not None or contract.timestamp_ms is not None:
        return table.snapshot(version=contract.version, timestamp_ms=contract.timestamp_ms)
    pinned = pinned_version(step, table)
    if pinned is not None:
        return table.snapshot(version=pinned)
    snapshot = table.snapshot()
    held = pin_version(step, table, snapshot.version)
    return snapshot if held == snapshot.version else table.snapshot(version=held)


def _where(context: dg.InputContext, contract: ReadContract, snapshot: Snapshot) -> Predicate | None:
    parts: list[Predicate] = []
    if context.has_asset_partitions:
        part = partition_slice(
            context.asset_partitions_def,
            keys=[str(key) for key in context.asset_partition_keys],
            partition_expr=contract.partition_expr,
            schema=snapshot.schema,
        )
        parts.append(part.predicate)
    if contract.filter is not None:
        parts.append(parse_predicate(contract.filter, snapshot.schema))
    return conjunction(parts) if parts else None


def _changes_filter(contract: ReadContract, snapshot: Snapshot) -> Predicate | None:
    return None if contract.filter is None else parse_predicate(contract.filter, change_schema(snapshot.schema))


def _report_altered(context: dg.OutputContext, write: OutputWrite, written: Written) -> None:
    """Report the commits that brought the table in line with its declaration, as observations."""
    step, asset_key = write.origin.step_context, write.origin.asset_key
    for version in written.altered:
        context.log.info(
            "Brought %s in line with the metadata of the asset: version %d.", written.table.identifier, version
        )
        if step is not None and asset_key is not None:
            entries = {
                facts.TABLE_NAME: str(written.table.identifier),
                facts.TABLE_ID: written.table.table_id,
                facts.COMMIT_VERSION: version,
                facts.OPERATION: "alter",
                facts.OUTCOME: written.result.outcome.value,
            }
            text = "Brought the table in line with the metadata of the asset."
            observation = dg.AssetObservation(asset_key, description=text, metadata=entries)
            dg.DagsterEvent.asset_observation(step, observation)


def _report_read(
    context: dg.InputContext, snapshot: Snapshot, plan: ReadPlan | None = None, *, changes_after: int | None = None
) -> None:
    entries: dict[str, Any] = {facts.VERSION_READ: snapshot.version, facts.TABLE_ID: snapshot.table_id}
    if changes_after is not None:
        entries["cm_delta/changes_after"] = changes_after
    if plan is not None:
        entries |= {facts.FILES_READ: plan.files_read, facts.FILES_TOTAL: plan.files_total}
    keys = [str(key) for key in context.asset_partition_keys] if context.has_asset_partitions else []
    if not context.has_asset_partitions or len(keys) == 1:
        context.add_input_metadata(entries)
        return
    context.log.info("Read version %d of %s for %d partitions.", snapshot.version, snapshot.identifier, len(keys))
    step = _step(context)
    if keys and step is not None:
        # Dagster adds input metadata to one event for each partition; a single event without partition avoids thousands.
        entries |= {facts.PARTITIONS_READ: keys_text(keys), "cm_delta/num_partitions_read": len(keys)}
        dg.DagsterEvent.asset_observation(step, dg.AssetObservation(context.asset_key, metadata=entries))
