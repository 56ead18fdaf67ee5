"""Reading a catalog-managed table against given answers of a catalog: exactly its latest version, or an error."""

from typing import Any

import pytest

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CorruptLogError,
    NotCatalogManagedError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.protocol.log import last_checkpoint, log_files
from cm_delta_dagster.protocol.log.last_checkpoint import LastCheckpoint
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.store import ObjectStatus
from cm_delta_dagster.storage.stores import Stores
from tests.golden.catalog import IDENTIFIER, RecordedCatalog
from tests.support.foreign_log import Action, ForeignLog, add, contents, info, lines, metadata, protocol

_FEATURES = ("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck", "v2Checkpoint")
_UUIDS = ("016ae953-37a9-438e-8683-9a9a4a79a395", "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032")


def _commit(version: int, *more: Action) -> bytes:
    return lines(info(inCommitTimestamp=1000 + 10 * version), add(f"f{version}"), *more)


class Managed:
    """A table of versions 0..published in ``_delta_log`` and whatever is staged; ``answer`` is what the catalog says."""

    def __init__(self, published: int) -> None:
        self.log = ForeignLog("managed")
        zero = [info(inCommitTimestamp=1000), protocol(*_FEATURES), metadata(delta__enableInCommitTimestamps="true")]
        self.log.commit(0, *zero)
        for version in range(1, published + 1):
            self.log.write(log_files.commit_file_name(version), _commit(version))
        self.answer: list[dict[str, Any]] = []

    def stage(self, version: int, uuid: str = _UUIDS[0], data: bytes | None = None, *, ratify: bool = True) -> str:
        name = log_files.staged_commit_file_name(version, uuid)
        content = _commit(version) if data is None else data
        self.log.write(f"_staged_commits/{name}", content)
        if ratify:
            self.answer.append({"version": version, "file_name": name, "file_size": len(content)})
        return name

    def inline(self, version: int, data: bytes | None = None) -> None:
        content = _commit(version) if data is None else data
        self.answer.append({"version": version, "file_name": None, "content": content})

    def table(self, latest: int | None, store: MemoryStore | None = None) -> Table:
        catalog: Any = RecordedCatalog(self.log.location, self.answer, latest)
        return DeltaClient(catalog, stores=Stores({"memory": store or self.log.store})).table(IDENTIFIER)


@pytest.mark.requirements("CM-R6")
def test_the_worked_case_of_the_protocol() -> None:
    """The checkpoint, a compaction, published, staged and inline commits; nothing else is opened."""
    managed = Managed(7)
    managed.log.classic_checkpoint(2)
    managed.log.write(log_files.compaction_file_name(3, 5), lines(*(add(f"f{version}") for version in (3, 4, 5))))
    managed.stage(7)
    managed.stage(8)
    managed.stage(8, _UUIDS[1], b"{ was not ratified", ratify=False)
    managed.stage(10, ratify=False)
    managed.stage(10, _UUIDS[1], b"{ partial", ratify=False)
    managed.inline(9)
    for version in (0, 1, 3, 4, 5):
        managed.log.delete(log_files.commit_file_name(version))
    snapshot = managed.table(9).snapshot()
    assert (snapshot.version, snapshot.num_files, snapshot.timestamp_ms) == (9, 9, 1090)


@pytest.mark.requirements("CM-R4", "CM-8")
def test_the_catalogs_copy_of_a_commit_goes_before_the_published_one() -> None:
    """Also before a compaction over that version, and in history and change reads (CM-R9)."""
    managed = Managed(4)
    other = lines(info(inCommitTimestamp=1030, operation="CATALOG"), add("from-catalog"))
    managed.stage(3, data=other)
    managed.stage(4)
    managed.log.write(log_files.compaction_file_name(2, 4), lines(add("compacted")))
    table = managed.table(4)
    assert sorted(table.snapshot().files["path"].to_pylist()) == ["f1", "f2", "f4", "from-catalog"]
    assert next(e for e in history(table) if e.version == 3).commit_info.operation == "CATALOG"
    assert [commit.actions.adds["path"][0].as_py() for commit in table.commits(1, 4)] == [
        *("f1", "f2", "from-catalog", "f4")
    ]


@pytest.mark.requirements("CM-R5", "LASTCP-4")
def test_what_lies_above_the_catalogs_version_is_not_there() -> None:
    """Commits, checkpoints, compactions, checksums and a hint beyond it."""
    managed = Managed(9)
    managed.log.classic_checkpoint(8)
    managed.log.write("_last_checkpoint", last_checkpoint.encode(LastCheckpoint(version=8, size=10)))
    managed.log.write(log_files.compaction_file_name(4, 7), lines(add("beyond")))
    managed.log.write(log_files.checksum_file_name(7), b"{}")
    table = managed.table(5)
    assert (table.snapshot().version, table.snapshot().num_files) == (5, 5)
    assert [entry.version for entry in history(table)] == [5, 4, 3, 2, 1, 0]
    for action in (lambda: table.snapshot(version=6), lambda: list(table.commits(5, 6))):
        with pytest.raises(VersionNotFoundError):
            action()
    with pytest.raises(VersionNotFoundError):
        table.snapshot(timestamp_ms=1060)
    assert (table.commit_log().earliest_readable, table.commit_log().latest) == (0, 5)


@pytest.mark.requirements("CM-R7", "LOG-4")
@pytest.mark.parametrize("lost", [3, 4, 5])
def test_a_gap_below_the_catalogs_version_is_an_error(lost: int) -> None:
    """Never an older version in its place, wherever the gap is."""
    managed = Managed(3)
    for version in (4, 5):
        managed.stage(version)
    if lost == 3:
        managed.log.delete(log_files.commit_file_name(3))
    managed.answer = [entry for entry in managed.answer if entry["version"] != lost]
    table = managed.table(5)
    with pytest.raises(CorruptLogError, match=f"{lost}"):
        table.snapshot()
    with pytest.raises(CorruptLogError):
        list(table.commits(0, 5))
    assert table.snapshot(version=2).num_files == 2


@pytest.mark.requirements("CM-R10", "LOG-4")
def test_a_staged_file_that_is_gone_or_cut_off_is_an_error() -> None:
    """Another staged file of that version is no substitute; the message names the file."""
    managed = Managed(1)
    name = managed.stage(2)
    managed.stage(2, _UUIDS[1], ratify=False)
    data = managed.log.store.read(f"{managed.log.directory}/_staged_commits/{name}")
    for length in range(len(data)):
        managed.log.write(f"_staged_commits/{name}", data[:length])
        with pytest.raises(CorruptLogError, match=name):
            managed.table(2).snapshot()
    managed.log.delete(f"_staged_commits/{name}")
    with pytest.raises(CorruptLogError, match=name):
        managed.table(2).snapshot()


@pytest.mark.requirements("CM-R10")
def test_a_commit_published_since_the_answer_is_found() -> None:
    """The catalog is asked once more; here its second answer has forgotten the commit."""
    managed = Managed(1)
    name = managed.stage(2)
    catalog: Any = _Forgetful(managed.log.location, managed.answer, 2)
    table = DeltaClient(catalog, stores=Stores({"memory": managed.log.store})).table(IDENTIFIER)
    managed.log.delete(f"_staged_commits/{name}")
    managed.log.write(log_files.commit_file_name(2), _commit(2))
    assert table.snapshot().num_files == 2
    catalog.answers = 2
    assert [commit.version for commit in table.commits(0, 2)] == [0, 1, 2]


class _Forgetful(RecordedCatalog):
    """Gives the recorded commits in a number of answers, and then none of them."""

    answers = 2

    def get_ratified_commits(self, table_id: str, **bounds: Any) -> Any:
        self.answers -= 1
        if self.answers < 0:
            self._commits = ()
        return super().get_ratified_commits(table_id, **bounds)


@pytest.mark.requirements("CM-6", "CM-C9")
def test_inline_commits_take_part_in_everything() -> None:
    """Snapshot, time travel, history and change reads."""
    managed = Managed(1)
    managed.inline(2)
    managed.inline(3)
    table = managed.table(3)
    assert (table.snapshot().num_files, table.snapshot().timestamp_ms) == (3, 1030)
    assert table.snapshot(timestamp_ms=1025).version == 2
    assert [commit.timestamp_ms for commit in table.commits(0, 3)] == [1000, 1010, 1020, 1030]
    assert [entry.timestamp_ms for entry in history(table)] == [1030, 1020, 1010, 1000]


@pytest.mark.requirements("CM-R10", "CM-1")
def test_a_table_that_its_log_does_not_call_catalog_managed_is_refused() -> None:
    managed = Managed(1)
    change = protocol("inCommitTimestamp")
    managed.stage(2, data=lines(info(inCommitTimestamp=1020), change))
    with pytest.raises(NotCatalogManagedError, match=r"main\.golden\.t"):
        managed.table(2).snapshot()


@pytest.mark.requirements("TT-4", "ICT-10", "ICT-11", "CM-2")
def test_versions_from_before_the_catalog_are_read_with_their_own_rules() -> None:
    """File times below the commit that handed the table over, its own times from it on."""
    managed = Managed(0)
    log = managed.log
    log.now = 100
    log.commit(0, info(), protocol(reader=1, writer=2), metadata())
    log.now = 200
    log.commit(1, info(), add("f1"))
    over = metadata(
        delta__enableInCommitTimestamps="true",
        delta__inCommitTimestampEnablementVersion="2",
        delta__inCommitTimestampEnablementTimestamp="1020",
    )
    managed.stage(2, data=lines(info(inCommitTimestamp=1020), protocol(*_FEATURES), over))
    managed.stage(3)
    table = managed.table(3)
    assert [table.snapshot(version=version).timestamp_ms for version in range(4)] == [100, 200, 1020, 1030]
    assert [commit.timestamp_ms for commit in table.commits(0, 3)] == [100, 200, 1020, 1030]
    assert [table.snapshot(timestamp_ms=time).version for time in (100, 250, 1019, 1020, 1030)] == [0, 1, 1, 2, 3]


@pytest.mark.requirements("ICT-9", "ICT-10")
def test_timestamps_of_a_time_before_the_catalog_do_not_count() -> None:
    """They were on at versions 0 and 1, off at 2, and are on again from the commit that handed the table over."""
    managed = Managed(0)
    log = managed.log
    on = {"delta__enableInCommitTimestamps": "true"}
    log.now = 100
    log.commit(0, info(inCommitTimestamp=500), protocol("inCommitTimestamp"), metadata(**on))
    log.now = 200
    log.commit(1, info(inCommitTimestamp=510), add("f1"))
    log.now = 200
    log.commit(2, info(), metadata(delta__enableInCommitTimestamps="false"))
    over = metadata(
        **on,
        delta__inCommitTimestampEnablementVersion="3",
        delta__inCommitTimestampEnablementTimestamp="1030",
    )
    managed.stage(3, data=lines(info(inCommitTimestamp=1030), protocol(*_FEATURES), over))
    table = managed.table(3)
    expected = [100, 200, 201, 1030]
    assert [table.snapshot(version=version).timestamp_ms for version in range(4)] == expected
    assert [commit.timestamp_ms for commit in table.commits(0, 3)] == expected
    assert [table.snapshot(timestamp_ms=time).version for time in (150, 200, 510, 1030)] == [0, 1, 2, 3]


@pytest.mark.requirements("PROT-4")
def test_older_versions_stay_open_after_one_that_this_client_cannot_read() -> None:
    """By number and by time; the latest version itself is refused."""
    managed = Managed(1)
    unknown = protocol(*_FEATURES, "unknown")
    unknown["protocol"]["readerFeatures"].append("unknown")
    managed.stage(2, data=lines(info(inCommitTimestamp=1020), unknown))
    table = managed.table(2)
    with pytest.raises(UnsupportedFeatureError, match="unknown"):
        table.snapshot()
    assert table.snapshot(version=1).version == 1
    assert table.snapshot(timestamp_ms=table.snapshot(version=1).timestamp_ms).version == 1
    assert [commit.timestamp_ms for commit in table.commits(1, 2)][-1] == 1020


@pytest.mark.requirements("LIST-2", "CACHE-2", "CACHE-4", "CM-R1", "CM-R2")
def test_a_cached_table_is_planned_without_a_listing() -> None:
    """One question to the catalog, and the files that it names."""
    managed = Managed(3)
    store = _NotingStore()
    for status in managed.log.store.list_recursive(managed.log.location):
        store.write(status.location, managed.log.store.read(status.location))
    catalog: Any = RecordedCatalog(managed.log.location, [], 3)
    client = DeltaClient(catalog, stores=Stores({"memory": store}))
    assert client.table(IDENTIFIER).snapshot().num_files == 3
    store.listed.clear()
    name = managed.stage(4)
    store.write(f"{managed.log.directory}/_staged_commits/{name}", _commit(4))
    again: Any = RecordedCatalog(managed.log.location, managed.answer, 4)
    client.registry = client.coordinator = again
    snapshot = client.table(IDENTIFIER).snapshot()
    assert snapshot.num_files == 4 and not store.listed
    assert contents(snapshot) == contents(managed.table(4).snapshot())


class _NotingStore(MemoryStore):
    """Notes what is listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        self.listed.append(directory)
        return super().list_from(directory, start=start)


@pytest.mark.requirements("CACHE-3")
def test_a_table_dropped_and_made_again_is_never_served_from_memory() -> None:
    """Snapshots are kept by table id."""
    old, new = Managed(3), Managed(1)
    client = DeltaClient(
        RecordedCatalog(old.log.location, [], 3),
        stores=Stores({"memory": old.log.store}),
    )
    assert client.table(IDENTIFIER).snapshot().num_files == 3
    again: Any = RecordedCatalog(new.log.location, [], 1, table_id="11111111-1111-1111-1111-111111111111")
    client.registry = client.coordinator = again
    client.stores = Stores({"memory": new.log.store})
    assert client.table(IDENTIFIER).snapshot().num_files == 1
