"""What the page shows of tables and their commits, to whom, with how many statements, and that texts are not markup."""

from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest
import sqlalchemy as sa

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import WaitsFor
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.server.app import create_app
from cm_delta_dagster.server.page import tables
from cm_delta_dagster.server.settings import ServerSettings
from tests.contracts.catalog_bench import Clock, create
from tests.server.page.conftest import ORDERS, ROWS
from tests.support.browser import Browser, browser_of_application
from tests.support.commit_builder import ADD, commit_of
from tests.support.holds import hold_one
from tests.support.live_server import LiveServer
from tests.support.sent_statements import sent_statements

HOSTILE = "<script>alert(1)</script>'\"&"
TABLE = f"/page/tables/{ORDERS}"


def test_tables_are_shown_with_what_the_catalog_knows(owner: Connection, open_browser: Callable[..., Browser]) -> None:
    owner.table(ORDERS).append(ROWS, hold=True)
    page = open_browser("owner")
    assert "main . sales . orders 0 3 " in page.text("/") and " 1 0 1 " in page.text(
        "/"
    )  # 1 file, all published, 1 hold.
    shown = page.text(TABLE)
    assert "Version 0 Unpublished commits 0 Holds 1 Rows 3" in shown and "location file://" in shown
    assert "0 20" in shown and "owner CREATE TABLE AS SELECT" in shown and "numOutputRows 3" in shown
    assert page.get("/page/tables/main.sales.none").status_code == 404
    assert page.get("/page/tables/none").status_code == 400
    assert page.get("/page/feed?before=x").headers["content-type"].startswith("text/html")
    answer = page.get("/")
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self';") and "unsafe" not in policy
    assert "<script" not in answer.text and "style=" not in answer.text
    style = httpx.get(page.origin + page.attribute("/", 'rel="stylesheet" href'))
    assert style.status_code == 200 and "prefers-color-scheme: dark" in style.text


def test_texts_of_the_catalog_are_not_markup(
    server: LiveServer, owner: Connection, open_browser: Callable[..., Browser]
) -> None:
    """The catalog permits no such name of a table; a database that another program has changed could have one."""
    stated = CommitProperties(user_metadata=HOSTILE, tags={HOSTILE: HOSTILE})
    owner.table(ORDERS).append(ROWS, commit_properties=stated)
    page = open_browser("owner")
    for path in (TABLE, "/page/feed"):
        assert HOSTILE in page.text(path) and "<script" not in page.get(path).text
    engine = sa.create_engine(server.settings.catalog, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE cm_delta_tables SET table_name = :name"), {"name": HOSTILE})
    for path in ("/", "/page/feed"):
        assert HOSTILE in page.text(path) and "<script" not in page.get(path).text
    assert page.get(f"/?scope={HOSTILE}").status_code == 400
    assert "<script" not in page.get(f"/?scope={HOSTILE}").text


def test_a_principal_sees_what_it_may_read(owner: Connection, open_browser: Callable[..., Browser]) -> None:
    owner.create_table_as("main.staff.people", pa.table({"id": [1]}))
    stranger = open_browser("stranger")
    for path in ("/", "/page/feed", "/page/approvals"):
        assert "orders" not in stranger.text(path) and "people" not in stranger.text(path)
    for path in (TABLE, "/page/refusals", "/page/tokens", f"/page/refusals?scope={ORDERS}"):
        refused = stranger.get(path)
        assert refused.status_code == 403 and "does not have the privilege" in refused.text
    owner.access.grant("read", "main.staff", to="ana")
    for page in (open_browser("ana"), open_browser("owner", scope="main.staff")):
        for path in ("/", "/page/feed"):
            assert "people" in page.text(path) and "orders" not in page.text(path)
        assert page.get("/page/tables/main.staff.people").status_code == 200
        assert page.get(TABLE).status_code == 403


def test_a_page_begins_after_the_last_entry_of_the_page_before(
    server: LiveServer, owner: Connection, open_browser: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TABLES_SHOWN", 2)
    monkeypatch.setattr(tables, "COMMITS_SHOWN", 2)
    with server.catalog(owner="owner") as catalog:
        for name in ("t1", "t2"):
            create(catalog, TableIdentifier("main", "sales", name))
    for _ in range(2):
        owner.table(ORDERS).append(ROWS)
    page = open_browser("owner")
    assert "/tables/main.sales.orders" in page.get("/").text and "/tables/main.sales.t2" not in page.get("/").text
    following = page.following("/?scope=main")
    assert "/tables/main.sales.t2" in following.text and "/tables/main.sales.t1" not in following.text
    assert 'rel="next"' not in following.text
    assert "main . sales . orders" in page.text("/?after=main.sales.a")
    oldest = page.following(TABLE)
    assert "CREATE TABLE AS SELECT" in oldest.text and ">WRITE" not in oldest.text and 'rel="next"' not in oldest.text


def test_the_number_of_statements_does_not_depend_on_the_number_of_tables(server_settings: ServerSettings) -> None:
    """With grants, and a hold of each table. Neither threads nor the clock send statements: the application is not started."""
    clock = Clock()
    app = create_app(server_settings, now_ms=clock)
    with SqlCatalog(server_settings.catalog, warehouse="/w", now_ms=clock, principal="owner") as catalog:
        secret = catalog.tokens.create_token("owner").secret
        catalog.access.enable_grants(owner="owner")
        _add_tables(catalog, 1)
        page = browser_of_application(app, secret=secret)
        page.text("/")  # The first request of a token records its use.
        few = [_statements(page, path) for path in PAGES]
        _add_tables(catalog, 12)
        many = [_statements(page, path) for path in PAGES]
    assert few == many and max(few) <= 10
    assert len(page.get("/").text) > 5000


PAGES = (
    "/",
    "/page/feed",
    "/page/approvals",
    "/page/rules",
    "/page/refusals",
    "/page/tokens",
    "/page/tables/main.sales.t0",
)


def _add_tables(catalog: SqlCatalog, number: int) -> None:
    start = len(catalog.registry.list_tables())
    for place in range(start, start + number):
        table_id = create(catalog, TableIdentifier("main", "sales", f"t{place}")).table_id
        assert hold_one(catalog, table_id, commit_of(1, ADD), waits_for=WaitsFor.RATIFICATION) is not None


def _statements(page: Browser, path: str) -> int:
    with sent_statements("SELECT") as sent:
        assert page.get(path).status_code == 200
    return len(sent)
