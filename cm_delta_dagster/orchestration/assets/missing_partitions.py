"""Finds upstream partitions of an input that do not exist, whose rows would otherwise be read as none.

A partition exists if a run or a sensor has reported a materialization of it, also one without rows, that the version which is read
includes: not one of a later version, or of a table that was dropped since. It also exists if an output for it that was ratified is
recorded in the table, or if the table has rows of it, also from other programs. An input that reads all partitions
(``AllPartitionMapping``) reads the whole table, and nothing is missing from it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.utils.mapping import infer_partition_mapping
from dagster._core.event_api import AssetRecordsFilter

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import PartitionNotFoundError
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.partitions import PartitionSlice
from cm_delta_dagster.orchestration.runs.asset_events import DATA_VERSION_TAG
from cm_delta_dagster.orchestration.runs.runs import WriteOrigin
from cm_delta_dagster.orchestration.runs.versions_read import TableVersion
from cm_delta_dagster.protocol.predicates.predicates import Or, partition_only
from cm_delta_dagster.storage.store import Store

_MAX_LISTED = 5
_PAGE = 200


def check_partitions(
    context: dg.InputContext, part: PartitionSlice, snapshot: Snapshot, *, store: Store, allowed: bool
) -> None:
    """Refuse an input if upstream partitions do not exist.

    Outside of a run nothing is checked. An asset that reads itself may lack the partitions that its run materializes.

    Args:
        part: the partitions of the input.
        allowed: log a warning instead.

    Raises:
        PartitionNotFoundError: with the names of the missing partitions.
    """
    step = context.step_context
    missing = _without_events(step, context.asset_key, part.keys, snapshot)
    if not missing or _reads_everything(context, step):
        return
    missing = _without_rows(snapshot, store, part, missing)
    missing = _not_left_out(step, context.asset_key, missing)
    if not missing:
        return
    listed = ", ".join(missing[:_MAX_LISTED])
    more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
    name = context.asset_key.to_user_string()
    if allowed:
        context.log.warning(
            "The partitions %s%s of %s were not materialized up to version %d of %s. The input %s has no rows of them, because its "
            "metadata sets 'allow_missing_partitions'.",
            listed,
            more,
            name,
            snapshot.version,
            snapshot.identifier,
            context.name,
        )
        return
    raise PartitionNotFoundError(
        f"The input {context.name} reads the partitions {listed}{more} of {name}, which were not materialized up to version "
        f"{snapshot.version} of {snapshot.identifier}, which it reads and which has no rows of them. Materialize them first. If "
        "they may be missing, set the metadata of the input, dg.AssetIn(metadata={'allow_missing_partitions': True}); they are "
        "then read as no rows."
    )


def _without_events(step: Any, asset_key: dg.AssetKey, keys: Sequence[str], snapshot: Snapshot) -> Sequence[str]:
    """Those of the keys for which no materialization is known, and which this step does not materialize itself."""
    name, own = asset_key.to_user_string(), set()
    if asset_key in step.get_output_asset_keys():
        with partition_loading_context(dynamic_partitions_store=step.instance):
            own = set(step.entity_partitions_def.get_partition_keys_in_range(step.partition_key_range))
    unknown = [
        key
        for key in keys
        if key not in own and WriteOrigin(name=name, partition_keys=(key,)).app_id not in snapshot.transactions
    ]
    if not unknown:
        return ()
    reported = {str(key) for key in step.instance.get_materialized_partitions(asset_key)}
    stored: set[str] = set()
    for start in range(0, len(unknown), _PAGE):
        reported_page = reported.intersection(unknown[start : start + _PAGE])
        stored |= _included(step.instance, asset_key, reported_page, TableVersion(snapshot.table_id, snapshot.version))
    return [key for key in unknown if key not in stored]


def _included(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Collection[str], read: TableVersion
) -> set[str]:
    """Those of the keys of which the version that is read includes a materialization."""
    left, cursor = set(keys), None
    while left:
        records_filter = AssetRecordsFilter(asset_key, asset_partitions=sorted(left))
        page = instance.fetch_materializations(records_filter, limit=_PAGE * 5, cursor=cursor)
        for record in page.records:
            event = record.asset_materialization
            if event is not None and record.partition_key in left and _is_included(event, read):
                left.remove(record.partition_key)
        if not page.has_more:
            break
        cursor = page.cursor
    return set(keys) - left


def _is_included(event: dg.AssetMaterialization, read: TableVersion) -> bool:
    """Whether the version that is read includes what an event reports. An event that does not name a version counts."""
    written = TableVersion.of_data_version((event.tags or {}).get(DATA_VERSION_TAG))
    return written is None or read.includes(written)


def _reads_everything(context: dg.InputContext, step: Any) -> bool:
    """Whether the input has all partitions because it reads the whole asset."""
    consumer = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)
    mapping = infer_partition_mapping(
        None if consumer is None else consumer.get_partition_mapping_for_dep(context.asset_key),
        None if consumer is None else step.entity_partitions_def,
        context.asset_partitions_def,
    )
    return isinstance(mapping, dg.AllPartitionMapping)


def _without_rows(snapshot: Snapshot, store: Store, part: PartitionSlice, keys: Sequence[str]) -> Sequence[str]:
    """Those of the keys of which the table has no rows."""
    possible = [key for key in keys if snapshot.matching_files(part.predicate_of(key)).num_rows]
    if not possible or partition_only(part.where, snapshot.partition_columns):
        return [key for key in keys if key not in possible]
    keys_with_rows = set(_keys_of_rows(snapshot, store, part, possible))
    return [key for key in keys if key not in keys_with_rows]


def _keys_of_rows(snapshot: Snapshot, store: Store, part: PartitionSlice, keys: Sequence[str]) -> Iterable[str]:
    """The keys of the rows that belong to one of ``keys``."""
    columns = list(part.columns.values())
    where = Or(tuple(part.predicate_of(key) for key in keys))
    for batch in read_batches(SnapshotScan(snapshot=snapshot, store=store, columns=columns, where=where)):
        for values in pa.Table.from_batches([batch]).group_by(columns).aggregate([]).to_pylist():
            key = part.key_of(values)
            if key is not None:
                yield key


def _not_left_out(step: Any, asset_key: dg.AssetKey, keys: Sequence[str]) -> Sequence[str]:
    """Those of the keys for which no run has reported that there was nothing to write."""
    left_out: set[str | None] = set()
    for start in range(0, len(keys), _PAGE):
        records_filter = AssetRecordsFilter(asset_key, asset_partitions=list(keys[start : start + _PAGE]))
        for record in step.instance.fetch_observations(records_filter, limit=_PAGE * 5).records:
            event = record.asset_observation
            outcome = None if event is None else event.metadata.get(facts.OUTCOME)
            if outcome is not None and outcome.value == facts.NOTHING_WRITTEN:
                left_out.add(record.partition_key)
    return [key for key in keys if key not in left_out]
