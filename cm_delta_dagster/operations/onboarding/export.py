"""EXPORT: write a log without the feature ``catalogManaged`` beside the data files of a table, for engines that refuse the feature.

The log is that of a Delta table of its own at another location. It names the data files of the table by absolute paths; no data
file is read or written. A repeated export adds one version with the files that came and went since. Writers must not use the
export: the next export refuses one that has other commits.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import ENGINE_INFO
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import InvalidArgumentError, ObjectAlreadyExistsError, RecoveryError, TableNotFoundError
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.tables.external_location import overlapping_tables
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Action, CommitInfo, Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import dv_ids, removes_of, table_to_new_adds
from cm_delta_dagster.protocol.commits.commit_validation import encode_checked
from cm_delta_dagster.protocol.features.protocol_evolution import required_features, with_features
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from cm_delta_dagster.protocol.log.cloning import cloned_metadata, shallow_files
from cm_delta_dagster.protocol.schema.types import parse_schema

OPERATION = "EXPORT"
EXPORTED_TABLE_TAG, EXPORTED_VERSION_TAG = "cm_delta/exported_table", "cm_delta/exported_version"
"""Tags of the commits of an export: id and version of the table."""

_LEFT_OUT = frozenset(
    {"catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp", "checkpointProtection", "v2Checkpoint"}
)
"""Features that describe the log of the table, and not its rows."""
_PLAIN = Protocol(min_reader_version=1, min_writer_version=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan(Plan["ExportPlan"]):
    """What :func:`export` writes.

    Attributes:
        target: location of the export.
        version: the version of the table that is exported.
        target_version: the version of the export that is written; None if it is up to date.
        num_added_files, num_removed_files: files that come and go with it.
    """

    name: str
    target: str
    version: int
    target_version: int | None
    num_files: int
    num_added_files: int
    num_removed_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExportDraft:
    plan: ExportPlan
    actions: tuple[Action, ...]


def plan_export(client: DeltaClient, table: Table, *, target: str) -> ExportPlan:
    """Compare the latest version of a table with an export of it; writes nothing.

    Args:
        target: directory, or URI with its scheme; a relative path starts at the working directory.

    Raises:
        InvalidArgumentError: the target overlaps the location of a table of the catalog.
        RecoveryError: there is another Delta table, or an export with commits of other writers.
    """
    return _draft(client, table, target).plan


def export(client: DeltaClient, table: Table, *, target: str) -> ExportPlan:
    """Write the latest version of ``table`` as the next version of the export at ``target``.

    Raises:
        CmDeltaError: as :func:`plan_export`; nothing was written.
    """
    return _write(client, _draft(client, table, target))


def apply_export(client: DeltaClient, table: Table, plan: ExportPlan) -> ExportPlan:
    """Write the version of the table that ``plan`` names, also if there are later ones.

    Raises:
        RecoveryError: the export has another latest version than when the plan was made; nothing was written.
        CmDeltaError: as :func:`plan_export`; nothing was written.
    """
    draft = _draft(client, table, plan.target, version=plan.version)
    if draft.plan != plan:
        raise RecoveryError(
            f"{plan.name} was not exported: the export at {plan.target} has changed since the plan was made. Nothing was written. "
            "Make a new plan."
        )
    return _write(client, draft)


def _write(client: DeltaClient, draft: _ExportDraft) -> ExportPlan:
    plan = draft.plan
    if plan.target_version is None:
        return plan
    store = client.stores.store_for(plan.target)
    location = published_source(plan.target, plan.target_version).location
    try:
        store.write_if_absent(location, encode_checked(draft.actions))
    except ObjectAlreadyExistsError as error:
        raise RecoveryError(
            f"{plan.name} was not exported: version {plan.target_version} of {plan.target} was written by another client "
            "meanwhile. Nothing was changed. Export again."
        ) from error
    return plan


def _draft(client: DeltaClient, table: Table, target: str, *, version: int | None = None) -> _ExportDraft:
    at = absolute_location(target).rstrip("/")
    overlapping = overlapping_tables(client, at)
    if overlapping:
        raise InvalidArgumentError(
            f"{table.identifier} cannot be exported to {at}: the table {overlapping[0].identifier} is at "
            f"{overlapping[0].location}. Nothing was written. Choose a location of its own."
        )
    source = table.snapshot(version=version)
    before = _former(client, table, at)
    adds = shallow_files(source.files, location=source.location)
    new, gone = (adds, adds.slice(0, 0)) if before is None else _difference(before, adds)
    metadata = _metadata(source, table.table_id, before, now_ms=client.now_ms())
    protocol = _protocol(source, metadata)
    changed: list[Action] = []
    if before is None or before.protocol != protocol:
        changed.append(protocol)
    if before is None or before.metadata != metadata:
        changed.append(metadata)
    is_current = before is not None and not (changed or new.num_rows or gone.num_rows)
    next_version = 0 if before is None else before.version + 1
    plan = ExportPlan(
        name=str(table.identifier),
        target=at,
        version=source.version,
        target_version=None if is_current else next_version,
        num_files=source.num_files,
        num_added_files=new.num_rows,
        num_removed_files=gone.num_rows,
    )
    now_ms = client.now_ms()
    info = CommitInfo(
        timestamp=now_ms,
        operation=OPERATION,
        operation_parameters={"table": str(table.identifier), "version": str(source.version)},
        is_blind_append=False,
        engine_info=ENGINE_INFO,
        txn_id=str(uuid.uuid4()),
        tags={EXPORTED_TABLE_TAG: table.table_id, EXPORTED_VERSION_TAG: str(source.version)},
    )
    removes = removes_of(gone, deletion_timestamp=now_ms, data_change=True) if gone.num_rows else ()
    return _ExportDraft(plan=plan, actions=(info, *changed, *removes, *table_to_new_adds(new)))


def _former(client: DeltaClient, table: Table, target: str) -> Snapshot | None:
    """The latest version of the export at ``target``; None if there is nothing."""
    path = open_path_table(client.stores, target)
    try:
        snapshot = path.snapshot()
    except TableNotFoundError:
        return None
    info = commit_json.decode_commit_info(path.store.read(published_source(target, snapshot.version).location))
    tags = {} if info is None else info.tags or {}
    if tags.get(EXPORTED_TABLE_TAG) != table.table_id:
        raise RecoveryError(
            f"{table.identifier} was not exported: the latest version {snapshot.version} of the Delta table at {target} is not an "
            "export of it. Nothing was written. Choose another location."
        )
    return snapshot


def _difference(before: Snapshot, adds: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The files that come and go."""
    old, new = _keys(before.files), _keys(adds)
    return adds.filter(pc.invert(pc.is_in(new, value_set=old))), before.files.filter(
        pc.invert(pc.is_in(old, value_set=new))
    )


def _keys(files: pa.Table) -> pa.Array:
    paths = files["path"].combine_chunks()
    return pc.binary_join_element_wise(paths, pc.fill_null(dv_ids(files), ""), "\n")


def _metadata(source: Snapshot, table_id: str, before: Snapshot | None, *, now_ms: int) -> Metadata:
    exported_id = str(uuid.uuid5(uuid.UUID(table_id), "export"))
    created = now_ms if before is None or before.metadata.created_time is None else before.metadata.created_time
    metadata = cloned_metadata(source.metadata, {}, metadata_id=exported_id, created_ms=created)
    kept = {key: value for key, value in metadata.configuration.items() if key != "delta.checkpointPolicy"}
    return replace(metadata, configuration=kept)


def _protocol(source: Snapshot, metadata: Metadata) -> Protocol:
    of_source = writer_features(source.protocol) | reader_features(source.protocol)
    needed = required_features(parse_schema(metadata.schema_string), metadata.configuration)
    return with_features(_PLAIN, (of_source | needed) - _LEFT_OUT)


def explain(plan: ExportPlan) -> Sequence[str]:
    """The lines of text that show a plan to a user."""
    if plan.target_version is None:
        return [f"{plan.target} has version {plan.version} of {plan.name}; there is nothing to do."]
    return [
        f"Version {plan.version} of {plan.name} as version {plan.target_version} of {plan.target}: {plan.num_files} files, of "
        f"which {plan.num_added_files} are new; {plan.num_removed_files} files are gone."
    ]
