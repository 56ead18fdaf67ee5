"""What a Dagster run means for a table: who committed, whether it was committed before, which version the run reads.

Room: orchestration; no Spark, no rows.

*Exactly once.* A commit carries a ``txn`` action whose application is the asset and its partition keys, and whose
version is a number made of the run id. A step that is retried finds its commit by that number. A run that was
re-executed from failure also accepts the number of the run it continues, as long as that run has not recorded a
materialization: then its commit was ratified and only the answer was lost.

*One version for each table in a run.* The first read of a table in a run fixes the version for all later reads of that
run, and a write of the run moves it to the version written, so that what comes after sees it. It is kept in a tag of
the run, which every process of the run can see. Two processes that read a table for the first time at the same instant
may fix different versions; each still reads one consistent version.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from cm_delta_dagster.client.context import CommitContext, Idempotency, IdempotencyRule
from cm_delta_dagster.client.history import find_transaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.orchestration.partitions import keys_text

RUN_ID_TAG = "dagster/run_id"
ASSET_KEY_TAG = "dagster/asset_key"
PARTITION_KEY_TAG = "dagster/partition_key"
STEP_KEY_TAG = "dagster/step_key"

VERSION_TAG_PREFIX = "cm_delta_version/"
"""Run tag ``cm_delta_version/<table name>`` = ``<table id>@<version>``: the version that the run reads."""

_FROM_FAILURE_TAGS = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOrigin:
    """Which step of which run writes.

    Attributes:
        name: asset key, or for the output of an op that is no asset, job, step and output.
        partition_keys: keys being written, empty for an output without partitions.
        step_context: Dagster's context of the step; None in a unit test, where nothing is remembered between calls.
    """

    name: str
    partition_keys: tuple[str, ...] = ()
    asset_key: dg.AssetKey | None = None
    step_key: str | None = None
    step_context: Any = field(default=None, compare=False)

    @property
    def app_id(self) -> str:
        suffix = f":{keys_text(self.partition_keys)}" if self.partition_keys else ""
        return f"dagster:{self.name}{suffix}"

    def commit_context(self) -> CommitContext:
        """Provenance for ``commitInfo`` and the catalog's feed."""
        if self.step_context is None:
            return CommitContext()
        tags = {RUN_ID_TAG: self.step_context.run_id, STEP_KEY_TAG: self.step_key or ""}
        if self.asset_key is not None:
            tags[ASSET_KEY_TAG] = self.asset_key.to_user_string()
        if self.partition_keys:
            tags[PARTITION_KEY_TAG] = keys_text(self.partition_keys)
        return CommitContext(tags=tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierWrite:
    """The commit of an earlier attempt of the same write."""

    version: int


def run_number(run_id: str) -> int:
    """A stable number of 63 bits for a run id."""
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") >> 1


def idempotency(table: Table, origin: WriteOrigin) -> Idempotency | EarlierWrite | None:
    """How the write of ``origin`` is made to happen once.

    Returns:
        The identity to commit with; EarlierWrite if the history shows that an earlier attempt was ratified and another
        run has written since; None outside of a run.
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
        # Only an attempt before this one can have committed; reading the history is left to these rare cases.
        for number in accepted:
            version = find_transaction(table, app_id=origin.app_id, version=number)
            if version is not None:
                return EarlierWrite(version=version)
    return Idempotency(app_id=origin.app_id, version=own, rule=IdempotencyRule.EXACT)


def _continued_runs(origin: WriteOrigin) -> Iterator[str]:
    """Ids of the failed runs that this run continues and that have not recorded this output."""
    instance = origin.step_context.instance
    run = origin.step_context.dagster_run
    while run.parent_run_id is not None and any(run.tags.get(tag) == "true" for tag in _FROM_FAILURE_TAGS):
        parent = instance.get_run_by_id(run.parent_run_id)
        if parent is None or _recorded(instance, parent.run_id, origin):
            return
        yield parent.run_id
        run = parent


def _recorded(instance: dg.DagsterInstance, run_id: str, origin: WriteOrigin) -> bool:
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        event = entry.asset_materialization
        if event is None or event.asset_key != origin.asset_key:
            continue
        if event.partition is None or event.partition in origin.partition_keys:
            return True
    return False


def pinned_version(step_context: Any, table: Table) -> int | None:
    """The version of ``table`` that the run has fixed; None if it has not, or outside of a run."""
    tags = _run_tags(step_context)
    # A run that is executed again inherits the tags of its parent; only what this run fixed itself counts.
    owner, _, version = tags.get(_tag(table), "").rpartition("@")
    mine = step_context is not None and owner == _pin_owner(step_context, table)
    return int(version) if mine and version.isdigit() else None


def pin_version(step_context: Any, table: Table, version: int) -> int:
    """Fix the version that the run reads from now on; returns the version that holds."""
    if step_context is None:
        return version
    known = pinned_version(step_context, table)
    if known is not None and known >= version:
        # Partitions of one asset may be written side by side: the newest write includes the others.
        return known
    pin = f"{_pin_owner(step_context, table)}@{version}"
    step_context.instance.add_run_tags(step_context.run_id, {_tag(table): pin})
    # Another process of the run may have written at the same moment; what holds now is what later reads will see.
    return pinned_version(step_context, table) or version


def run_tags(step_context: Any) -> Mapping[str, str]:
    """Tags that the run was launched with; empty outside of a run."""
    return {} if step_context is None else dict(step_context.dagster_run.tags)


def _run_tags(step_context: Any) -> Mapping[str, str]:
    if step_context is None:
        return {}
    run = step_context.instance.get_run_by_id(step_context.run_id)
    return {} if run is None else run.tags


def _pin_owner(step_context: Any, table: Table) -> str:
    return f"{step_context.run_id}:{table.table_id}"


def _tag(table: Table) -> str:
    return f"{VERSION_TAG_PREFIX}{table.identifier}"
