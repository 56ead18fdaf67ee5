"""Writes that a rule of the catalog stops: the step fails once, says whom to ask, and is not retried."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from cm_delta_dagster.advice import EntryPoint, calls
from cm_delta_dagster.catalog.holds import HoldState, WaitsFor
from cm_delta_dagster.client.commits.held_commit import approval_required
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import ApprovalRequiredError, CommitRefusedError
from cm_delta_dagster.orchestration.runs.runs import WriteOrigin, earlier_numbers
from cm_delta_dagster.remedies import DecideApproval

APPROVAL_ID = "cm_delta/approval_id"
APPROVE_COMMAND = "cm_delta/approve_command"


@contextmanager
def without_retries() -> Iterator[None]:
    """Turn a commit that was refused, or that waits for an approval, into a failure of the step that Dagster does not retry.

    A retry would compute the same rows again, for the same answer.
    """
    try:
        yield
    except ApprovalRequiredError as error:
        entries: dict[str, Any] = {"cm_delta/ask": ", ".join(error.ask)}
        if error.approval_id is not None:
            entries |= {APPROVAL_ID: error.approval_id, APPROVE_COMMAND: approve_command(error.approval_id)}
        raise dg.Failure(description=str(error), metadata=entries, allow_retries=False) from error
    except CommitRefusedError as error:
        entries = {}
        if error.refusal is not None:
            entries = {"cm_delta/rule": error.refusal.rule, "cm_delta/rule_scope": error.refusal.scope}
        raise dg.Failure(description=str(error), metadata=entries, allow_retries=False) from error


def approve_command(approval_id: str) -> str:
    """The command that approves a request."""
    return calls(DecideApproval(approval_id=approval_id), EntryPoint.SHELL)[0]


def refuse_waiting(table: WriteTarget, origin: WriteOrigin) -> None:
    """Stop a step that is executed again while the commit of its earlier attempt waits for an approval.

    Raises:
        ApprovalRequiredError: with the id of the request that waits.
    """
    if not isinstance(table, Table):
        return
    for number in earlier_numbers(origin):
        hold = table.services.holds.find_hold(table.table_id, app_id=origin.app_id, app_version=number)
        if hold is not None and hold.state is HoldState.PENDING and hold.waits_for is WaitsFor.APPROVAL:
            raise approval_required(hold, is_repeated=True)
