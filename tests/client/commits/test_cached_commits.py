"""What the catalog keeps of small commits and of the table's definition, and what that saves: storage is not asked."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.ratification import CACHED_COMMITS
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.parts import Part
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, DEFINITIONS
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError
from cm_delta_dagster.operations.doctor import doctor, repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.set_commit_mode import present_commits, set_commit_policy
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType, schema_to_json
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.store import ObjectStatus
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA, Clock
from tests.support.actions import add_file
from tests.support.creation import create_table

NAME = "main.test.t"


class CountingStore:
    """A store that counts its calls and hands them on."""

    def __init__(self, real: MemoryStore) -> None:
        self._real = real
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._real, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return target(*arguments, **named)

        return call


class CountingCatalog:
    """A catalog that counts its requests and hands them on, but for those that ``lost`` names."""

    def __init__(self, real: SqlCatalog | Part) -> None:
        self._real = real
        self.calls: Counter[str] = Counter()
        self.lost: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._real, name)
        if name == "now_ms":
            return target  # It is no request.
        if isinstance(target, Part):
            part = CountingCatalog(target)
            part.calls, part.lost = self.calls, self.lost
            return part

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            if name in self.lost:
                raise CatalogUnavailableError("The catalog does not answer.")
            return target(*arguments, **named)

        return call


Connect = Callable[..., tuple[DeltaClient, CountingStore, CountingCatalog]]


@pytest.fixture
def connect(tmp_path: Path, clock: Clock) -> Iterator[Connect]:
    """Opens clients, each with its own counters, of one catalog and one store."""
    memory = MemoryStore()
    opened: list[DeltaClient] = []

    def make(**settings: Any) -> tuple[DeltaClient, CountingStore, CountingCatalog]:
        real = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://lake", now_ms=clock)
        store, catalog = CountingStore(memory), CountingCatalog(real)
        chosen = ClientSettings(retry_initial_delay=timedelta(seconds=0.0001), max_resolve_attempts=2, **settings)
        stores: Any = Stores({"memory": store})
        client = DeltaClient(catalog, stores=stores, settings=chosen, now_ms=clock)
        opened.append(client)
        return client, store, catalog

    yield make
    for client in opened:
        client.close()


def made(client: DeltaClient, mode: str = "staged", *, name: str = NAME) -> Table:
    table = create_table(client, identifier=name, schema=SCHEMA, partition_columns=("day",))
    set_commit_policy(table, CommitPolicy.parse(mode))
    return table


def append(table: Table, name: str = "a.parquet", *, padding: int = 0) -> int:
    transaction = table.start_transaction(table.snapshot(), operation="WRITE", parameters={"padding": "x" * padding})
    add(table, transaction, name)
    return transaction.commit().version


def add(table: Table, transaction: Transaction, name: str) -> None:
    """A file of one byte, which the doctor finds."""
    table.store.write(f"{table.location}/{name}", b"x")
    transaction.add_files([add_file(name, partition_values={"day": None})])


def state_of(snapshot: Snapshot) -> tuple[Any, ...]:
    files = sorted(snapshot.files["path"].to_pylist())
    return snapshot.version, files, snapshot.protocol, snapshot.metadata, snapshot.timestamp_ms, snapshot.data_version


EACH_MODE = pytest.mark.parametrize("mode", ["staged", "inline", "auto:300", "put_if_absent"])


@pytest.mark.requirements("CM-C16", "LIST-2")
@pytest.mark.parametrize("mode", ["staged", "inline", "auto:300"])
def test_a_small_table_is_read_and_refreshed_without_its_log(mode: str, connect: Connect) -> None:
    """One catalog query each, published or not; the first read also looks for a commit above the latest."""
    writer, _, _ = connect()
    table = made(writer, mode)
    for number in range(5):
        append(table, f"{number}.parquet")
    writer.wait_for_background()
    plain, plain_store, _ = connect(copied_content_bytes=0)
    reader, store, catalog = connect()
    found = reader.table(NAME)
    catalog.calls.clear()
    assert found.snapshot().num_files == 5
    assert (store.calls, catalog.calls) == (Counter(list_from=1), Counter(get_ratified_commits=1))
    append(table, "late.parquet", padding=0)
    assert found.snapshot().num_files == 6
    append(table, "later.parquet")
    writer.wait_for_background()
    refreshed = found.snapshot()
    assert found.snapshot() is not None and refreshed.num_files == 7
    assert (store.calls, catalog.calls) == (Counter(list_from=1), Counter(get_ratified_commits=4))
    past = plain.table(NAME).snapshot(version=6)
    assert plain_store.calls and past.num_files == 6
    assert state_of(refreshed) == state_of(plain.table(NAME).snapshot())


@pytest.mark.requirements("CM-C16")
def test_without_copies_the_files_are_read_and_say_the_same(connect: Connect) -> None:
    """A client works without."""
    writer, _, _ = connect(copied_content_bytes=0)
    table = made(writer)
    for number in range(3):
        append(table, f"{number}.parquet")
    writer.wait_for_background()
    reader, store, _ = connect()
    assert state_of(reader.table(NAME).snapshot()) == state_of(table.snapshot())
    assert store.calls["read"] >= 3


@pytest.mark.requirements("CM-C8")
def test_a_table_with_a_large_commit_is_read_from_its_log(connect: Connect) -> None:
    """What is kept then are the commits after it, which save their files."""
    writer, _, _ = connect()
    table = made(writer)
    append(table, "large.parquet", padding=20_000)
    for number in range(3):
        append(table, f"{number}.parquet")
    writer.wait_for_background()
    reader, store, _ = connect()
    snapshot = reader.table(NAME).snapshot()
    assert state_of(snapshot) == state_of(table.snapshot()) and snapshot.num_files == 4
    assert store.calls["list_from"] == 1 and store.calls["read"] <= 3


@pytest.mark.requirements("CM-R3", "CM-R5", "CACHE-4")
def test_behind_a_checkpoint_kept_contents_stand_in_for_the_files(connect: Connect) -> None:
    writer, _, _ = connect()
    table = made(writer)
    for number in range(CACHED_COMMITS + 20):
        append(table, f"{number}.parquet")
    checkpoint(table)
    for number in range(3):
        append(table, f"late-{number}.parquet")
    writer.wait_for_background()
    reader, store, _ = connect()
    snapshot = reader.table(NAME).snapshot()
    assert state_of(snapshot) == state_of(table.snapshot()) and snapshot.num_files == CACHED_COMMITS + 23
    published = [f"{version:020d}.json" for version in range(CACHED_COMMITS + 24)]
    assert store.calls["list_from"] >= 1 and store.calls["read"] < len(published)


@pytest.mark.requirements("CM-C4", "CM-C13")
def test_a_copy_that_is_not_the_commit_is_not_believed(connect: Connect, tmp_path: Path) -> None:
    """Size and txnId have to be those that were ratified; else the file decides."""
    writer, _, catalog = connect()
    table = made(writer)
    for number in range(3):
        append(table, f"{number}.parquet")
    writer.wait_for_background()
    right = state_of(table.snapshot())
    texts = [record.content for record in catalog.coordinator.commit_records(table.table_id, start=0, end=3)]
    engine = sa.create_engine(f"sqlite:///{tmp_path}/catalog.db", poolclass=sa.pool.NullPool)
    assert texts[3] is not None and texts[2] is not None
    broken = (b"X" + texts[3][1:], texts[3][:-3] + b"X" + texts[3][-2:])  # In its first line, and in a later one.
    for wrong in (b"", texts[3] + b" ", texts[2].replace(b"1.parquet", b"2.parquet"), *broken):
        with engine.begin() as connection:
            connection.execute(sa.update(COMMITS).where(COMMITS.c.version == 3).values(content=wrong))
        reader, store, _ = connect()
        assert state_of(reader.table(NAME).snapshot()) == right
        assert store.calls["read"] > 0
    assert [finding.problem.value for finding in doctor(table).findings] == ["copy_differs"]


@pytest.mark.requirements("CM-P1")
def test_a_winner_is_published_from_its_staged_file_and_not_from_the_copy(connect: Connect, tmp_path: Path) -> None:
    """What was ratified is that file, byte for byte."""
    winner, store, _ = connect(publish_delay=timedelta(seconds=1000))
    loser, _, _ = connect()
    theirs, ours = made(winner), loser.table(NAME)
    transaction = ours.start_transaction(ours.snapshot(), operation="WRITE")
    append(theirs, "theirs.parquet")
    published = f"{theirs.location}/_delta_log/{1:020d}.json"
    staged = store.read(published)
    store.delete(published)  # As if it had been killed before.
    engine = sa.create_engine(f"sqlite:///{tmp_path}/catalog.db", poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        altered = staged.replace(b'"size":1,', b'"size":2,')
        assert altered != staged
        connection.execute(sa.update(COMMITS).where(COMMITS.c.version == 1).values(content=altered))
    add(ours, transaction, "ours.parquet")
    assert transaction.commit().version == 2
    assert store.read(published) == staged


@pytest.mark.requirements("CM-C11", "OCC-9")
def test_a_rebase_reads_its_winners_from_the_answer(connect: Connect) -> None:
    """Also of published winners, and of those whose files log cleanup has taken since."""
    writer, store, catalog = connect()
    table = made(writer)
    append(table)
    stale = table.start_transaction(table.snapshot(), operation="WRITE")
    add(table, stale, "stale.parquet")
    for number in range(3):
        append(table, f"{number}.parquet")
    writer.wait_for_background()
    store.calls.clear()
    catalog.calls.clear()
    assert stale.commit().version == 5
    # One refresh after the backoff, so that no proposal fails.
    assert store.calls["read"] == 0 and catalog.calls["get_ratified_commits"] == 1


# The definition


@pytest.mark.requirements("CM-C13")
@pytest.mark.slow
@EACH_MODE
def test_the_catalog_and_the_log_agree_on_the_definition_at_every_version(mode: str, connect: Connect) -> None:
    """After any mixture of commits, by clients that know the table and by those that do not."""
    clients = [connect()[0], connect(copied_content_bytes=0)[0]]
    made(clients[0], mode)
    chance = random.Random(mode)
    etags, definitions = set(), set()
    for step in range(25):
        client = chance.choice(clients)
        table = client.table(NAME)
        snapshot = table.snapshot()
        transaction = table.start_transaction(snapshot, operation="WRITE")
        if chance.random() < 0.4:
            column = StructField(name=f"c{step}", type=PrimitiveType(name="long"))
            wider = StructType(fields=(*snapshot.schema.fields, column))
            transaction.set_metadata(with_schema(snapshot, wider))
        add(table, transaction, f"{step}.parquet")
        transaction.commit()
        entry = client.registry.load_table(TableIdentifier.parse(NAME))
        log = connect(copied_content_bytes=0)[0].table(NAME).snapshot()
        assert entry.definition is not None and entry.ratified.latest_version == log.version
        assert (entry.definition.metadata, entry.definition.protocol) == (log.metadata, log.protocol)
        etags.add(entry.etag)
        definitions.add(entry.definition.metadata.schema_string)
    assert len(etags) == len(definitions) > 3
    clients[1].wait_for_background()
    assert doctor(clients[0].table(NAME)).findings == ()


def with_schema(snapshot: Snapshot, schema: StructType) -> Metadata:
    return replace(snapshot.metadata, schema_string=schema_to_json(schema))


@pytest.mark.requirements("CM-C6", "CM-C13")
def test_a_created_commit_that_only_storage_knows_brings_its_definition(connect: Connect) -> None:
    writer, _, catalog = connect()
    table = made(writer, "put_if_absent")
    append(table)
    snapshot = table.snapshot()
    column = StructField(name="more", type=PrimitiveType(name="long"))
    transaction = table.start_transaction(snapshot, operation="ADD COLUMNS")
    transaction.set_metadata(with_schema(snapshot, StructType(fields=(*snapshot.schema.fields, column))))
    catalog.lost |= {"record_published"}
    transaction.commit()
    reader, _, informed = connect()
    before = informed.registry.load_table(TableIdentifier.parse(NAME))
    latest = reader.table(NAME).snapshot()
    after = informed.registry.load_table(TableIdentifier.parse(NAME))
    assert before.definition is not None and after.definition is not None
    assert before.definition.metadata != latest.metadata == after.definition.metadata
    assert after.definition.protocol == latest.protocol and before.etag != after.etag


@pytest.mark.requirements("CM-C13")
def test_the_doctor_records_what_the_log_says_in_a_catalog_of_an_older_release(
    connect: Connect, tmp_path: Path
) -> None:
    writer, _, catalog = connect()
    table = made(writer)
    append(table)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/catalog.db", poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.delete(DEFINITIONS))
    assert catalog.registry.load_table(TableIdentifier.parse(NAME)).definition is None
    assert [finding.problem.value for finding in doctor(table).findings] == ["definition_differs"]
    assert repair_table(table).findings == ()
    definition = catalog.registry.load_table(TableIdentifier.parse(NAME)).definition
    assert definition is not None and definition.metadata == table.snapshot().metadata
    with engine.begin() as connection:
        connection.execute(sa.update(DEFINITIONS).values(metadata=DEFINITIONS.c.metadata.op("||")(" ")))
        stored = connection.execute(sa.select(DEFINITIONS.c.protocol)).scalar_one()
        wrong = stored.replace("inCommitTimestamp", "appendOnly")
        connection.execute(sa.update(DEFINITIONS).values(protocol=wrong))
    assert not doctor(table).healthy
    assert repair_table(table).findings == ()


# Published marks


@pytest.mark.requirements("CM-P4")
def test_the_published_version_is_reported_by_the_next_commit_or_after_a_delay(connect: Connect) -> None:
    """One transaction a commit while a writer is busy."""
    writer, store, catalog = connect(publish_delay=timedelta(seconds=1000))
    table = made(writer)
    for number in range(4):
        append(table, f"{number}.parquet")
    known = catalog.coordinator.get_ratified_commits(table.table_id)
    assert (known.latest_version, known.published_version) == (4, 3)
    assert catalog.calls["set_published_version"] == 0
    assert table.snapshot().published_version == 4
    assert f"{table.location}/_delta_log/{4:020d}.json" in [
        status.location for status in store.list_from(f"{table.location}/_delta_log")
    ]
    writer.wait_for_background()
    assert catalog.coordinator.get_ratified_commits(table.table_id).published_version == 4
    assert catalog.calls["set_published_version"] == 1


@pytest.mark.requirements("CM-C7", "CM-P2", "CM-P4")
def test_inline_commits_are_published_together_a_moment_later(connect: Connect) -> None:
    writer, store, catalog = connect(publish_delay=timedelta(seconds=1000))
    table = made(writer, "inline")
    for number in range(5):
        append(table, f"{number}.parquet")
    assert [commit.version for commit in catalog.coordinator.get_ratified_commits(table.table_id).commits] == [
        1,
        2,
        3,
        4,
        5,
    ]
    store.calls.clear()
    writer.wait_for_background()
    assert catalog.coordinator.get_ratified_commits(table.table_id).commits == ()
    assert catalog.calls["set_published_version"] == 1
    assert doctor(table).findings == ()


@pytest.mark.requirements("CM-P4", "CM-P5")
def test_what_is_put_off_is_bounded_and_left_to_the_next_writer_of_a_client_that_died(connect: Connect) -> None:
    first, _, catalog = connect(publish_delay=timedelta(seconds=1000), max_unpublished_commits=4)
    table = made(first, "inline")
    for number in range(10):
        append(table, f"{number}.parquet")
        known = catalog.coordinator.get_ratified_commits(table.table_id)
        assert known.latest_version - known.published_version <= 4
    second, _, _ = connect(publish_delay=timedelta(0))
    append(second.table(NAME), "after.parquet")
    assert catalog.coordinator.get_ratified_commits(table.table_id).commits == ()


@pytest.mark.requirements("CM-M5", "CM-P3")
def test_an_operation_that_reads_the_published_version_finds_it_reported(connect: Connect) -> None:
    writer, _, _ = connect(publish_delay=timedelta(seconds=1000))
    table = made(writer)
    append(table)
    assert publish(table).published == ()
    append(table)
    assert table.ratified().published_version == 2 and table.ratified().commits == ()
    set_commit_policy(table, CommitPolicy.parse("inline"))
    append(table)
    assert publish(table).published == (3,)


@pytest.mark.requirements("CM-D8")
def test_a_drop_right_after_a_commit_ends_quietly(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    writer, _, catalog = connect(publish_delay=timedelta(seconds=1000))
    name = "main.test.dropped"  # No other test's, whose clients may still log.
    table = made(writer, name=name)
    append(table)
    catalog.registry.drop_table(TableIdentifier.parse(name))
    writer.wait_for_background()
    said = [record for record in caplog.records if record.levelname == "WARNING" and name in record.getMessage()]
    assert not [record for record in said if "ubli" in record.getMessage()]


# For foreign clients


@pytest.mark.requirements("CM-C9")
def test_size_and_time_of_a_staged_commit_are_those_of_its_file(connect: Connect, clock: Clock) -> None:
    """Clients read a file by the size that the catalog returns."""
    writer, store, catalog = connect(publish_delay=timedelta(seconds=1000))
    table = made(writer)
    append(table)
    set_commit_policy(table, CommitPolicy.parse("inline"))
    append(table)
    shown = present_commits(table)
    for commit in shown.commits:
        status: ObjectStatus = store.stat(f"{table.location}/_delta_log/_staged_commits/{commit.file_name}")
        assert (commit.file_size, commit.file_modification_time) == (status.size, status.modification_time)
    assert [commit.version for commit in shown.commits] == [2]
    (record,) = catalog.coordinator.commit_records(table.table_id, start=1, end=1)
    status = store.stat(f"{table.location}/_delta_log/_staged_commits/{record.file_name}")
    assert (record.file_size, record.file_modification_time) == (status.size, status.modification_time)
