"""How a Dagster run reads and writes a table: provenance of commits, idempotent writes, one version for each run.

*Exactly once.* A commit has a ``txn`` action whose application id is made of the asset and its partition keys, and whose version
is a number made of the run id. A retried step finds its commit by this number. A run that is re-executed from failure also
accepts the number of the run it continues if the step did not succeed there.

*One version of each table in a run.* The first read of a table pins the version for all processes of the run, and with it those of
the other inputs of the step that the run has not pinned, which were the latest ones at the same moment. A write of the run moves
the pin to its version. The catalog stores the pin under the run id, so a run that is executed again has its own pin.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import CommitProperties, Idempotency, IdempotencyRule
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.table_target import TableTarget
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.reading.consistent_snapshots import LatestVersion
from cm_delta_dagster.orchestration.metadata.partitions import keys_text
from cm_delta_dagster.orchestration.metadata.write_contract import ambiguous_table

RUN_ID_TAG = "dagster/run_id"
ASSET_KEY_TAG = "dagster/asset_key"
PARTITION_KEY_TAG = "dagster/partition_key"
STEP_KEY_TAG = "dagster/step_key"

APP_PREFIX = "dagster:"
"""Begins the application id of the ``txn`` action of an output."""
_PARTS_OF_A_NAME = 2
"""Number of last parts of an asset key that make the name of a table."""
_FROM_FAILURE_TAGS = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOrigin:
    """Which step of which run writes.

    Attributes:
        name: asset key; for the output of an op without an asset, job, step and output.
        partition_keys: keys being written, empty for an output without partitions.
        step_context: Dagster's context of the step; None in a unit test, where writes are not idempotent.
    """

    name: str
    partition_keys: tuple[str, ...] = ()
    asset_key: dg.AssetKey | None = None
    step_key: str | None = None
    step_context: Any = field(default=None, compare=False)

    @property
    def app_id(self) -> str:
        suffix = f":{keys_text(self.partition_keys)}" if self.partition_keys else ""
        return f"{APP_PREFIX}{self.name}{suffix}"

    def commit_context(self) -> CommitProperties:
        """Provenance for ``commitInfo`` and the catalog's feed."""
        if self.step_context is None:
            return CommitProperties()
        tags = {RUN_ID_TAG: self.step_context.run_id, STEP_KEY_TAG: self.step_key or ""}
        if self.asset_key is not None:
            tags[ASSET_KEY_TAG] = self.asset_key.to_user_string()
        if self.partition_keys:
            tags[PARTITION_KEY_TAG] = keys_text(self.partition_keys)
        return CommitProperties(tags=tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierWrite:
    """The commit of an earlier attempt of the same write."""

    version: int


def op_output_name(job: str, step_key: str, output: str, mapping_key: str | None) -> str:
    """The name of the output of an op that belongs to no asset; ``job`` is empty outside of a run."""
    return ":".join(part for part in ("op", job, step_key, output, mapping_key or "") if part)


def run_number(run_id: str) -> int:
    """A stable number of 63 bits for a run id."""
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") >> 1


def idempotency(table: WriteTarget, origin: WriteOrigin) -> Idempotency | EarlierWrite | None:
    """The identity that makes the write of ``origin`` happen once.

    Returns:
        The identity to commit with; EarlierWrite if an earlier attempt was ratified and another run has written since; None
        outside of a run.
    """
    step = origin.step_context
    if step is None:
        return None
    own = run_number(step.run_id)
    accepted = (own, *(run_number(run_id) for run_id in _continued_runs(origin)))
    current = table.snapshot().transactions.get(origin.app_id)
    if current is not None and current.version in accepted:
        return Idempotency(app_id=origin.app_id, version=current.version, rule=IdempotencyRule.EXACT)
    if current is not None and (len(accepted) > 1 or step.previous_attempt_count > 0):
        # Reading the history is expensive, so it is read only if an earlier attempt can have committed.
        for number in accepted:
            version = table.find_transaction(app_id=origin.app_id, version=number)
            if version is not None:
                return EarlierWrite(version=version)
    number = next((number for number in accepted[1:] if _is_held(table, origin.app_id, number)), own)
    return Idempotency(app_id=origin.app_id, version=number, rule=IdempotencyRule.EXACT)


def _is_held(table: WriteTarget, app_id: str, number: int) -> bool:
    """Whether the commit of an attempt with that number waits. The write then continues it."""
    stored = table.table if isinstance(table, TableTarget) else table
    if not isinstance(stored, Table):
        return False
    hold = stored.services.holds.find_hold(stored.table_id, app_id=app_id, app_version=number)
    return hold is not None and hold.state is HoldState.PENDING


def earlier_numbers(origin: WriteOrigin) -> tuple[int, ...]:
    """The run numbers under which an earlier attempt of the step can have written; empty if this is the first attempt."""
    step = origin.step_context
    if step is None:
        return ()
    continued = tuple(run_number(run_id) for run_id in _continued_runs(origin))
    return (run_number(step.run_id), *continued) if continued or step.previous_attempt_count else ()


def numbers_of_run(origin: WriteOrigin) -> frozenset[int]:
    """The run numbers of this run and of the runs that it continues; empty outside of a run."""
    step = origin.step_context
    if step is None:
        return frozenset()
    return frozenset(map(run_number, (step.run_id, *_parents(step.instance, step.dagster_run))))


def _continued_runs(origin: WriteOrigin) -> Iterator[str]:
    """Ids of the failed runs that this run continues and in which this step did not succeed."""
    instance = origin.step_context.instance
    for run_id in _parents(instance, origin.step_context.dagster_run):
        if _succeeded(instance, run_id, origin.step_key):
            return
        yield run_id


def _parents(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[str]:
    """Ids of the runs that a run continues, the newest first."""
    while run.parent_run_id is not None and _continues_its_parent(instance, run):
        parent = instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return
        yield parent.run_id
        run = parent


def _continues_its_parent(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the run continues its parent from failure, instead of executing all steps again."""
    if any(run.tags.get(tag) == "true" for tag in _FROM_FAILURE_TAGS):
        return True
    # ``dg.execute_job`` sets no tag; the execution plan of such a run refers to outputs of the parent.
    plan = run.execution_plan_snapshot_id and instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
    known = plan.initial_known_state if plan else None
    return known is not None and known.parent_state is not None


def _succeeded(instance: dg.DagsterInstance, run_id: str, step_key: str | None) -> bool:
    # A materialization does not prove success: a step may have more partitions and more outputs.
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_SUCCESS)
    return any(entry.step_key == step_key for entry in entries)


def refuse_other_asset(snapshot: Snapshot, origin: WriteOrigin, *, named_after: Sequence[str]) -> None:
    """Refuse the write if an asset with another key, whose last parts are the same, has written to the table.

    The ``txn`` actions of the table show which assets wrote to it, also from other runs and code locations.

    Args:
        named_after: parts of the asset key that determine the table's name; empty if the metadata names the table.

    Raises:
        InvalidArgumentError: with the keys of both assets.
    """
    mine = tuple(named_after)
    for app_id in snapshot.transactions if mine else ():
        name = app_id.removeprefix(APP_PREFIX).partition(":")[0]
        other = tuple(name.split("/"))
        same_name = app_id.startswith(APP_PREFIX) and other != mine and other[-2:] == mine[-2:]
        if same_name and max(len(other), len(mine)) > _PARTS_OF_A_NAME:
            raise ambiguous_table(snapshot.identifier, "/".join(mine), name)


def pinned_version(step_context: Any, table: Table) -> int | None:
    """The version of ``table`` that the run has pinned; None if it has none, or outside of a run."""
    if step_context is None:
        return None
    return table.services.pins.pinned_version(table.table_id, owner=step_context.run_id)


def pin_version(step_context: Any, table: Table, version: int) -> int:
    """Pin the version that the run reads unless one is pinned; returns the pinned version."""
    if step_context is None:
        return version
    return table.services.pins.pin_version(table.table_id, version, owner=step_context.run_id)


def pin_together(step_context: Any, states: Mapping[TableIdentifier, LatestVersion]) -> None:
    """Pin tables at versions that belong together; a table that the run has pinned before keeps its version."""
    for state in states.values():
        pin_version(step_context, state.table, state.version)


def raise_pinned_version(step_context: Any, table: Table, version: int) -> None:
    """Move the pin of the run forward to ``version``, which the run has written.

    If partitions of an asset are written concurrently, the newest version includes the other writes.
    """
    if step_context is not None:
        table.services.pins.raise_pinned_version(table.table_id, version, owner=step_context.run_id)


def run_tags(step_context: Any) -> Mapping[str, str]:
    """Tags of the run; empty outside of a run."""
    return {} if step_context is None else dict(step_context.dagster_run.tags)


def asset_metadata(step_context: Any, asset_key: dg.AssetKey | None, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata of the definition: of the asset, which for a graph is not that of the op, and of the output."""
    layer = None if step_context is None else step_context.job_def.asset_layer
    if layer is None or asset_key is None or not layer.has(asset_key):
        return own
    return {**layer.get(asset_key).metadata, **own}
