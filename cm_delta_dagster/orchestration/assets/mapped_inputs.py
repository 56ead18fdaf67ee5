"""Inputs from outputs that are mapped: those of a ``DynamicOut``, and those of the steps that are executed for each of them.

Such outputs share the name of a table. A step reads the rows that the output with its own mapping key has written, which are those
of one commit; ``dg.collect`` gets the rows of each output.
"""

from typing import Any

import dagster as dg

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.assets.run_writes import RunWrites
from cm_delta_dagster.orchestration.runs.runs import WriteOrigin, numbers_of_run, op_output_name, run_number
from cm_delta_dagster.protocol.log.action_reconciliation import FileState
from cm_delta_dagster.protocol.predicates.predicates import Predicate

_MERGE = "MERGE"
"""``operation`` of the commit of a merge."""


def is_mapped(context: dg.InputContext) -> bool:
    """Whether the input is an output of an op that exists once for each mapping key."""
    upstream = context.upstream_output
    if upstream is None or upstream.has_asset_key:
        return False
    return upstream.mapping_key is not None or upstream.step_key.endswith("]")


def mapped_rows(
    context: dg.InputContext, table: Table, snapshot: Snapshot, *, step: Any, run_writes: RunWrites
) -> tuple[Snapshot, Predicate | None]:
    """``snapshot`` with the files of the upstream output alone, and the condition of its rows if the files hold others too.

    Raises:
        InvalidArgumentError: the output was merged, so that its rows are not known.
    """
    upstream = context.upstream_output
    assert upstream is not None
    name = op_output_name(step.job_name, upstream.step_key, upstream.name, upstream.mapping_key)
    origin = WriteOrigin(name=name, step_key=upstream.step_key, step_context=step)
    # Of the runs that this run continues, the one that executed the step; an earlier one if only that made the commit.
    numbers = (run_number(upstream.run_id), *sorted(numbers_of_run(origin)))
    commits = run_writes.find(table, frozenset((origin.app_id, number) for number in numbers[:1]))
    if not commits and len(numbers) > 2:
        commits = run_writes.find(table, frozenset((origin.app_id, number) for number in numbers[1:]))
    if not commits:
        # The output was empty or None, so that nothing was committed.
        files = FileState.of(snapshot.files.slice(0, 0), snapshot.tombstones.slice(0, 0), location=snapshot.location)
        return snapshot.with_files(files), None
    commit = max(commits.values(), key=lambda candidate: candidate.version)
    if commit.operation == _MERGE:
        raise InvalidArgumentError(
            f"The input {context.name} is the output {name}, which was merged into {table.identifier}: the log does not say which "
            "rows of a merge came from it. Write the output with the mode 'append' or 'replace_where', or return "
            "the rows through another IO manager."
        )
    return commit.rows_of(snapshot), commit.condition(snapshot) if commit.is_overwrite else None
