"""The pages of commits, rules, refusals and tokens."""

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.errors import CommitRefusedError, OperationRefusedError
from cm_delta_dagster.server.page import lists
from tests.server.page.conftest import ORDERS, ROWS
from tests.support.browser import Browser, text_of
from tests.support.live_server import LiveServer

HOSTILE = "<img src=x>"


def test_rules_of_every_kind_are_shown_with_their_scopes(
    owner: Connection, open_browser: Callable[..., Browser]
) -> None:
    owner.rules.set_commit_rule("main.sales", "protected_properties", properties=["a", "b"], reason=HOSTILE)
    owner.maintenance.set_policy("main", "DATA_CLEANUP", min_retention=None, max_files=7, reason=HOSTILE)
    owner.maintenance.set_policy("main.staff", "DATA_CLEANUP", allowed=False, reason="kept", future=True)
    owner.settings.set_commit_mode("main.sales", "inline")
    page = open_browser("owner")
    shown = page.text("/page/rules")
    assert f"main.sales protected_properties refuse properties a, b {HOSTILE} owner" in shown
    assert f"main DATA_CLEANUP allowed at most 7 files {HOSTILE}" in shown and "main.staff DATA_CLEANUP denied" in shown
    assert "Commits are made main.sales inline" in shown
    assert "<img" not in page.get("/page/rules").text
    assert "main.staff" not in page.text(f"/page/rules?scope={ORDERS}") and "7 files" in page.text(
        "/page/rules?scope=main"
    )


def test_refusals_are_shown_to_owners_the_newest_first(
    owner: Connection,
    as_principal: Callable[[str], Connection],
    open_browser: Callable[..., Browser],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner.access.grant("append", ORDERS, to="etl")
    etl = as_principal("etl")
    with pytest.raises(OperationRefusedError):
        etl.access.grant("own", "*", to="etl")
    with pytest.raises((CommitRefusedError, OperationRefusedError)):
        etl.create_table_as("main.staff.mine", pa.table({"id": [1]}))
    page = open_browser("owner")
    shown = page.text("/page/refusals")
    assert 0 < shown.index("create table on main.staff") < shown.index("grant on *") and "grant on main" not in shown
    monkeypatch.setattr(lists, "SHOWN", 1)
    assert "grant on *" not in page.text("/page/refusals")
    following = text_of(page.following("/page/refusals"))
    assert "grant on *" in following and "create table" not in following
    assert "grant on *" not in page.text("/page/refusals?scope=main.staff")


def test_tokens_are_shown_with_their_limits_and_uses_and_without_secrets(
    server: LiveServer,
    owner: Connection,
    open_browser: Callable[..., Browser],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with server.catalog(owner="owner") as catalog:
        limited = catalog.tokens.create_token("dashboards", read_only=True, scope="main.sales")
        catalog.tokens.revoke_token(catalog.tokens.create_token("old").token.token_id)
    page = open_browser("owner")
    shown = page.text("/page/tokens")
    assert f"{limited.token.token_id} dashboards valid read-only main.sales never" in shown
    assert "old revoked" in shown and limited.secret not in page.get("/page/tokens").text
    monkeypatch.setattr(lists, "SHOWN", 1)
    with server.catalog(owner="owner") as catalog:
        ids = [token.token_id for token in catalog.tokens.tokens()]
    pages = [page.get("/page/tokens"), *(page.get(f"/page/tokens?after={token_id}") for token_id in ids[:-1])]
    assert [re.findall("<code>(.*?)</code>", answer.text) for answer in pages] == [[token_id] for token_id in ids]
    assert ['rel="next"' in answer.text for answer in pages] == [True] * (len(ids) - 1) + [False]


def test_the_feed_begins_with_the_newest_commit(
    owner: Connection, open_browser: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.table(ORDERS).append(ROWS)
    page = open_browser("owner")
    shown = page.text("/page/feed")
    assert shown.index("WRITE") < shown.index("CREATE TABLE AS SELECT")
    monkeypatch.setattr(lists, "SHOWN", 1)
    following = page.following("/page/feed?scope=main")
    assert "CREATE TABLE" not in page.text("/page/feed?scope=main") and "CREATE TABLE" in following.text
    assert "scope=main" in str(following.url) and 'rel="next"' not in following.text
