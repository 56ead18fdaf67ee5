"""Ratification on PostgreSQL: its round trips, and the same answers as on SQLite."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRefusedError,
    CommitRejectedError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions.actions import Protocol
from tests.contracts.catalog_bench import NAME, OTHER, PROTOCOL, create, defined, inline, metadata, proposal
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


@dataclass
class Sent:
    """What a catalog sends to its database.

    Attributes:
        statements: their texts.
        round_trips: how often the client waits for answers: after each statement, or after those of a pipeline.
    """

    statements: list[str] = field(default_factory=list)
    round_trips: int = 0


@contextmanager
def sent_by(catalog: SqlCatalog) -> Iterator[Sent]:
    """What the catalog sends to its database within the block."""
    sent = Sent()

    class Noting(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **options: Any) -> "Noting":
            sent.statements.append(str(query))
            if not self.connection._pipeline:
                # The driver waits for the answer to its own BEGIN, too.
                begins = not self.connection.autocommit and self.connection.info.transaction_status == 0
                sent.round_trips += 2 if begins else 1
            elif sent.statements[-1] not in ("BEGIN", "COMMIT") and self.connection not in syncing:
                syncing.add(self.connection)
                sent.round_trips += 1
            return super().execute(query, *arguments, **options)

    syncing = set[Any]()
    leave = psycopg.Pipeline.__exit__

    def leave_noting(pipeline: Any, *error: Any) -> None:
        syncing.discard(pipeline._conn)
        leave(pipeline, *error)

    def note(connection: Any, *_: object) -> None:
        connection.cursor_factory = Noting

    def stop_noting(connection: Any, *_: object) -> None:
        connection.cursor_factory = psycopg.Cursor

    engines = {id(engine.pool): engine for engine in catalog._database.shared._ready()}.values()
    for engine in engines:
        sa.event.listen(engine, "checkout", note)
        sa.event.listen(engine, "checkin", stop_noting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Pipeline, "__exit__", leave_noting)
        yield sent
    for engine in engines:
        sa.event.remove(engine, "checkout", note)
        sa.event.remove(engine, "checkin", stop_noting)


@pytest.mark.requirements("CM-C1")
def test_a_commit_is_two_round_trips(catalog: SqlCatalog) -> None:
    """One transaction; its COMMIT and BEGIN are no round trips of their own, with rules and grants neither."""
    table = create(catalog).table_id
    with sent_by(catalog) as sent:
        assert catalog.coordinator.commit(table, inline(1)) == Ratified(
            version=1, latest_version=1, published_version=0
        )
    assert (sent.round_trips, sent.statements[0], sent.statements[-1]) == (2, "BEGIN", "COMMIT")
    with sent_by(catalog) as sent:
        assert catalog.coordinator.commit(table, replace(inline(2), published_version=1)) == Ratified(
            version=2, latest_version=2, published_version=1
        )
    assert sent.round_trips == 2
    answer = catalog.coordinator.get_ratified_commits(table)
    assert [commit.version for commit in answer.commits] == [2]
    assert (answer.latest_version, answer.latest_data_version) == (2, 2)
    assert [entry.position for entry in catalog.feed.feed(after=0, limit=10)] == [1, 2, 3]
    catalog.commit_rules.set_commit_rule(CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY))
    catalog.access.enable_grants()
    with sent_by(catalog) as sent:
        assert isinstance(catalog.coordinator.commit(table, commit_of(3, ADD)), Ratified)
    assert sent.round_trips == 2
    with pytest.raises(CommitRefusedError, match="append_only"):
        catalog.coordinator.commit(table, commit_of(4, REMOVE))


def test_a_commit_with_application_ids_is_two_round_trips(catalog: SqlCatalog) -> None:
    """Whether or not the application id has a row, and another principal set it."""
    table, ana = create(catalog).table_id, catalog.acting_as("ana")
    two = {"txn": {"appId": "second", "version": 1}}
    for version, (client, transactions) in enumerate(((catalog, [TXN]), (ana, [TXN]), (catalog, [TXN, two])), 1):
        with sent_by(catalog) as sent:
            assert isinstance(client.coordinator.commit(table, commit_of(version, ADD, *transactions)), Ratified)
        assert sent.round_trips == 2
    postgres = catalog.access.whoami().principal
    ids = catalog.application_ids.application_ids(table)
    assert [(entry.app_id, entry.principal) for entry in ids] == [("job", postgres), ("second", postgres)]
    assert isinstance(ana.coordinator.commit(table, commit_of(3, ADD, TXN)), VersionTaken)
    assert catalog.application_ids.application_ids(table) == ids


TXN = {"txn": {"appId": "job", "version": 1}}


@pytest.mark.requirements("CM-C1")
def test_commits_to_several_tables_are_two_round_trips(catalog: SqlCatalog) -> None:
    """One transaction, of which a reader sees all or nothing; a reader that waits is notified."""
    names = [TableIdentifier("main", "sales", f"t{number}") for number in range(4)]
    tables = [create(catalog, name).table_id for name in names]
    with sent_by(catalog) as sent:
        done = catalog.coordinator.commit_together({table: inline(1) for table in tables})
    assert isinstance(done, RatifiedTogether) and len(done.commits) == 4
    assert sent.round_trips == 2
    after, answers = catalog.feed.latest_feed_position(), list[bool]()
    waiting = threading.Thread(target=lambda: answers.append(catalog.events.wait_for_events(after=after, seconds=60)))
    waiting.start()
    catalog.coordinator.commit_together({table: inline(2) for table in tables})
    waiting.join()
    assert answers == [True]
    assert [entry.version for entry in catalog.feed.feed(after=after, limit=9)] == [2] * 4


def test_reads_and_publication_are_as_few_statements_as_without_grants(catalog: SqlCatalog) -> None:
    """Whether grants are enabled is a column of each statement, and not a request of its own."""
    table = create(catalog).table_id
    catalog.coordinator.commit(table, inline(1))
    for read, count in (
        (lambda: catalog.registry.load_table(NAME), 1),
        (lambda: catalog.registry.load_tables([NAME]), 1),
        (lambda: catalog.registry.load_table_by_id(table), 1),
        (lambda: catalog.coordinator.get_ratified_commits(table), 1),
        (lambda: catalog.coordinator.commit_records(table, start=0, end=1), 1),
        (lambda: catalog.coordinator.set_published_version(table, 1), 2),
    ):
        with sent_by(catalog) as sent:
            read()
        assert len(sent.statements) == sent.round_trips == count, sent


@pytest.mark.requirements("CM-C1")
def test_one_of_several_commits_that_is_late_leaves_none(catalog: SqlCatalog) -> None:
    """Nothing of the others is ratified, and the answer says which tables have newer versions."""
    tables = sorted(create(catalog, name).table_id for name in (NAME, OTHER))
    catalog.coordinator.commit(tables[1], inline(1))
    outcome = catalog.coordinator.commit_together({table: inline(1) for table in tables})
    assert isinstance(outcome, RefusedTogether) and list(outcome.refusals) == tables[1:]
    assert catalog.coordinator.get_ratified_commits(tables[0]).latest_version == 0
    ruled = CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY)
    catalog.commit_rules.set_commit_rule(ruled)
    versions = {table: catalog.coordinator.get_ratified_commits(table).latest_version + 1 for table in tables}
    with pytest.raises(CommitRefusedError, match="append_only"):
        catalog.coordinator.commit_together({table: commit_of(version, REMOVE) for table, version in versions.items()})
    done = catalog.coordinator.commit_together({table: commit_of(version, ADD) for table, version in versions.items()})
    assert isinstance(done, RatifiedTogether)


@pytest.mark.requirements("CM-C3", "CM-W4")
def test_a_lost_answer_to_a_commit_is_an_unknown_outcome(catalog: SqlCatalog, postgres_url: str) -> None:
    """The transaction does not run again; the answer to a second proposal says what became of the first one."""
    table, proposed = create(catalog).table_id, proposal(1)
    engine = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as other:

        class Losing(psycopg.Cursor[Any]):
            """Ends its own connection on the server before it commits."""

            def execute(self, query: Any, *arguments: Any, **options: Any) -> "Losing":
                if str(query) == "COMMIT":
                    pid = self.connection.info.backend_pid
                    other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 10000)")
                return super().execute(query, *arguments, **options)

        def lose(connection: Any, *_: object) -> None:
            connection.cursor_factory = Losing

        pool = catalog._database.shared._ready()[1]
        sa.event.listen(pool, "checkout", lose)
        with pytest.raises(CatalogUnavailableError, match="whether the change took effect is unknown"):
            catalog.coordinator.commit(table, proposed)
        sa.event.remove(pool, "checkout", lose)
    again = catalog.coordinator.commit(table, proposed)
    assert isinstance(again, Ratified) and catalog.feed.latest_feed_position() == 2


@pytest.mark.requirements("CM-C2", "CM-C13")
def test_a_commit_with_a_definition_is_served_with_it(catalog: SqlCatalog) -> None:
    table, changed = defined(catalog).table_id, metadata("id", "more")
    catalog.coordinator.commit(table, replace(proposal(1), metadata=changed, protocol=PROTOCOL))
    served = catalog.registry.load_table_by_id(table).definition
    assert served is not None and (served.metadata, served.protocol, served.version) == (changed, PROTOCOL, 1)
    assert isinstance(catalog.coordinator.commit(table, proposal(1)), VersionTaken)
    assert catalog.feed.latest_feed_position() == 2


@pytest.mark.requirements("CM-C1")
def test_grants_hold_for_the_next_commit_of_a_client(catalog: SqlCatalog, postgres_url: str) -> None:
    """What a client remembers of a table permits nothing."""
    table = create(catalog).table_id
    catalog.commit_rules.set_commit_rule(CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY))
    writer = create_role(postgres_url, "writer")
    with SqlCatalog(url_as(postgres_url, writer), warehouse="memory://warehouse") as theirs:
        catalog._database.write(lambda connection: connection.execute(sa.text(_ALL_RIGHTS.format(writer=writer))))
        for version in (1, 2):
            assert isinstance(theirs.coordinator.commit(table, commit_of(version, ADD)), Ratified)
        catalog.access.enable_grants()
        with pytest.raises((CommitRefusedError, TableNotFoundError)):
            theirs.coordinator.commit(table, commit_of(3, ADD))
        catalog.access.grant([Privilege.APPEND], str(NAME), writer)
        assert isinstance(theirs.coordinator.commit(table, commit_of(3, ADD)), Ratified)


@pytest.mark.requirements("CM-C8")
def test_commits_delete_unneeded_content(catalog: SqlCatalog) -> None:
    table = create(catalog).table_id
    for version in range(1, 120):
        catalog.coordinator.commit(table, replace(inline(version), published_version=version - 1))
    served = catalog.coordinator.get_ratified_commits(table, content_from_version=0)
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
        return catalog.coordinator.commit(table, one)
    except CommitRejectedError as error:
        return type(error)


@pytest.mark.requirements(
    "CM-C1",
    "CM-C2",
    "CM-C3",
    "CM-C4",
    "CM-C5",
    "CM-C6",
    "CM-C7",
    "CM-C8",
    "CM-C9",
    "CM-C10",
    "CM-C11",
    "CM-C12",
    "CM-C13",
    "CM-C14",
)
@pytest.mark.parametrize("seed", range(3))
def test_both_databases_give_the_same_answers_and_rows(catalog: SqlCatalog, sqlite_url: str, seed: int) -> None:
    """PostgreSQL is compared with SQLite."""
    draw, answers = random.Random(seed), set[object]()
    with SqlCatalog(sqlite_url, warehouse="memory://warehouse") as other:
        first = create(catalog).table_id
        staging = other.registry.create_staging_table(NAME)
        version_0 = catalog.feed.feed(after=0, limit=1)[0].summary
        second = other.registry.register_table(staging.table_id, NAME, summary=version_0).table_id
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
