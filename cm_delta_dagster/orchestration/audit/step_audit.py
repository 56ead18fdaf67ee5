"""What happens in the step of an audited asset: its outputs are held, the checks read them, and the hold is ratified or discarded.

The IO manager calls :meth:`StepAudit.commit` when it has written the last output of the step. The results of the checks become
events when the materializations are stored, so that each names the version that it became.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.holds import Hold, HoldState
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.table_with_hold import TableWithHold
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.operations.tables.audit_hold import Verdict, audit_hold
from cm_delta_dagster.operations.writing.committed_write import committed_write
from cm_delta_dagster.operations.writing.deferred_writes import DeferredWrites
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
from cm_delta_dagster.orchestration.assets.inputs import ReadableState
from cm_delta_dagster.orchestration.assets.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.assets.output_events import WrittenOutput
from cm_delta_dagster.orchestration.audit.audit_check import AuditCheck, HeldInput, States
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.audit_mode import AuditMode
from cm_delta_dagster.orchestration.runs.refusals import without_retries
from cm_delta_dagster.orchestration.runs.runs import APP_PREFIX, asset_metadata, numbers_of_run
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

HOLD_ID = "cm_delta/hold_id"
AUDITED_BY_TAG = "cm_delta/audited_by"
CHECKS_TAG = "cm_delta/audit_checks"
FAILED_TAG = "cm_delta/audit_failed_checks"
"""Tags of the commit: who audited it, with which checks, and which of those that do not block failed."""
DISCARDED = "discarded"
"""Outcome of an output whose audit failed."""
HELD = "held"
"""Outcome of an output that waits, for example for an approval."""


@dataclass(slots=True, kw_only=True)
class StepAudit:
    """The audit of one attempt of a step.

    Attributes:
        context: of the step; ``manager``: the IO manager of its outputs.
        hold_ms: milliseconds until the hold expires.
        failure: why the step fails once its events are stored.
    """

    checks: Sequence[AuditCheck]
    context: dg.AssetExecutionContext | dg.OpExecutionContext
    manager: CatalogManagedDeltaIOManager
    hold_ms: int
    failure: Exception | None = None
    _has_committed: bool = False
    _hold: Hold | None = None
    _outcome: str | None = None
    _results: list[dg.AssetCheckResult] = field(default_factory=list)
    _versions: Mapping[dg.AssetKey, int] = field(default_factory=dict)

    def commit(
        self, client: DeltaClient, writes: DeferredWrites, outputs: Sequence[WrittenOutput]
    ) -> Mapping[str, WriteResult] | None:
        """Hold the outputs, check them, and ratify them. None if they are not committed; ``failure`` says why.

        Raises:
            InvalidArgumentError: another output of the run writes to one of the tables.
            CmDeltaError: nothing is held, see :meth:`DeferredWrites.hold`.
        """
        self._has_committed = True
        for output in outputs:
            _refuse_other_writer(output)
        self._hold = hold = writes.hold(duration_ms=self.hold_ms, needs_audit=True)
        if hold is None:
            self._check_committed(client, outputs)
            return {}
        self._say_held(hold)
        try:
            with without_retries():
                results = self._audit(client, hold, outputs)
        except Exception as error:
            self.failure = error
            results = None
        if results is None:
            self._outcome = _outcome(client, hold)
            for output in outputs:
                output.context.add_output_metadata(self._entries)
        return results

    def events(self) -> Iterator[dg.AssetCheckResult | dg.AssetCheckEvaluation]:
        """The results of the checks, for Dagster. Raises ``failure`` after them, and if not all outputs were written."""
        if not self._has_committed:
            raise dg.Failure(
                description="The audit had no rows to check: an output of the step was returned as a result without rows, such as "
                "dg.MaterializeResult. Rows that the function wrote itself were not checked, and rows of its other outputs were "
                "discarded. Return the rows of all outputs.",
                allow_retries=False,
            )
        for result in self._results:
            assert result.asset_key is not None, "AuditCheck.run adds it"
            version = self._versions.get(result.asset_key)
            if version is None:
                # The result is not one of the rows that were materialized last.
                described = result.with_metadata({**result.metadata, **self._entries})
                if self._outcome == DISCARDED:
                    text = f"{_ended(result.description)}The rows were discarded, and readers never saw them."
                    described = described._replace(description=text)
                evaluation = _without_target(described.to_asset_check_evaluation(self._step))
                self._log_for_partitions(evaluation)
                yield evaluation
            else:
                described = result.with_metadata({**result.metadata, **self._entries, facts.COMMIT_VERSION: version})
                self._log_for_partitions(described.to_asset_check_evaluation(self._step))
                yield described
        if self.failure is not None:
            raise self.failure

    @property
    def _step(self) -> Any:
        return self.context.get_step_execution_context()

    def _log_for_partitions(self, evaluation: dg.AssetCheckEvaluation) -> None:
        """Store the result for each partition of a range, which Dagster shows as skipped otherwise."""
        specs = (spec for check in self.checks for spec in check.specs if spec.partitions_def is not None)
        if self._step.has_partition_key or evaluation.asset_check_key not in {spec.key for spec in specs}:
            return
        context: Any = self.context  # The type hint of log_event lacks the results of checks, which it stores.
        for key in context.partition_keys if context.has_partition_key_range else ():
            context.log_event(_of_partition(evaluation, key))

    @property
    def _entries(self) -> dict[str, Any]:
        """Metadata of results, and of an output that is not committed."""
        if self._hold is None:
            return {}
        outcome = {} if self._outcome is None else {facts.OUTCOME: self._outcome}
        return {HOLD_ID: self._hold.hold_id, **outcome}

    def _audit(
        self, client: DeltaClient, hold: Hold, outputs: Sequence[WrittenOutput]
    ) -> Mapping[str, WriteResult] | None:
        rechecks = any(output.write.contract.audit is not AuditMode.DISJOINT_OK for output in outputs)
        ratified = audit_hold(
            client,
            hold.hold_id,
            check=lambda tables: self._verdict(client, _states(outputs, tables)),
            rechecks=rechecks,
        )
        if ratified is None:
            self.failure = self._failed(hold, outputs)
            return None
        by_id = {
            table.table_id: committed_write(
                client.open(client.registry.load_table_by_id(table.table_id)), table.version, retries=ratified.retries
            )
            for table in ratified.hold.tables
            if table.version is not None
        }
        results = {}
        for output in outputs:
            table, asset_key = output.written.table, output.write.origin.asset_key
            result = by_id.get(table.table_id, output.written.result)
            results[str(table.identifier)] = (
                result  # The name by which the step wrote, also if the table was renamed since.
            )
            if asset_key is not None:
                self._versions = {**self._versions, asset_key: result.version}
                step = self._step
                step.add_asset_metadata({HOLD_ID: hold.hold_id}, asset_key=asset_key)
        return results

    def _check_committed(self, client: DeltaClient, outputs: Sequence[WrittenOutput]) -> None:
        """Check outputs that changed no row, or that an earlier attempt committed."""
        if not outputs:
            self.context.log.info("Nothing was written, so there is nothing to check.")
            return
        verdict = self._verdict(client, _states(outputs, {}))
        self._versions = {
            output.write.origin.asset_key: output.written.result.version
            for output in outputs
            if output.write.origin.asset_key is not None
        }
        if verdict.reason is not None:
            names = ", ".join(
                f"{output.written.table.identifier} ({output.written.result.outcome.value}, version "
                f"{output.written.result.version})"
                for output in outputs
            )
            self.failure = dg.Failure(
                description=f"The audit failed: {verdict.reason} This attempt wrote no rows, so what the checks read is what "
                f"readers see already: {names}.",
                allow_retries=False,
            )

    def _verdict(self, client: DeltaClient, states: "_StepStates") -> Verdict:
        """Run the checks of the outputs that have rows. The results of an earlier time are replaced."""
        self._results = []
        context = dg.AssetCheckExecutionContext(self.context.op_execution_context)
        for check in self.checks:
            if not check.asset_keys & states.outputs.keys():
                self.context.log.info("%s is not run, because its output is None.", check.definition.op.name)
                continue

            def load(entry: HeldInput, check: AuditCheck = check) -> Any:
                if entry.asset_key in states.tables:
                    return states.load(self.manager, entry, of_partitions=check.reads_partitions)
                return self._load_committed(client, entry)

            self._results += check.run(context, states.of_checks(), load=load)
        failed = [result for result in self._results if not result.passed]
        blocking = [result for result in failed if self._blocks(result)]
        for result in failed:
            if result not in blocking:
                self.context.log.warning("%s failed, and does not block: %s", result.check_name, result.description)
        if blocking:
            return Verdict(reason=" ".join(map(_sentence, blocking)))
        tags = {
            AUDITED_BY_TAG: f"Dagster run {self.context.run.run_id}",
            CHECKS_TAG: ", ".join(str(result.check_name) for result in self._results),
        }
        if failed:
            tags[FAILED_TAG] = ", ".join(str(result.check_name) for result in failed)
        return Verdict(tags=tags)

    def _load_committed(self, client: DeltaClient, entry: HeldInput) -> Any:
        """What an input of a check gets of an asset whose output is None. Raises TableNotFoundError if it has no table yet."""
        metadata = self._step.job_def.asset_layer.get(entry.asset_key).metadata
        table = client.table(self.manager.table_of(metadata, entry.asset_key))
        return _load(self.manager, entry, table, step=self._step, where=None)

    def _blocks(self, result: dg.AssetCheckResult) -> bool:
        specs = (spec for check in self.checks for spec in check.specs)
        spec = next(spec for spec in specs if (spec.asset_key, spec.name) == (result.asset_key, result.check_name))
        return spec.blocking and result.severity is dg.AssetCheckSeverity.ERROR

    def _failed(self, hold: Hold, outputs: Sequence[WrittenOutput]) -> dg.Failure:
        failed = [result for result in self._results if not result.passed and self._blocks(result)]
        assets = ", ".join(output.write.origin.name for output in outputs)
        stays = " and ".join(
            f"{output.written.table.identifier} has its rows of version {output.written.table.snapshot().version}"
            for output in outputs
        )
        why = " ".join(map(_sentence, failed))
        return dg.Failure(
            description=f"The audit of {assets} failed. {why} The rows were discarded, and readers never saw them: {stays}. "
            "Correct the rows or the check, and materialize again.",
            metadata={
                HOLD_ID: hold.hold_id,
                "cm_delta/failed_checks": ", ".join(str(result.check_name) for result in failed),
            },
            allow_retries=False,
        )

    def _say_held(self, hold: Hold) -> None:
        self.context.log.info(
            "%s is held as %s until %s. Readers do not see it before its checks have passed.",
            hold.summary,
            hold.hold_id,
            utc_text(hold.expires_ms),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepStates:
    """The states of the tables of a step, with the outputs that were written to them."""

    tables: Mapping[dg.AssetKey, ReadableTable]
    outputs: Mapping[dg.AssetKey, WrittenOutput]

    def of_checks(self) -> States:
        keys = {key: output.write.keys for key, output in self.outputs.items()}
        return States(tables=self.tables, written=keys)

    def load(self, manager: CatalogManagedDeltaIOManager, entry: HeldInput, *, of_partitions: bool) -> Any:
        """What an input of a check gets: the whole table, or the partitions that the step writes."""
        table, output = self.tables[entry.asset_key], self.outputs[entry.asset_key]
        part = output.written.part
        where = part.where if of_partitions and part is not None else None
        return _load(manager, entry, table, step=output.write.origin.step_context, where=where)


def _load(
    manager: CatalogManagedDeltaIOManager,
    entry: HeldInput,
    table: ReadableTable,
    *,
    step: Any,
    where: Predicate | None,
) -> Any:
    """The rows of a table in the type of the input of a check."""
    return manager.load_state(
        ReadableState(table=table, snapshot=table.snapshot()),
        entry.kind,
        asset_key=entry.asset_key,
        metadata=asset_metadata(step, entry.asset_key, {}),
        where=where,
    )


def _states(outputs: Sequence[WrittenOutput], tables: Mapping[str, TableWithHold]) -> _StepStates:
    """The states that checks read: of ``tables`` the held ones, of other outputs what is committed.

    Raises:
        InvalidArgumentError: the rows of an output are held, and ``tables`` lacks their state.
    """
    states = {table.table_id: table for table in tables.values()}
    for output in outputs:
        if output.written.result.outcome is WriteOutcome.STAGED and output.written.table.table_id not in states:
            raise InvalidArgumentError(f"The held rows of {output.written.table.identifier} cannot be read.")
    by_key = {output.write.origin.asset_key: output for output in outputs if output.write.origin.asset_key is not None}
    return _StepStates(
        outputs=by_key,
        tables={key: states.get(output.written.table.table_id, output.written.table) for key, output in by_key.items()},
    )


def _refuse_other_writer(output: WrittenOutput) -> None:
    """Refuse the audit of a table to which another output of the run has written: its rows were visible unchecked."""
    origin, result = output.write.origin, output.written.result
    numbers = numbers_of_run(origin)
    if result.outcome is not WriteOutcome.STAGED:
        return
    for app_id, entry in result.snapshot.transactions.items():
        if app_id.startswith(APP_PREFIX) and entry.version in numbers and not _is_same_asset(app_id, origin.name):
            raise InvalidArgumentError(
                f"{origin.name} is audited, and {app_id.removeprefix(APP_PREFIX)} has written to its table "
                f"{output.written.table.identifier} in the same run, so that readers see rows that were not checked. The rows of "
                f"{origin.name} were discarded. Give each asset a table of its own, or audit both in one @dg.multi_asset."
            )


def _is_same_asset(app_id: str, name: str) -> bool:
    written = app_id.removeprefix(APP_PREFIX)
    return written == name or written.startswith(f"{name}:")


def _sentence(result: dg.AssetCheckResult) -> str:
    """The result of a failed check."""
    text = _ended(result.description).rstrip()
    return f"{result.check_name}: {text}" if text else f"{result.check_name}."


def _ended(text: str | None) -> str:
    """The text as sentences before others; empty if there is none."""
    stripped = (text or "").strip()
    return f"{stripped}{'' if stripped.endswith('.') else '.'} " if stripped else ""


def _outcome(client: DeltaClient, hold: Hold) -> str | None:
    """What became of the hold of a step that fails; None if the catalog does not answer."""
    with suppress(CmDeltaError):
        state = client.holds.held_proposals(hold.hold_id)[0].hold.state
        outcomes = {HoldState.PENDING: HELD, HoldState.COMMITTED: WriteOutcome.COMMITTED.value}
        return outcomes.get(state, DISCARDED)
    return None


def _without_target(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckEvaluation:
    """The same result, without the materialization that Dagster takes for the one that was checked."""
    return _of_partition(evaluation, evaluation.partition, with_target=False)


def _of_partition(
    evaluation: dg.AssetCheckEvaluation, partition: str | None, *, with_target: bool = True
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        metadata=evaluation.metadata,
        severity=evaluation.severity,
        description=evaluation.description,
        blocking=evaluation.blocking,
        partition=partition,
        target_materialization_data=evaluation.target_materialization_data if with_target else None,
    )
