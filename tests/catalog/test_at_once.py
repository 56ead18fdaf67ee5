"""Ratification in one statement, on PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import Ratified, VersionTaken
from cm_delta_dagster.catalog.sql import SqlCatalog, at_once
from cm_delta_dagster.protocol.actions import Protocol
from tests.contracts.catalog_contract import create, inline, proposal

pytestmark = pytest.mark.postgres


@pytest.fixture
def catalog(postgres_url: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(postgres_url, warehouse="memory://warehouse") as catalog:
        yield catalog


@contextmanager
def statements_of(catalog: SqlCatalog) -> Iterator[list[str]]:
    """What the catalog sends to its database within the block."""
    sent: list[str] = []
    engine = catalog._database._ready()[0]

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(engine, "before_cursor_execute", note)


def test_a_plain_commit_is_one_statement(catalog: SqlCatalog) -> None:
    """CM-C1: one statement commits wholly or not at all."""
    table = create(catalog).table_id
    with statements_of(catalog) as sent:
        assert catalog.commit(table, inline(1)) == Ratified(version=1, latest_version=1, published_version=0)
        assert catalog.commit(table, replace(inline(2), published_version=1)) == Ratified(
            version=2, latest_version=2, published_version=1
        )
    assert len(sent) == 2
    answer = catalog.get_ratified_commits(table)
    assert [commit.version for commit in answer.commits] == [2]
    assert (answer.latest_version, answer.latest_data_version) == (2, 2)
    assert [entry.position for entry in catalog.feed(after=0, limit=10)] == [1, 2, 3]


def test_the_same_statement_again_has_no_effect(catalog: SqlCatalog) -> None:
    """CM-C3, CM-W4: the answer to the first one may have been lost."""
    table, one = create(catalog).table_id, proposal(1)

    def send() -> Ratified | None:
        return catalog._database.read(lambda connection: at_once.commit(connection, table, one, now_ms=7))

    assert send() == Ratified(version=1, latest_version=1, published_version=0)
    assert send() is None
    assert catalog.latest_feed_position() == 2
    again = catalog.commit(table, one)
    assert isinstance(again, Ratified) and again.repeated


def test_what_is_no_plain_next_version_takes_the_long_way(catalog: SqlCatalog) -> None:
    """CM-C2, CM-C13: refusals have their reason, and definitions are kept in step."""
    table = create(catalog).table_id
    with statements_of(catalog) as sent:
        catalog.commit(table, replace(proposal(1), protocol=Protocol(min_reader_version=3, min_writer_version=7)))
    assert len(sent) > 2
    assert isinstance(catalog.commit(table, proposal(1)), VersionTaken)
    assert catalog.latest_feed_position() == 2


def test_contents_that_nobody_needs_are_forgotten_the_short_way_too(catalog: SqlCatalog) -> None:
    """CM-C8."""
    table = create(catalog).table_id
    for version in range(1, 120):
        catalog.commit(table, replace(inline(version), published_version=version - 1))
    kept = catalog.get_ratified_commits(table, kept_from=0)
    held = [commit.version for commit in (*kept.kept, *kept.commits)]
    assert held == list(range(held[0], 120))
    assert 64 <= len(held) <= 80
    contents = sa.text("SELECT count(*) FROM cm_delta_commits WHERE content IS NOT NULL")
    assert catalog._database.read(lambda connection: connection.execute(contents).scalar_one()) == len(held)
