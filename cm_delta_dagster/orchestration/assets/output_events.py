"""Reports the write of an output to Dagster: metadata of its materialization, data version, observations, log lines.

Dagster stores the materialization of an output when the IO manager returns. An output that is committed later, together with
others of its step, has no materialization then; :func:`report` stores it after the commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from cm_delta_dagster.operations.writing.write_result import WriteOutcome
from cm_delta_dagster.orchestration.assets.change_inputs import changes_metadata, reads_of
from cm_delta_dagster.orchestration.assets.column_lineage import lineage_metadata
from cm_delta_dagster.orchestration.assets.output import OutputWrite, Written
from cm_delta_dagster.orchestration.assets.preview import preview
from cm_delta_dagster.orchestration.metadata import metadata as facts

_NO_EVENT = "NULL"
"""What Dagster writes for an input without an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOutput:
    """An output and its write.

    Attributes:
        partitions: the partition keys of the output; ``(None,)`` without partitions.
        seconds: duration of the write.
        lineage: for columns in lower case, the columns of inputs that they are computed from.
    """

    context: dg.OutputContext
    write: OutputWrite
    written: Written
    partitions: tuple[str | None, ...]
    seconds: float
    lineage: Mapping[str, tuple[dg.TableColumnDep, ...]]


def partitions_of(context: dg.OutputContext) -> tuple[str | None, ...]:
    """The partition keys of the output; ``(None,)`` without partitions."""
    return tuple(context.asset_partition_keys) if context.has_asset_partitions else (None,)


def report(output: WrittenOutput, *, handled: dg.OutputContext, preview_rows: int) -> None:
    """Report a committed output.

    Args:
        handled: the context of the output that Dagster handles now. Dagster stores the materialization of that one itself; for
            another one, whose materialization was withheld, it is stored here.
    """
    context = output.context
    _report_altered(output)
    context.log.info(
        "%s is at version %d (%s, %s, %d rows written, %d conflict retries).",
        output.written.table.identifier,
        output.written.result.version,
        output.write.contract.mode.value,
        output.written.result.outcome.value,
        output.written.result.num_output_rows,
        output.written.result.retries,
    )
    entries = _entries(output, preview_rows=preview_rows)
    if context is handled:
        context.add_output_metadata(entries)
    step, asset_key = output.write.origin.step_context, output.write.origin.asset_key
    if step is None or asset_key is None:
        return
    if not step.has_data_version(asset_key):
        result = output.written.result
        step.set_data_version(asset_key, facts.data_version(result.table_id, result.data_version))
    positions = changes_metadata(reads_of(step), output.written.result.snapshot)
    if positions:
        step.add_asset_metadata(positions, asset_key=asset_key)
    for key, figures in _figures(output).items():
        step.add_asset_metadata(figures, asset_key=asset_key, partition_key=key)
    if context is not handled:
        entries = {**context.output_metadata, **entries}  # Dagster adds what the function says of its output.
        for materialization in _materializations(step, asset_key, entries, output.partitions):
            handled.log_event(materialization)


def _materializations(
    step: Any, asset_key: dg.AssetKey, entries: Mapping[str, Any], partitions: Sequence[str | None]
) -> Iterator[dg.AssetMaterialization]:
    """What Dagster stores for an output with these entries."""
    tags, common = dict(_version_tags(step, asset_key)), {**entries, **(step.get_asset_metadata(asset_key) or {})}
    for partition in partitions:
        own = {} if partition is None else step.get_asset_metadata(asset_key, partition) or {}
        yield dg.AssetMaterialization(asset_key, metadata={**common, **own}, tags=dict(tags), partition=partition)


def withhold_materialization(context: dg.OutputContext) -> None:
    """Keep Dagster from storing a materialization of the output, which would trigger downstream assets."""
    # Dagster stores a materialization for each output with an asset key, and offers nothing else to prevent that.
    context._asset_key = None


def observe_instead(context: dg.OutputContext, step: Any, asset_key: dg.AssetKey, entries: Mapping[str, Any]) -> None:
    """Store an observation instead of the materialization."""
    text = "Nothing was written."
    for partition in partitions_of(context):
        observation = dg.AssetObservation(asset_key, description=text, metadata=entries, partition=partition)
        dg.DagsterEvent.asset_observation(step, observation)
    withhold_materialization(context)


def _entries(output: WrittenOutput, *, preview_rows: int) -> dict[str, Any]:
    written = output.written
    entries = facts.write_metadata(
        written.result,
        operation=output.write.contract.mode.value,
        part=written.part,
        duration_seconds=output.seconds,
    )
    entries |= lineage_metadata(output.lineage, written.result.snapshot.schema)
    if preview_rows:
        entries |= preview(written.table, written.result.snapshot, part=written.part, num_rows=preview_rows)
    return entries


def _figures(output: WrittenOutput) -> Mapping[str, Mapping[str, int]]:
    """What is counted by partition, of a write to several partitions."""
    part = output.written.part
    return {} if part is None or len(part.keys) == 1 else facts.figures_by_key(output.written.result, part)


def _report_altered(output: WrittenOutput) -> None:
    """Report the commits that brought the table in line with its declaration, as observations."""
    step, asset_key = output.write.origin.step_context, output.write.origin.asset_key
    table = output.written.table
    for version in output.written.altered:
        output.context.log.info(
            "Brought %s in line with the metadata of the asset: version %d.", table.identifier, version
        )
        if step is not None and asset_key is not None:
            entries: dict[str, Any] = {
                facts.TABLE_NAME: str(table.identifier),
                facts.TABLE_ID: table.table_id,
                facts.COMMIT_VERSION: version,
                facts.OPERATION: "alter",
                facts.OUTCOME: WriteOutcome.COMMITTED.value,
            }
            text = "Brought the table in line with the metadata of the asset."
            observation = dg.AssetObservation(asset_key, description=text, metadata=entries)
            dg.DagsterEvent.asset_observation(step, observation)


def _version_tags(step: Any, asset_key: dg.AssetKey) -> Iterator[tuple[str, str]]:
    """The tags by which Dagster compares code version and inputs of a materialization with the present ones.

    Dagster adds them to the materializations that it stores itself, and has no public function for them.
    """
    node = step.job_def.asset_layer.get(asset_key)
    yield "dagster/code_version", node.code_version or step.run_id
    yield "dagster/data_version", step.get_data_version(asset_key).value
    yield "dagster/data_version_is_user_provided", "true"
    for key in node.parent_keys:
        info = step.maybe_fetch_and_get_input_asset_version_info(key)
        version = None if info is None else info.data_version
        name = key.to_user_string()
        yield f"dagster/input_data_version/{name}", "INITIAL" if version is None else version.value
        yield f"dagster/input_event_pointer/{name}", _NO_EVENT if info is None else str(info.storage_id or _NO_EVENT)
    backfill = step.get_tag("dagster/backfill")
    if backfill:
        yield "dagster/backfill", backfill
