"""Check exactly what a held commit would make of its tables, and then ratify or discard it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.table_with_hold import TableWithHold
from cm_delta_dagster.errors import CommitConflictError, CommitRefusedError, HoldOutdatedError
from cm_delta_dagster.operations.tables.ratify_hold import RatifiedHold, held_tables, ratify_hold

MAX_AUDITS = 3
"""How often a hold is checked before it is discarded because other writers change rows of its tables in between."""

_MAX_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check says of the held state.

    Attributes:
        reason: why the rows must not become visible; None if they may.
        tags: recorded in the history with those of the write.
    """

    reason: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def audit_hold(
    client: DeltaClient,
    hold_id: str,
    *,
    check: Callable[[Mapping[str, TableWithHold]], Verdict],
    rechecks: bool = True,
) -> RatifiedHold | None:
    """Ratify a hold that passes ``check``, and discard one that does not, which gives None.

    If another commit changes rows of a table between the check and the ratification, the check runs again on the rebased state.

    Args:
        check: gets the tables with the held state, by ``catalog.schema.table``. If it raises an exception, the hold is discarded.
        rechecks: False if rows of other writers cannot change the verdict: then only a conflict prevents the ratification.

    Raises:
        HoldOutdatedError: another commit changed rows after each of ``MAX_AUDITS`` checks; the hold is discarded.
        CommitConflictError: another commit changed what the held one depends on; the hold is closed.
        CommitRefusedError: a rule refuses a commit; the hold is discarded.
        ApprovalRequiredError: a rule demands an approval, which the hold waits for from now on, with the verdict.
        HoldClosedError: the hold has expired, or was closed by someone else.
        TableStorageMissingError: a file of it, or the version that it read, cannot be read; the hold stays.
        CommitStateUnknownError: the catalog did not answer; a repetition of the write finds the hold or its versions.
    """
    outdated: HoldOutdatedError | None = None
    for _ in range(MAX_AUDITS):
        states = _held_states(client, hold_id)
        try:
            verdict = check(states)
        except BaseException as error:
            _discard(client, hold_id, f"The check failed: {type(error).__name__}: {error}")
            raise
        if verdict.reason is not None:
            _discard(client, hold_id, verdict.reason)
            return None
        audited = {state.table_id: state.latest.version for state in states.values()} if rechecks else {}
        try:
            return ratify_hold(client, hold_id, tags=verdict.tags, audited=audited, has_passed=True)
        except HoldOutdatedError as error:
            outdated = error
        except CommitRefusedError as error:
            _discard(client, hold_id, str(error))
            raise
    assert outdated is not None
    _discard(client, hold_id, str(outdated))
    raise HoldOutdatedError(
        f"The held commit was checked {MAX_AUDITS} times, and each time another commit changed rows before it could be ratified. "
        f"The last time: {outdated} It was discarded: readers never saw its rows. Let the other writers commit less often while it "
        "is checked, and write nothing to its tables in a check."
    ) from outdated


def _held_states(client: DeltaClient, hold_id: str) -> Mapping[str, TableWithHold]:
    """See :func:`held_tables`; a conflict closes the hold."""
    try:
        return held_tables(client, hold_id)
    except CommitConflictError as error:
        client.holds.close_hold(hold_id, reason=str(error)[:_MAX_REASON])
        raise


def _discard(client: DeltaClient, hold_id: str, reason: str) -> None:
    client.holds.discard_hold(hold_id, reason=reason[:_MAX_REASON])
