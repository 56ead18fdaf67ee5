"""Approvals on the page: what waits is shown, approved and rejected, by who may."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.errors import ApprovalRequiredError
from tests.server.page.conftest import ORDERS, ROWS
from tests.support.browser import Browser, text_of
from tests.support.live_server import LiveServer

APPROVALS = "/page/approvals"


@pytest.fixture
def waiting(owner: Connection, as_principal: Callable[[str], Connection]) -> list[str]:
    """The ids of two appends of ``etl`` that wait for an approval."""
    owner.rules.set_commit_rule("main", "required_user_metadata", on_violation="approval", reason="<i>Say why</i>")
    owner.access.grant("append", "main.sales", to="etl")
    table = as_principal("etl").table(ORDERS)
    for _ in range(2):
        with pytest.raises(ApprovalRequiredError):
            table.append(ROWS)
    return [hold.hold_id for hold in owner.rules.list_approvals()]


def test_an_owner_approves_and_rejects(
    owner: Connection, waiting: list[str], open_browser: Callable[..., Browser]
) -> None:
    page = open_browser("owner")
    shown = page.text(APPROVALS)
    assert all(f"id {hold_id}" in shown for hold_id in waiting)
    assert "WRITE on main . sales . orders" in shown and "requested by etl" in shown and "<i>Say why</i>" in shown
    assert "<i>" not in page.get(APPROVALS).text
    first, second = waiting

    approved = page.send(APPROVALS, f"{APPROVALS}/{first}/approve")
    assert (approved.status_code, approved.headers["location"]) == (303, f"{APPROVALS}?decided={first}")
    assert f"{first}, WRITE on {ORDERS}: committed as version 1 of {ORDERS}" in page.text(approved.headers["location"])
    assert owner.table(ORDERS).scan().to_arrow().num_rows == 6
    assert "owner WRITE" in page.text(f"/page/tables/{ORDERS}")

    without_reason = page.send(APPROVALS, f"{APPROVALS}/{second}/reject", reason=" ")
    assert without_reason.status_code == 400 and "give a reason" in without_reason.text
    rejected = page.send(APPROVALS, f"{APPROVALS}/{second}/reject", reason="<b>no</b>")
    assert rejected.status_code == 303
    shown = page.text(rejected.headers["location"])
    assert f"{second}, WRITE on {ORDERS}: rejected (<b>no</b>)" in shown and "No commit waits for an approval" in shown
    assert owner.rules.hold(second).state is HoldState.REJECTED
    assert owner.table(ORDERS).scan().to_arrow().num_rows == 6


def test_others_approve_nothing(owner: Connection, waiting: list[str], open_browser: Callable[..., Browser]) -> None:
    """Who made a request sees it and may not decide; a stranger does not see it; a read-only token has no buttons."""
    first, reader = waiting[0], open_browser("owner", read_only=True)
    maker, stranger = open_browser("etl"), open_browser("stranger")
    assert "The token is read-only" in reader.text(APPROVALS) and "/approve" not in reader.get(APPROVALS).text
    assert "/approve" in maker.get(APPROVALS).text
    assert first not in stranger.get(APPROVALS).text
    for page, status in ((reader, 403), (maker, 403), (stranger, 400)):
        for act in ("approve", "reject"):
            page.client.headers["Origin"] = page.origin
            token = {"form_token": page.form_token(), "reason": "x"}
            refused = page.client.post(f"{APPROVALS}/{first}/{act}", data=token)
            assert refused.status_code == status, (act, text_of(refused))
    assert [hold.hold_id for hold in owner.rules.list_approvals()] == waiting
    assert owner.table(ORDERS).version() == 0


def test_an_approval_reads_no_files_outside_of_the_storage_roots(
    server: LiveServer, open_browser: Callable[..., Browser], tmp_path: Path
) -> None:
    """A client of the database has put a table there."""
    settings = server.settings
    with connect(settings.catalog, warehouse=settings.warehouse, principal="owner") as lake:
        outside = lake.create_table("main.sales.outside", ROWS.schema, location=f"file://{tmp_path}/outside")
        lake.rules.set_commit_rule("main", "required_user_metadata", on_violation="approval")
        with pytest.raises(ApprovalRequiredError):
            outside.append(ROWS)
        (hold,) = lake.rules.list_approvals()
        page = open_browser("owner")
        refused = page.send(APPROVALS, f"{APPROVALS}/{hold.hold_id}/approve")
        assert refused.status_code == 403 and "outside" in text_of(refused)
        assert lake.rules.list_approvals() == (hold,) and outside.version() == 0
