"""Outputs of one step that are committed together: those with ``commit_together`` in their metadata.

Dagster hands the outputs of a step to the IO manager one by one. The rows of each output are written at once, and no reader sees
them. The last output commits all of them, as one transaction over several tables. If the step fails before, nothing is committed
and the data files are deleted. An audit commits the outputs of its step in its own way, also a single one.
"""

import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import dagster as dg

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.deferred_writes import DeferredWrites
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
from cm_delta_dagster.orchestration.assets.output_events import WrittenOutput, withhold_materialization
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.metadata_keys import DEFAULT_READ_KEYS, WRITE_KEYS, own_entries
from cm_delta_dagster.orchestration.metadata.metadata_values import switch
from cm_delta_dagster.orchestration.metadata.write_contract import WriteContract
from cm_delta_dagster.orchestration.runs.runs import asset_metadata


class OutputDefinition(typing.Protocol):
    """What is needed of Dagster's definition of an output, whose class is not public."""

    @property
    def is_required(self) -> bool: ...

    @property
    def is_dynamic(self) -> bool: ...

    @property
    def io_manager_key(self) -> str: ...

    @property
    def dagster_type(self) -> dg.DagsterType: ...


class CommitOutputs(typing.Protocol):
    """Commits the outputs of a step when the last of them is written."""

    def __call__(
        self, client: DeltaClient, writes: DeferredWrites, outputs: Sequence[WrittenOutput]
    ) -> Mapping[str, WriteResult] | None:
        """The results by ``catalog.schema.table``; None if nothing was committed, and nothing is to be reported."""
        ...


def _commit_all(
    client: DeltaClient, writes: DeferredWrites, outputs: Sequence[WrittenOutput]
) -> Mapping[str, WriteResult]:
    return writes.commit()


class OutputGroup:
    """The outputs of one attempt of a step that are committed together.

    Args:
        names: names of the outputs.
        commit: makes the commit.
    """

    def __init__(self, client: DeltaClient, names: frozenset[str], commit: CommitOutputs = _commit_all) -> None:
        self.writes = DeferredWrites(client)
        self._client = client
        self._commit = commit
        self._missing = set(names)
        self._written: list[WrittenOutput] = []

    def refuse_outputs_without_rows(self, step: Any, *, written: str | None = None) -> None:
        """Raise if the step has returned an output of the group as a result without rows, which no IO manager is handed.

        Args:
            written: name of the output that is being handled.

        Raises:
            InvalidArgumentError: the rows of the group cannot be committed together.
        """
        without_rows = sorted(name for name in self._missing - {written} if step.has_seen_output(name))
        if without_rows:
            self.discard()
            raise InvalidArgumentError(
                f"The outputs of {step.step.key} are committed together, and {', '.join(without_rows)} was returned as a result "
                "without rows, such as a MaterializeResult that has no value. The rows of the other outputs were discarded. Give "
                "the result its rows as its value, or None if it has none this time ('-> DataFrame | None')."
            )

    def discard(self) -> None:
        """End the group without a commit, and delete its data files."""
        self._missing.clear()
        self.writes.discard()

    def add(self, name: str, output: WrittenOutput | None) -> tuple[WrittenOutput, ...]:
        """Add the output of that name, None if it has nothing to write. The last one commits all.

        Returns:
            The outputs with the results of their commits; empty if further outputs are expected, or if nothing was committed.

        Raises:
            CmDeltaError: see :meth:`DeferredWrites.commit`.
        """
        self._missing.discard(name)
        if output is not None:
            self._written.append(output)
        if self._missing:
            if output is not None:
                _report_staged(output, self.writes.transaction_id)
            return ()
        results = self._commit(self._client, self.writes, tuple(self._written))
        if results is None:
            for withheld in self._written:
                withhold_materialization(withheld.context)
            return ()
        return tuple(_committed(output, results) for output in self._written)


class OutputGroups:
    """The groups of the steps that run in this process."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Any, OutputGroup]] = {}
        self._audits: dict[tuple[str, str], CommitOutputs] = {}

    @contextmanager
    def committing(self, step: Any, commit: CommitOutputs) -> Iterator[None]:
        """Have ``commit`` make the commit of all outputs of the step that are handled within the block."""
        key = (step.run_id, step.step.key)
        self._audits[key] = commit
        try:
            yield
        finally:
            self._audits.pop(key, None)

    def group_of(
        self, client: DeltaClient, context: dg.OutputContext, contract: WriteContract, step: Any
    ) -> OutputGroup | None:
        """The group of an output; None for an output that is committed by itself, and outside of a run.

        Raises:
            InvalidArgumentError: the outputs of the step cannot be committed together.
        """
        if step is None:
            return None
        key = (context.run_id, context.step_key)
        audit = self._audits.get(key)
        if not contract.commit_together and audit is None:
            return None
        if key in self._open:
            of_step, group = self._open[key]
            if of_step.previous_attempt_count == step.previous_attempt_count:
                return group
            group.discard()
        if audit is None:
            group = OutputGroup(client, _names_in_group(step))
        else:
            group = OutputGroup(client, _names_of_assets(step), audit)
        self._open[key] = (step, group)
        return group

    @contextmanager
    def discarding_on_error(self, group: OutputGroup) -> Iterator[None]:
        """Discard the group if an exception leaves the block."""
        try:
            yield
        except BaseException:
            group.discard()
            raise

    def discard_all(self) -> None:
        """End the groups of steps that ended before their last output, and delete their data files.

        Raises:
            InvalidArgumentError: a step returned an output of its group as a result without rows.
        """
        steps = list(self._open.values())
        self._open.clear()
        with ExitStack() as discarded:
            for step, group in steps:
                discarded.callback(group.discard)
                discarded.callback(group.refuse_outputs_without_rows, step)


def _names_of_assets(step: Any) -> frozenset[str]:
    """Names of the outputs of the step that belong to assets."""
    return frozenset(output.name for output in step.step.step_outputs if output.properties.asset_key is not None)


def _names_in_group(step: Any) -> frozenset[str]:
    """Names of the outputs of the step that are committed together. Raises InvalidArgumentError."""
    members = {}
    for output in step.step.step_outputs:
        definition = step.op_def.output_def_named(output.name)
        entries = own_entries(
            asset_metadata(step, output.properties.asset_key, definition.metadata),
            known=WRITE_KEYS | DEFAULT_READ_KEYS,
            place=f"The metadata of the output {output.name}",
        )
        if switch(entries.get("commit_together"), "commit_together"):
            members[output.name] = definition
    check_group(step.step.key, members)
    return frozenset(members)


def check_group(name: str, outputs: Mapping[str, OutputDefinition]) -> None:
    """Refuse outputs that cannot be committed together.

    Args:
        name: of the step; ``outputs``: those with ``commit_together``, by name.

    Raises:
        InvalidArgumentError: an output is alone, optional or dynamic, or has no rows, or the outputs have several IO managers.
    """
    managers = {definition.io_manager_key for definition in outputs.values()}
    without_rows = [output_name for output_name, definition in outputs.items() if definition.dagster_type.is_nothing]
    optional = [
        output_name
        for output_name, definition in outputs.items()
        if definition.is_dynamic or not definition.is_required
    ]
    if optional:
        raise _refused(
            f"the output {optional[0]} of {name} is optional or dynamic, so the IO manager cannot know which output is the last. "
            "Make it required, and return None from an output that sometimes has nothing to write ('-> DataFrame | None')."
        )
    if without_rows:
        raise _refused(
            f"the output {without_rows[0]} of {name} is annotated to return no rows, so that the IO manager is not called for it. "
            "Remove the key from its metadata, or return its rows."
        )
    if len(managers) > 1:
        raise _refused(
            f"the outputs of {name} have the IO managers {', '.join(sorted(managers))}. Give them the same one."
        )
    if len(outputs) < 2:
        raise _refused(
            f"{name} has only one output with that key. The outputs must belong to one function: use a @dg.multi_asset and set "
            "'commit_together' in the metadata of each of its outputs. The ops of a graph are steps of their own, and cannot be "
            "committed together."
        )


def _refused(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The metadata sets 'commit_together', but {why} Nothing was written.")


def _report_staged(output: WrittenOutput, transaction_id: str) -> None:
    output.context.log.info(
        "The rows of %s are written. They are committed together with the last output of the step.",
        output.written.table.identifier,
    )
    output.context.add_output_metadata(
        {facts.OUTCOME: output.written.result.outcome.value, facts.TRANSACTION_ID: transaction_id}
    )
    withhold_materialization(output.context)


def _committed(output: WrittenOutput, results: Mapping[str, Any]) -> WrittenOutput:
    written = output.written
    if written.result.outcome is not WriteOutcome.STAGED:
        return output
    return replace(output, written=replace(written, result=results[str(written.table.identifier)]))
