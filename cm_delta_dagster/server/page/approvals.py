"""Commits that wait for an approval, which owners approve and reject, and those that wait for their ratification.

The rules of the catalog decide who may: a button of a caller that may not ends with the refusal.
"""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from cm_delta_dagster.catalog.holds import Hold, WaitsFor
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold
from cm_delta_dagster.server.page.callers import PostedForm, SignedIn
from cm_delta_dagster.server.table_access import TableAccess

router = APIRouter(include_in_schema=False)

APPROVALS = "/page/approvals"
HOLDS_SHOWN = 50
"""Holds of a page."""


def _tables(request: Request) -> TableAccess:
    access: TableAccess = request.app.state.tables
    return access


@router.get(APPROVALS)
def approvals(caller: SignedIn, scope: str = "", after: str = "", decided: str = "") -> HTMLResponse:
    """The pending holds that the caller may see, the oldest first, and the one that was decided just now."""
    scope = caller.scope(scope)
    pending = sorted(caller.catalog.holds.holds(scope), key=_key)
    later = [hold for hold in pending if not after or _key(hold) > after]
    shown = later[:HOLDS_SHOWN]
    return caller.show(
        "approvals.html",
        scope=scope,
        after=after,
        approvals=[hold for hold in shown if hold.waits_for is WaitsFor.APPROVAL],
        ratifications=[hold for hold in shown if hold.waits_for is WaitsFor.RATIFICATION],
        decided=caller.catalog.holds.held_proposals(decided)[0].hold if decided else None,
        next=None if len(later) == len(shown) else _key(shown[-1]),
    )


def _key(hold: Hold) -> str:
    """Sorts holds by age. Keys stay as they are while other holds are decided."""
    return f"{hold.requested_ms:020d}.{hold.hold_id}"


@router.post(f"{APPROVALS}/{{hold_id}}/approve")
def approve(
    caller: SignedIn, form: PostedForm, hold_id: str, tables: Annotated[TableAccess, Depends(_tables)]
) -> RedirectResponse:
    """Commit what waits. The server reads and writes the files of its tables for that."""
    table_ids = [proposal.table_id for proposal in caller.catalog.holds.held_proposals(hold_id)]
    caller.catalog.check_token("coordinator", "commit_together", {"proposals": dict.fromkeys(table_ids)})
    for table_id in table_ids:
        tables.storage.store_for(caller.catalog.registry.load_table_by_id(table_id).location)
    approve_hold(tables.client_of(caller.catalog), hold_id)
    return _decided(hold_id)


@router.post(f"{APPROVALS}/{{hold_id}}/reject")
def reject(caller: SignedIn, form: PostedForm, hold_id: str) -> RedirectResponse:
    """Close the hold; its commit is never made."""
    caller.catalog.holds.reject_hold(hold_id, reason=form.get("reason", ""))
    return _decided(hold_id)


def _decided(hold_id: str) -> RedirectResponse:
    return RedirectResponse(f"{APPROVALS}?{urlencode({'decided': hold_id})}", 303)
