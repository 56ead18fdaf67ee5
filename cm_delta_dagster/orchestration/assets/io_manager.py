"""The IO manager: writes the DataFrames that assets return to tables of the catalog, and reads inputs from them.

``write_contract`` parses the metadata of assets, ``partitions`` translates partition keys to predicates, ``output`` writes an
output as one commit, and ``runs`` makes writes idempotent and pins versions.
"""

import time
import typing
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.maintenance.auto_compaction import compacting_client
from cm_delta_dagster.operations.reading.consistent_snapshots import load_together
from cm_delta_dagster.operations.reading.read import plan_read
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.operations.writing.deferred_writes import DeferredWrites
from cm_delta_dagster.orchestration.assets.audited_tables import refuse_table_of_audit
from cm_delta_dagster.orchestration.assets.change_inputs import (
    Consumer,
    changes_metadata,
    consumer_of,
    io_manager_of,
    reads_of,
)
from cm_delta_dagster.orchestration.assets.column_lineage import column_lineage, remember_input
from cm_delta_dagster.orchestration.assets.commit_together import CommitOutputs, OutputGroups
from cm_delta_dagster.orchestration.assets.inputs import (
    ReadableState,
    TableInput,
    allows_none,
    never_written,
    rows_of,
    step_of,
)
from cm_delta_dagster.orchestration.assets.mapped_inputs import is_mapped
from cm_delta_dagster.orchestration.assets.output import OutputWrite, complete_declaration, write_output
from cm_delta_dagster.orchestration.assets.output_events import WrittenOutput, observe_instead, partitions_of, report
from cm_delta_dagster.orchestration.assets.output_rows import output_rows
from cm_delta_dagster.orchestration.assets.run_writes import RunWrites
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.frame_types import DtypeBackend, FrameType
from cm_delta_dagster.orchestration.metadata.metadata_keys import (
    DEFAULT_READ_KEYS,
    WRITE_KEYS,
    own_entries,
    own_run_tags,
)
from cm_delta_dagster.orchestration.metadata.write_contract import (
    NamingDefaults,
    ReadContract,
    parse_read_contract,
    parse_write_contract,
    table_identifier,
)
from cm_delta_dagster.orchestration.runs.refusals import without_retries
from cm_delta_dagster.orchestration.runs.resource_fields import check_catalog, check_fields
from cm_delta_dagster.orchestration.runs.resources import CatalogResource, SparkResource, session_of
from cm_delta_dagster.orchestration.runs.run_checks import checked_warehouse
from cm_delta_dagster.orchestration.runs.runs import (
    WriteOrigin,
    asset_metadata,
    op_output_name,
    pin_together,
    pinned_version,
    raise_pinned_version,
    run_tags,
)
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.session.session import running_session

_FIELD_HINTS: Mapping[str, str] = {
    "schema": "default_schema=...",
    **{name: f"spark=SparkResource({name}=...)" for name in SparkResource.model_fields},
    **{name: f"catalog=CatalogResource({name}=...)" for name in CatalogResource.model_fields},
}


class CatalogManagedDeltaIOManager(dg.ConfigurableIOManager):
    """Writes the DataFrames that assets return to catalog-managed Delta tables, and reads inputs from them.

    Args:
        catalog: the catalog.
        spark: anything with a ``spark_session``, e.g. ``SparkResource`` or ``LazyPySparkResource``. It is needed for inputs and
            outputs of PySpark, and for what only Spark can do with rows of Arrow, polars, pandas and DuckDB; without it the
            session is used that runs in the process.
        default_catalog: first part of a table's name, if the asset's metadata does not set it.
        default_schema: second part, for assets whose key has a single part.
        report_reads: whether a read becomes an observation of the upstream asset; an input can switch it off for itself.
        dtype_backend: the types of the columns of pandas inputs: ``pyarrow``, ``numpy_nullable`` or ``numpy``; an input can have
            its own.
        preview_rows: number of rows that the event of a write shows as a Markdown table.
        column_lineage: whether the event of a write shows which columns of inputs its columns are computed from.
    """

    catalog: dg.ResourceDependency[CatalogResource]
    spark: dg.ResourceDependency[Any] = Field(
        default=None,  # type: ignore[arg-type]  # Dagster accepts None here, and its type does not say so.
        description="Resource with the Spark session for rows that need Spark, which is started on first use.",
    )
    default_catalog: str = Field(default="main", description="Catalog of tables whose asset does not name one.")
    default_schema: str = Field(default="default", description="Schema of tables whose asset key has one part.")
    report_reads: bool = Field(default=True, description="Whether a read becomes an observation of the upstream asset.")
    dtype_backend: DtypeBackend = Field(
        default=DtypeBackend.PYARROW,
        description="Types of the columns of pandas inputs: 'pyarrow', 'numpy_nullable', or 'numpy', which changes NULLs.",
    )
    preview_rows: int = Field(
        default=0, ge=0, le=100, description="Rows of the table or partition to show with each write; 0 for none."
    )
    column_lineage: bool = Field(
        default=True, description="Whether the event of a write shows the columns of inputs that its columns come from."
    )

    _checked: ExitStack = PrivateAttr(default_factory=ExitStack)
    _groups: OutputGroups = PrivateAttr(default_factory=OutputGroups)
    _run_writes: RunWrites = PrivateAttr(default_factory=RunWrites)

    if not typing.TYPE_CHECKING:  # A type checker sees the fields as parameters.

        def __init__(self, **data: Any) -> None:
            check_fields(type(self), data, hints=_FIELD_HINTS)
            check_catalog(data.get("catalog"), user="CatalogManagedDeltaIOManager")
            super().__init__(**data)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Find out before an asset is computed that the catalog or the warehouse cannot be reached."""
        is_remote = isinstance(self.spark, SparkResource) and self.spark.remote is not None
        session = None if is_remote else running_session()
        self._checked.enter_context(checked_warehouse(self.catalog.client, session=session))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        with self._checked:
            self._groups.discard_all()

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output as one commit, and add metadata about the commit."""
        if obj is None and not context.has_asset_key and not context.definition_metadata:
            return  # An op without an asset and without metadata has no table.
        write = self._output_write(context)
        origin = write.origin
        refuse_table_of_audit(origin.step_context, origin.asset_key, write.contract.identifier, self.table_of)
        group = self._groups.group_of(self._writing_client, context, write.contract, write.origin.step_context)
        if group is None:
            with without_retries():
                output = self._write(context, obj, write, together=None)
            committed: tuple[WrittenOutput, ...] = () if output is None else (output,)
        else:
            with self._groups.discarding_on_error(group), without_retries():
                group.refuse_outputs_without_rows(write.origin.step_context, written=context.name)
                committed = group.add(context.name, self._write(context, obj, write, together=group.writes))
        for written_output in committed if group is None else map(self._completed, committed):
            written = written_output.written
            raise_pinned_version(write.origin.step_context, written.table, written.result.version)
            report(written_output, handled=context, preview_rows=self.preview_rows)

    def _completed(self, output: WrittenOutput) -> WrittenOutput:
        """An output of a group, which is committed, with its table as the asset declares it."""
        try:
            return replace(output, written=complete_declaration(output.written, output.write, session=self._session))
        except CmDeltaError as error:
            output.context.log.warning(
                "The rows of %s are committed, and the table is not as the metadata of the asset declares it; the next write tries "
                "again: %s",
                output.written.table.identifier,
                error,
            )
            return output

    def _write(
        self, context: dg.OutputContext, obj: Any, write: OutputWrite, *, together: DeferredWrites | None
    ) -> WrittenOutput | None:
        """Write one output; None if there is nothing to write, which is reported then."""
        if obj is None:
            self._report_none(context, write)
            return None
        partitions, started = partitions_of(context), time.monotonic()
        rows = output_rows(obj, name=write.origin.name, session=self._available_session)
        return WrittenOutput(
            context=context,
            write=write,
            written=write_output(self._writing_client, rows=rows, write=write, together=together),
            partitions=partitions,
            seconds=time.monotonic() - started,
            lineage=column_lineage(write.origin.step_context, obj) if not write.contract.merge_clauses else {},
        )

    def load_input(self, context: dg.InputContext) -> Any:
        """The selected rows in the type of the annotation, or a :class:`Snapshot` if the parameter is annotated so.

        Returns None if there is no table yet and the annotation allows it.

        Raises:
            TableNotFoundError: the upstream asset was never materialized, and the annotation does not allow None.
            VersionNotFoundError: the requested version or time cannot be read.
        """
        contract = self._read_contract(context)
        try:
            table = self.catalog.client.table(contract.identifier)
        except TableNotFoundError as error:
            if not allows_none(context):
                raise never_written(context, contract) from error
            context.log.info("There is no table %s yet, so the input %s is None.", contract.identifier, context.name)
            return None
        self._pin_inputs(context, contract, table)
        table_input = TableInput.of(context, contract, table, session=self._session, reports=self.report_reads)
        if is_mapped(context) and table_input.step is not None and contract.reads_latest:
            table_input = table_input.of_mapped_output(self._run_writes)
        if contract.changes:
            consumer = None if table_input.step is None else self._consumer(context.name, table_input.step)
            loaded = table_input.changes(self.catalog.client, consumer)
        else:
            loaded = table_input.rows()
        if self.column_lineage:
            remember_input(context, table_input.step, loaded)
        return loaded

    def load_state(
        self,
        state: ReadableState,
        kind: FrameType,
        *,
        asset_key: dg.AssetKey,
        metadata: Mapping[str, Any],
        where: Predicate | None = None,
    ) -> Any:
        """The rows of a state of an asset's table, as an input without metadata gets those of a version."""
        contract = parse_read_contract(upstream=metadata, own={}, asset_path=asset_key.path, names=self._names)
        scan = SnapshotScan(snapshot=state.snapshot, store=state.store, columns=contract.columns, where=where)
        return rows_of(scan, plan_read(scan), kind, session=self._session, dtype_backend=self.dtype_backend)

    def committing(self, step: Any, commit: CommitOutputs) -> AbstractContextManager[None]:
        """Have ``commit`` make the commit of all outputs of the step that are handled within the block."""
        return self._groups.committing(step, commit)

    def _pin_inputs(self, context: dg.InputContext, contract: ReadContract, table: Table) -> None:
        """Pin the tables of all inputs of the step at one moment: a commit over several tables is seen in all or in none."""
        step = step_of(context)
        if step is None or not contract.reads_latest or pinned_version(step, table) is not None:
            return
        names = {contract.identifier}
        for definition in step.op_def.input_defs:
            asset_key = step.job_def.asset_layer.get_asset_key_for_node_input(step.node_handle, definition.name)
            if asset_key is None:
                continue
            try:
                other = parse_read_contract(
                    upstream=asset_metadata(step, asset_key, {}),
                    own=definition.metadata,
                    asset_path=asset_key.path,
                    names=self._names,
                )
            except (
                InvalidArgumentError
            ):  # An input of another IO manager; one of this kind reports it when it is loaded.
                continue
            if other.reads_latest:
                names.add(other.identifier)
        if len(names) > 1:
            pin_together(step, load_together(self.catalog.client, sorted(names, key=str)))

    def _consumer(self, name: str, step: Any) -> Consumer:
        """The asset that reads changes, and the table in which an IO manager of this kind stores it."""
        asset_key, table = consumer_of(step, name=name), None
        manager = io_manager_of(step, asset_key)
        if isinstance(manager, CatalogManagedDeltaIOManager):
            table = manager.table_of(step.job_def.asset_layer.get(asset_key).metadata, asset_key)
        return Consumer(asset_key=asset_key, table=table, instance=step.instance)

    def table_of(self, metadata: Mapping[str, Any], asset_key: dg.AssetKey) -> TableIdentifier:
        """The table of an asset with this metadata. Raises InvalidArgumentError."""
        entries = own_entries(metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, place="The asset's metadata")
        return table_identifier(entries, asset_path=asset_key.path, names=self._names)

    @property
    def _writing_client(self) -> DeltaClient:
        return compacting_client(self.catalog.client, self._available_session)

    def _session(self) -> Any:
        """The Spark session for an input of Spark's type."""
        session = self._available_session()
        if session is None:
            raise InvalidArgumentError(
                "The input is a DataFrame of Spark, no Spark session runs, and the Delta IO manager has no resource of one. Give "
                "it a SparkResource, or annotate the input with another type, e.g. pyarrow.Table."
            )
        return session

    def _available_session(self) -> SparkSession | None:
        """The session of the resource, which may start it, or else the one that runs."""
        return running_session() if self.spark is None else session_of(self.spark, user="Delta IO manager")

    @property
    def _names(self) -> NamingDefaults:
        return NamingDefaults(catalog=self.default_catalog, schema=self.default_schema)

    def _output_write(self, context: dg.OutputContext) -> OutputWrite:
        step = step_of(context)
        asset_key = context.asset_key if context.has_asset_key else None
        definition = _output_partitions(context)
        keys = tuple(str(key) for key in context.asset_partition_keys) if definition is not None else ()
        contract = parse_write_contract(
            definition=asset_metadata(step, asset_key, context.definition_metadata),
            run=own_run_tags(run_tags(step)),
            output=context.output_metadata,
            asset_path=() if asset_key is None else asset_key.path,
            partitioned=definition is not None,
            names=self._names,
        )
        origin = WriteOrigin(
            name=asset_key.to_user_string()
            if asset_key is not None
            else op_output_name(
                "" if step is None else context.job_name, context.step_key, context.name, context.mapping_key
            ),
            partition_keys=keys,
            asset_key=asset_key,
            step_key=None if step is None else context.step_key,
            step_context=step,
        )
        progress = tuple(read.progress for read in reads_of(step))
        return OutputWrite(
            contract=contract,
            origin=origin,
            definition=definition,
            keys=keys,
            progress=progress,
            run_writes=self._run_writes,
        )

    def _read_contract(self, context: dg.InputContext) -> ReadContract:
        upstream = context.upstream_output
        named = {} if upstream is None else upstream.definition_metadata
        asset_key = context.asset_key if context.has_asset_key else None
        contract = parse_read_contract(
            upstream=asset_metadata(step_of(context), asset_key, named),
            own=context.definition_metadata,
            asset_path=context.asset_key.path if context.has_asset_key else (),
            names=self._names,
        )
        return contract if contract.dtype_backend else replace(contract, dtype_backend=self.dtype_backend)

    def _report_none(self, context: dg.OutputContext, write: OutputWrite) -> None:
        """Accept None if the annotation allows it: there is no commit, and the data version of the table stays."""
        if not allows_none(context):
            raise InvalidArgumentError(
                f"{write.origin.name} returned None, and its annotation does not allow it. Nothing was written. Return a "
                "DataFrame (an empty one clears the partition or table); annotate '-> DataFrame | None' if the asset "
                "sometimes has nothing to write; or annotate '-> None' if it stores its result itself."
            )
        context.log.info("The output %s is None, so nothing was written.", context.name)
        entries: dict[str, Any] = {facts.OUTCOME: facts.NOTHING_WRITTEN}
        step, asset_key = write.origin.step_context, write.origin.asset_key
        entries |= changes_metadata(reads_of(step), None)
        try:
            snapshot = self.catalog.client.table(write.contract.identifier).snapshot()
        except TableNotFoundError:
            snapshot = None
        if snapshot is not None:
            entries |= facts.table_metadata(snapshot)
        context.add_output_metadata(entries)
        if step is not None and asset_key is not None:
            observe_instead(context, step, asset_key, entries)


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
