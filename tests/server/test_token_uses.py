"""When tokens were used last, as a server process records it."""

from collections.abc import Iterator

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.server import token_uses
from cm_delta_dagster.server.token_uses import TokenUses
from tests.contracts.catalog_bench import Clock
from tests.support.log_records import messages_of
from tests.support.waiting import until


@pytest.fixture
def clock() -> Clock:
    return Clock(now=1_000_000)


@pytest.fixture
def catalog(sqlite_url: str, clock: Clock) -> Iterator[SqlCatalog]:
    with SqlCatalog(sqlite_url, now_ms=clock) as catalog:
        yield catalog


def test_uses_are_recorded_once_a_minute_without_a_new_look_at_the_database(catalog: SqlCatalog, clock: Clock) -> None:
    """The token that is noted is the one of before: no write of its use is read again within the minute."""
    uses, token = TokenUses(catalog), catalog.tokens.create_token("etl").token
    recorded = []
    for advanced_ms in (0, 30_000, 29_999, 1, 59_999):
        clock.now += advanced_ms
        uses.note(token)
        if advanced_ms in (0, 1):
            until(lambda: catalog.tokens.tokens()[0].last_used_ms == clock.now)
        recorded.append(catalog.tokens.tokens()[0].last_used_ms)
    uses.close()
    assert recorded == [1_000_000, 1_000_000, 1_000_000, 1_060_000, 1_060_000]


def test_the_end_of_a_process_records_what_is_left(catalog: SqlCatalog) -> None:
    uses = TokenUses(catalog)
    tokens = [catalog.tokens.create_token("etl").token for _ in range(20)]
    for token in tokens:
        uses.note(token)
    uses.close()
    assert {token.last_used_ms for token in catalog.tokens.tokens()} == {1_000_000}
    TokenUses(catalog).close()  # Without a use there is no thread.


def test_a_failure_is_logged_and_refuses_no_request(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    catalog = SqlCatalog(sqlite_url)
    token = catalog.tokens.create_token("etl").token
    catalog.close()
    uses = TokenUses(catalog)
    uses.note(token)
    uses.close()
    assert len(messages_of(caplog, token_uses)) == 1
    assert messages_of(caplog, token_uses)[0].startswith("The last use of 1 tokens was not recorded: ")
