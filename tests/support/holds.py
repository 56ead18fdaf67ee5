"""Requests that a catalog hold proposals."""

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, HeldWrite, Hold, HoldRequest, WaitsFor
from cm_delta_dagster.catalog.ratification import CommitProposal


def request_of(
    *table_ids: str,
    waits_for: WaitsFor = WaitsFor.APPROVAL,
    app_id: str | None = None,
    app_version: int | None = None,
    duration_ms: int = HOLD_DURATION_MS,
) -> HoldRequest:
    """A request whose writes have an empty intent."""
    write = HeldWrite(intent="{}", app_id=app_id, app_version=app_version)
    return HoldRequest(writes=dict.fromkeys(table_ids, write), waits_for=waits_for, duration_ms=duration_ms)


def hold_one(
    catalog: Catalog,
    table_id: str,
    proposal: CommitProposal,
    *,
    waits_for: WaitsFor = WaitsFor.APPROVAL,
    app_id: str | None = None,
    app_version: int | None = None,
    duration_ms: int = HOLD_DURATION_MS,
) -> Hold | None:
    """Ask the catalog to hold the proposal of one table."""
    request = request_of(table_id, waits_for=waits_for, app_id=app_id, app_version=app_version, duration_ms=duration_ms)
    return catalog.coordinator.hold({table_id: proposal}, request)
