"""Ratification in one statement, on PostgreSQL."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    Ratified,
    RatifiedTogether,
    RefusedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, FEED, FEED_COUNTER, TABLES
from cm_delta_dagster.catalog.sql.ratification import single_statement
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitRefusedError, CommitRejectedError, TableNotFoundError
from cm_delta_dagster.protocol.actions.actions import Protocol
from cm_delta_dagster.protocol.commits.proposal_checks.content import check_content
from tests.contracts.catalog_bench import NAME, OTHER, create, inline, proposal
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.database_roles import create_role, url_as

_ALL_RIGHTS = (
    "GRANT ALL ON ALL TABLES IN SCHEMA public TO {writer}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {writer}"
)

pytestmark = pytest.mark.postgres


@pytest.fixture
def catalog(postgres_url: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(postgres_url, warehouse="memory://warehouse") as catalog:
        yield catalog


@contextmanager
def statements_of(catalog: SqlCatalog) -> Iterator[list[str]]:
    """The statements that the catalog sends to its database within the block."""
    sent: list[str] = []

    class Noting(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **options: Any) -> "Noting":
            sent.append(str(query))
            return super().execute(query, *arguments, **options)

    def note(connection: Any, *_: object) -> None:
        connection.cursor_factory = Noting

    def stop_noting(connection: Any, *_: object) -> None:
        connection.cursor_factory = psycopg.Cursor

    engines = {id(engine.pool): engine for engine in catalog._database.shared._ready()}.values()
    for engine in engines:
        sa.event.listen(engine, "checkout", note)
        sa.event.listen(engine, "checkin", stop_noting)
    yield sent
    for engine in engines:
        sa.event.remove(engine, "checkout", note)
        sa.event.remove(engine, "checkin", stop_noting)


def test_a_plain_commit_is_one_statement(catalog: SqlCatalog) -> None:
    """CM-C1: one statement is atomic."""
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
    assert [entry.position for entry in catalog.feed.feed(after=0, limit=10)] == [1, 2, 3]


def test_a_commit_with_an_application_id_is_one_statement(catalog: SqlCatalog) -> None:
    """Whether or not the application id has a row, and another principal set it; with several, it is a transaction."""
    table, ana = create(catalog).table_id, catalog.acting_as("ana")
    with statements_of(catalog) as sent:
        for version, client in enumerate((catalog, catalog, ana), 1):
            assert isinstance(client.commit(table, commit_of(version, ADD, TXN)), Ratified)
    assert len(sent) == 3
    two = {"txn": {"appId": "second", "version": 1}}
    assert isinstance(catalog.commit(table, commit_of(4, TXN, two)), Ratified)
    postgres = catalog.access.whoami().principal
    ids = catalog.application_ids.application_ids(table)
    assert [(entry.app_id, entry.principal) for entry in ids] == [("job", postgres), ("second", postgres)]
    late = ana._database.read(
        lambda connection: single_statement.commit(connection, table, _checked(commit_of(4, TXN)), now_ms=9)
    )
    assert late is None and catalog.application_ids.application_ids(table) == ids


TXN = {"txn": {"appId": "job", "version": 1}}


def _checked(one: CommitProposal) -> CommitProposal:
    assert one.content is not None
    return replace(one, checked=check_content(one.content))


def test_commits_to_several_tables_are_one_statement_each(catalog: SqlCatalog) -> None:
    """CM-C1: in one transaction, of which a reader sees all or nothing; a reader that waits is notified."""
    names = [TableIdentifier("main", "sales", f"t{number}") for number in range(4)]
    tables = [create(catalog, name).table_id for name in names]
    with statements_of(catalog) as sent:
        done = catalog.commit_together({table: inline(1) for table in tables})
    assert isinstance(done, RatifiedTogether) and len(done.commits) == 4
    assert sum("WITH advanced" in one for one in sent) == 4 and len(sent) == 4
    after, answers = catalog.feed.latest_feed_position(), list[bool]()
    waiting = threading.Thread(target=lambda: answers.append(catalog.events.wait_for_events(after=after, seconds=60)))
    waiting.start()
    catalog.commit_together({table: inline(2) for table in tables})
    waiting.join()
    assert answers == [True]
    assert [entry.version for entry in catalog.feed.feed(after=after, limit=9)] == [2] * 4


def test_reads_and_publication_are_as_few_statements_as_without_grants(catalog: SqlCatalog) -> None:
    """Whether grants are enabled is a column of each statement, and not a request of its own."""
    table = create(catalog).table_id
    catalog.commit(table, inline(1))
    for read, count in (
        (lambda: catalog.load_table(NAME), 1),
        (lambda: catalog.load_tables([NAME]), 1),
        (lambda: catalog.load_table_by_id(table), 1),
        (lambda: catalog.get_ratified_commits(table), 1),
        (lambda: catalog.commit_records(table, start=0, end=1), 1),
        (lambda: catalog.set_published_version(table, 1), 2),
    ):
        with statements_of(catalog) as sent:
            read()
        assert len(sent) == count, sent


def test_one_of_several_commits_that_is_late_leaves_none(catalog: SqlCatalog) -> None:
    """CM-C1: the statements before it are rolled back, and the answer says which tables have newer versions."""
    tables = sorted(create(catalog, name).table_id for name in (NAME, OTHER))
    catalog.commit(tables[1], inline(1))
    outcome = catalog.commit_together({table: inline(1) for table in tables})
    assert isinstance(outcome, RefusedTogether) and list(outcome.refusals) == tables[1:]
    assert catalog.get_ratified_commits(tables[0]).latest_version == 0
    ruled = CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY)
    catalog.commit_rules.set_commit_rule(ruled)
    versions = {table: catalog.get_ratified_commits(table).latest_version + 1 for table in tables}
    with pytest.raises(CommitRefusedError, match="append_only"):
        catalog.commit_together({table: commit_of(version, REMOVE) for table, version in versions.items()})
    done = catalog.commit_together({table: commit_of(version, ADD) for table, version in versions.items()})
    assert isinstance(done, RatifiedTogether)


def test_a_second_run_of_the_statement_has_no_effect(catalog: SqlCatalog) -> None:
    """CM-C3, CM-W4: it runs again after an unknown outcome."""
    table, one = create(catalog).table_id, proposal(1)

    def send() -> Ratified | None:
        return catalog._database.read(lambda connection: single_statement.commit(connection, table, one, now_ms=7))

    assert send() == Ratified(version=1, latest_version=1, published_version=0)
    assert send() is None
    assert catalog.feed.latest_feed_position() == 2
    again = catalog.commit(table, one)
    assert isinstance(again, Ratified) and again.repeated


def test_a_commit_with_a_definition_runs_in_a_transaction(catalog: SqlCatalog) -> None:
    """CM-C2, CM-C13: so do refusals, which raise their reason."""
    table = create(catalog).table_id
    with statements_of(catalog) as sent:
        catalog.commit(table, replace(proposal(1), protocol=Protocol(min_reader_version=3, min_writer_version=7)))
    assert len(sent) > 2
    assert isinstance(catalog.commit(table, proposal(1)), VersionTaken)
    assert catalog.feed.latest_feed_position() == 2


def test_a_table_with_rules_goes_without_the_statement_for_a_while(catalog: SqlCatalog) -> None:
    table, other = create(catalog).table_id, create(catalog, OTHER).table_id
    rule = CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY)
    catalog.commit_rules.set_commit_rule(rule)

    def sent_by(version: int, of_table: str = table) -> tuple[int, int]:
        """The numbers of statements, and of those that are the single statement."""
        with statements_of(catalog) as sent:
            assert isinstance(catalog.commit(of_table, commit_of(version, ADD)), Ratified)
        return len(sent), sum("WITH advanced" in one for one in sent)

    assert sent_by(1)[1] == 1
    assert [sent_by(version)[1] for version in range(2, 52)] == [0] * 50
    assert sent_by(52)[1] == 1
    assert sent_by(1, other) == (1, 1)
    with pytest.raises(CommitRefusedError, match="append_only"):
        catalog.commit(table, commit_of(53, REMOVE))
    assert isinstance(catalog.commit(table, commit_of(52, ADD)), VersionTaken)
    catalog.commit_rules.remove_commit_rule(str(NAME), "keep")
    counts = [sent_by(version) for version in range(53, 103)]
    assert counts[-1] == (1, 1) and sent_by(103) == (1, 1)


def test_grants_hold_for_a_table_that_goes_without_the_statement(catalog: SqlCatalog, postgres_url: str) -> None:
    """CM-C1: what a client remembers of a table permits nothing."""
    table = create(catalog).table_id
    catalog.commit_rules.set_commit_rule(CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY))
    writer = create_role(postgres_url, "writer")
    with SqlCatalog(url_as(postgres_url, writer), warehouse="memory://warehouse") as theirs:
        catalog._database.write(lambda connection: connection.execute(sa.text(_ALL_RIGHTS.format(writer=writer))))
        for version in (1, 2):
            assert isinstance(theirs.commit(table, commit_of(version, ADD)), Ratified)
        catalog.access.enable_grants()
        with pytest.raises((CommitRefusedError, TableNotFoundError)):
            theirs.commit(table, commit_of(3, ADD))
        catalog.access.grant([Privilege.APPEND], str(NAME), writer)
        assert isinstance(theirs.commit(table, commit_of(3, ADD)), Ratified)


def test_single_statement_commits_delete_unneeded_content(catalog: SqlCatalog) -> None:
    """CM-C8."""
    table = create(catalog).table_id
    for version in range(1, 120):
        catalog.commit(table, replace(inline(version), published_version=version - 1))
    served = catalog.get_ratified_commits(table, content_from_version=0)
    versions = [commit.version for commit in (*served.cached_commits, *served.commits)]
    assert versions == list(range(versions[0], 120))
    assert 64 <= len(versions) <= 80
    contents = sa.text("SELECT count(*) FROM cm_delta_commits WHERE content IS NOT NULL")
    assert catalog._database.read(lambda connection: connection.execute(contents).scalar_one()) == len(versions)


def any_proposal(draw: random.Random, latest: int, timestamp: int) -> CommitProposal:
    """A random proposal, mostly of the next version; sometimes an invalid one."""
    version = max(1, latest + draw.choice([1] * 12 + [-1, 0, 2]))
    later = timestamp + draw.choice([1, 2, 3] * 6 + [0, -1])
    with_content = inline(version, timestamp=later, size=20_000 if draw.random() < 0.01 else 0)
    one = with_content if draw.random() < 0.97 else proposal(version, timestamp=later)
    reported = draw.choice([None, None, -3, 0, version - 3, version - 1, version - 1, version])
    changes = draw.random() < 0.7
    one = replace(one, published_version=reported, summary=replace(one.summary, data_change=changes))
    return replace(one, protocol=Protocol(min_reader_version=3, min_writer_version=7)) if draw.random() < 0.02 else one


def rows_of(catalog: SqlCatalog) -> list[dict[str, Any]]:
    """The rows of commits, the table and the counter, without the columns that differ between two catalogs."""
    own = {"table_id", "location", "reserved_ms", "created_ms", "ratified_ms", "at_ms", "principal", "owner"}
    catalog.feed.latest_feed_position()  # Places the entries.

    def read(connection: sa.Connection) -> list[dict[str, Any]]:
        statements = (
            sa.select(COMMITS).order_by(COMMITS.c.table_id, COMMITS.c.version),
            sa.select(TABLES),
            sa.select(FEED_COUNTER),
            sa.select(FEED).order_by(FEED.c.position),
        )
        found = [row for statement in statements for row in connection.execute(statement).mappings()]
        return [{name: value for name, value in row.items() if name not in own} for row in found]

    return catalog._database.read(read)


def answer_of(catalog: SqlCatalog, table: str, one: CommitProposal) -> object:
    try:
        return catalog.commit(table, one)
    except CommitRejectedError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_of_a_commit_give_the_same_answers_and_rows(catalog: SqlCatalog, sqlite_url: str, seed: int) -> None:
    """CM-C1 to CM-C14: PostgreSQL is compared with SQLite, which always uses a transaction."""
    draw, answers = random.Random(seed), set[object]()
    with SqlCatalog(sqlite_url, warehouse="memory://warehouse") as other:
        first = create(catalog).table_id
        staging = other.create_staging_table(NAME)
        version_0 = catalog.feed.feed(after=0, limit=1)[0].summary
        second = other.register_table(staging.table_id, NAME, summary=version_0).table_id
        latest, timestamp, before = 0, 1000, proposal(1)
        for _ in range(250):
            one = before if draw.random() < 0.03 else any_proposal(draw, latest, timestamp)
            here, there = answer_of(catalog, first, one), answer_of(other, second, one)
            assert here == there, one
            answers.add(here if isinstance(here, type) else type(here))
            if isinstance(here, Ratified) and not here.repeated:
                latest, timestamp, before = one.version, one.summary.in_commit_timestamp, one
        assert rows_of(catalog) == rows_of(other)
    assert latest > 100 and answers == {Ratified, VersionTaken, CommitRejectedError}
