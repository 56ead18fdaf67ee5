"""Tables of other writers by their location: latest version, time travel, commit times, history."""

import json
from collections.abc import Iterator
from datetime import UTC

import pytest

from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    CmDeltaError,
    CorruptLogError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.protocol.log import last_checkpoint, log_files
from cm_delta_dagster.protocol.log.last_checkpoint import LastCheckpoint
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.store import ObjectStatus
from cm_delta_dagster.storage.stores import Stores
from tests.support.foreign_log import ForeignLog, add, contents, info, lines, metadata, protocol, remove

_HOUR = 3_600_000


def _hint(log: ForeignLog, version: int) -> None:
    log.write("_last_checkpoint", last_checkpoint.encode(LastCheckpoint(version=version, size=1)))


@pytest.fixture
def log() -> ForeignLog:
    """Versions 0 to 6, an hour apart; version n has n files."""
    log = ForeignLog()
    log.create("deletionVectors")
    for version in range(1, 7):
        log.now += _HOUR
        log.commit(version, info(), add(f"f{version}"))
    return log


@pytest.fixture
def times(log: ForeignLog) -> list[int]:
    return [
        status.modification_time
        for status in log.store.list_from(log.directory)
        if isinstance(log_files.parse_log_file(status.name), log_files.CommitFile)
    ]


@pytest.mark.requirements("LOG-1", "TT-1")
def test_every_version_is_read_as_it_was(log: ForeignLog) -> None:
    assert [log.table.snapshot(version=version).num_files for version in range(7)] == list(range(7))
    assert log.table.snapshot().version == 6
    assert (log.table.commit_log().earliest_readable, log.table.commit_log().latest) == (0, 6)


@pytest.mark.requirements("TT-3")
def test_a_version_or_time_that_is_not_there_is_refused(log: ForeignLog, times: list[int]) -> None:
    """The message has the versions and times that there are."""
    table = log.table
    with pytest.raises(VersionNotFoundError, match="latest version is 6"):
        table.snapshot(version=7)
    with pytest.raises(VersionNotFoundError, match="-1"):
        table.snapshot(version=-1)
    with pytest.raises(VersionNotFoundError, match=f"oldest readable version 0 is of {utc_text(times[0])}"):
        table.snapshot(timestamp_ms=times[0] - 1)
    with pytest.raises(VersionNotFoundError, match=f"latest version 6 is of {utc_text(times[6])}"):
        table.snapshot(timestamp_ms=times[6] + 1)
    with pytest.raises(InvalidArgumentError):
        table.snapshot(version=1, timestamp_ms=times[1])
    with pytest.raises(TableNotFoundError, match="elsewhere"):
        ForeignLog("elsewhere").table.snapshot()


@pytest.mark.requirements("TT-2")
def test_the_version_of_a_time_is_the_newest_not_after_it(log: ForeignLog, times: list[int]) -> None:
    table = log.table
    for version, time in enumerate(times):
        assert table.snapshot(timestamp_ms=time).version == version
        assert table.version_at_or_before(time) == table.version_at_or_after(time) == version
    assert table.version_at_or_before(times[2] + 1) == 2
    assert table.version_at_or_after(times[2] + 1) == 3
    assert table.version_at_or_after(0) == 0
    with pytest.raises(VersionNotFoundError, match=f"at or after {utc_text(times[6] + 1)}"):
        table.version_at_or_after(times[6] + 1)


@pytest.mark.requirements("TT-7")
def test_file_times_that_run_backwards_are_made_to_grow(log: ForeignLog) -> None:
    """As delta-spark adjusts them, the predecessor's time and one millisecond."""
    start = log.now
    for number, time in enumerate([start + 10, start + 4, start + 10, start + 13], start=7):
        log.now = time
        log.commit(number, info(), add(f"f{number}"))
    table = log.table
    found = {commit.version: commit.timestamp_ms for commit in table.commits(6, 10)}
    assert found == {6: start, 7: start + 10, 8: start + 11, 9: start + 12, 10: start + 13}
    assert [table.version_at_or_before(time) for time in (start + 5, start + 11, start + 12)] == [6, 8, 9]


@pytest.mark.requirements("TT-5", "TT-3", "CLEAN-10")
def test_a_cleaned_log_is_readable_from_its_oldest_checkpoint_on(log: ForeignLog, times: list[int]) -> None:
    """Commits below the checkpoint that are still there do not make a version."""
    log.classic_checkpoint(3)
    for version in (0, 1):
        log.delete(log_files.commit_file_name(version))
    table = log.table
    assert (table.commit_log().earliest_readable, table.commit_log().latest) == (3, 6)
    assert [table.snapshot(version=version).num_files for version in (3, 4, 6)] == [3, 4, 6]
    with pytest.raises(VersionNotFoundError, match="oldest readable version is 3"):
        table.snapshot(version=2)
    with pytest.raises(VersionNotFoundError, match=f"version 3 is of {utc_text(times[3])}"):
        table.snapshot(timestamp_ms=times[2])
    assert table.snapshot(timestamp_ms=times[3]).version == 3
    # The commits themselves reach further back than the versions that can be rebuilt.
    assert [commit.version for commit in table.commits(2, 4)] == [2, 3, 4]
    with pytest.raises(VersionNotFoundError, match="oldest commit"):
        list(table.commits(1, 4))


@pytest.mark.requirements("CKPT-14", "TT-5")
def test_a_log_of_which_only_a_checkpoint_is_left_is_a_table(log: ForeignLog) -> None:
    """The checkpoint proves its version."""
    log.classic_checkpoint(6)
    for version in range(7):
        log.delete(log_files.commit_file_name(version))
    table = log.table
    assert (table.snapshot().version, table.snapshot().num_files) == (6, 6)
    assert (table.commit_log().earliest_readable, table.commit_log().latest) == (6, 6)
    assert history(table) == ()


@pytest.mark.requirements("LOG-4", "TT-5")
def test_a_gap_in_the_commits_is_never_an_older_version(log: ForeignLog) -> None:
    """Versions before and after the gap are read where a checkpoint allows it."""
    log.delete(log_files.commit_file_name(4))
    with pytest.raises(CorruptLogError, match="commits of 4 are missing"):
        log.table.snapshot()
    with pytest.raises(CorruptLogError):
        log.table.commit_log()
    with pytest.raises(CorruptLogError, match="commits of 4 are missing"):
        log.table.snapshot(version=5)
    assert log.table.snapshot(version=3).num_files == 3


@pytest.mark.requirements("LASTCP-3", "LASTCP-4")
@pytest.mark.parametrize("hinted", [0, 2, 3, 5, 6, 7, 2**62, 10**19])
def test_no_hint_changes_the_latest_version(log: ForeignLog, hinted: int) -> None:
    """Pointing at a checkpoint, at none, or beyond the end."""
    log.classic_checkpoint(3)
    _hint(log, hinted)
    assert (log.table.snapshot().version, log.table.snapshot().num_files) == (6, 6)
    assert log.table.snapshot(version=1).num_files == 1


# --- in-commit timestamps -----------------------------------------------------------------------------------------------


@pytest.fixture
def enabled_later() -> ForeignLog:
    """File times 0, 1000, 2000 and so on; from version 3 on in-commit timestamps that begin at 5000."""
    log = ForeignLog()
    log.now = 0
    log.create()
    for version in range(1, 6):
        log.now = version * 1000
        own = {} if version < 3 else {"inCommitTimestamp": 5000 + 10 * version}
        change = (
            protocol("inCommitTimestamp"),
            metadata(
                delta__enableInCommitTimestamps="true",
                delta__inCommitTimestampEnablementVersion="3",
                delta__inCommitTimestampEnablementTimestamp="5030",
            ),
        )
        log.commit(version, info(**own), add(f"f{version}"), *(change if version == 3 else ()))
    return log


@pytest.mark.requirements("ICT-9", "ICT-10", "ICT-11", "HIST-3")
def test_timestamps_enabled_midway_count_from_that_version_on(enabled_later: ForeignLog) -> None:
    """Before it the file times count, between the two the last version before it."""
    table = enabled_later.table
    expected = [0, 1000, 2000, 5030, 5040, 5050]
    assert [commit.timestamp_ms for commit in table.commits(0, 5)] == expected
    assert [entry.timestamp_ms for entry in history(table)] == expected[::-1]
    assert [table.snapshot(version=version).timestamp_ms for version in range(6)] == expected
    wanted = {0: 0, 999: 0, 2000: 2, 3000: 2, 5029: 2, 5030: 3, 5045: 4, 5050: 5}
    assert {time: table.version_at_or_before(time) for time in wanted} == wanted
    after = {0: 0, 1: 1, 2000: 2, 2001: 3, 5030: 3, 5031: 4}
    assert {time: table.version_at_or_after(time) for time in after} == after
    with pytest.raises(
        VersionNotFoundError,
        match=r"as of 1970-01-01T00:00:05\.051Z: .* is of 1970-01-01T00:00:05\.050Z\.",
    ):
        table.snapshot(timestamp_ms=5051)


@pytest.mark.requirements("ICT-9")
def test_touching_commit_files_does_not_move_versions_with_own_timestamps(enabled_later: ForeignLog) -> None:
    enabled_later.now = 9_999_999
    for version in (3, 4, 5):
        name = log_files.commit_file_name(version)
        enabled_later.write(name, enabled_later.store.read(f"{enabled_later.directory}/{name}"))
    assert enabled_later.table.version_at_or_before(5040) == 4


@pytest.mark.requirements("ICT-12")
def test_a_commit_without_the_timestamp_it_must_have_is_corrupt(enabled_later: ForeignLog) -> None:
    """The file's time is no substitute."""
    enabled_later.commit(6, info(), add("f6"))
    with pytest.raises(CorruptLogError, match="Version 6"):
        enabled_later.table.snapshot()
    enabled_later.commit(6, info(inCommitTimestamp=5060), add("f6"))
    enabled_later.commit(4, info(), add("f4"))
    with pytest.raises(CorruptLogError, match="Version 4"):
        history(enabled_later.table)


@pytest.mark.requirements("ICT-1", "ICT-13")
def test_timestamps_that_were_disabled_again_do_not_count(enabled_later: ForeignLog) -> None:
    """Neither does the property without the feature."""
    enabled_later.now = 6000
    enabled_later.commit(6, info(), metadata(delta__enableInCommitTimestamps="false"))
    assert [commit.timestamp_ms for commit in enabled_later.table.commits(3, 6)] == [3000, 4000, 5000, 6000]
    enabled_later.now = 7000
    enabled_later.commit(7, info(), protocol(reader=1, writer=2), metadata(delta__enableInCommitTimestamps="true"))
    assert enabled_later.table.snapshot().timestamp_ms == 7000


@pytest.fixture
def off_and_on_again() -> ForeignLog:
    """File times 0, 1000, 2000 and so on; in-commit timestamps at versions 0, 1, and from 4 on, where they begin at 5040."""
    log = ForeignLog()
    on = {"delta__enableInCommitTimestamps": "true"}
    since = {
        "delta__inCommitTimestampEnablementVersion": "4",
        "delta__inCommitTimestampEnablementTimestamp": "5040",
    }
    changes = {
        0: (protocol("inCommitTimestamp"), metadata(**on)),
        2: (metadata(delta__enableInCommitTimestamps="false"),),
        4: (metadata(**on, **since),),
    }
    for version in range(6):
        log.now = version * 1000
        own = {} if version in (2, 3) else {"inCommitTimestamp": 5000 + 10 * version}
        log.commit(version, info(**own), *changes.get(version, ()), add(f"f{version}"))
    return log


@pytest.mark.requirements("ICT-9", "ICT-10", "ICT-11", "HIST-3")
def test_one_rule_gives_the_times_of_timestamps_switched_off_and_on_again(off_and_on_again: ForeignLog) -> None:
    """The latest version says where they begin; before that all commits have their file's time."""
    table = off_and_on_again.table
    expected = [0, 1000, 2000, 3000, 5040, 5050]
    assert [table.snapshot(version=version).timestamp_ms for version in range(6)] == expected
    assert [entry.timestamp_ms for entry in history(table)] == expected[::-1]
    assert [commit.timestamp_ms for commit in table.commits(0, 5)] == expected
    assert [table.snapshot(timestamp_ms=time).version for time in (0, 1500, 5039, 5040, 5050)] == [0, 1, 3, 4, 5]


@pytest.mark.requirements("ICT-9")
def test_a_copy_of_the_table_keeps_the_times_that_are_in_the_log(off_and_on_again: ForeignLog) -> None:
    """The copies are of one moment, and the times of files differ by one millisecond each."""
    log = off_and_on_again
    log.now = 4000
    for name in log.names():
        log.write(name, log.store.read(f"{log.directory}/{name}"))
    expected = [4000, 4001, 4002, 4003, 5040, 5050]
    assert [log.table.snapshot(version=version).timestamp_ms for version in range(6)] == expected
    assert [entry.timestamp_ms for entry in history(log.table)] == expected[::-1]
    assert [commit.timestamp_ms for commit in log.table.commits(0, 5)] == expected


@pytest.mark.requirements("ICT-1", "ICT-13")
def test_an_old_version_has_the_time_of_its_file_after_timestamps_were_disabled(enabled_later: ForeignLog) -> None:
    enabled_later.now = 6000
    enabled_later.commit(6, info(), metadata(delta__enableInCommitTimestamps="false"))
    expected = [0, 1000, 2000, 3000, 4000, 5000, 6000]
    assert [enabled_later.table.snapshot(version=version).timestamp_ms for version in range(7)] == expected


@pytest.mark.requirements("PROT-4")
def test_older_versions_stay_open_after_one_that_this_client_cannot_read(enabled_later: ForeignLog) -> None:
    """By number and by time, and the history; the latest version itself is refused."""
    change = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"],
                           "writerFeatures": ["x", "inCommitTimestamp"]}}  # fmt: skip
    enabled_later.now = 6000
    enabled_later.commit(6, info(inCommitTimestamp=6000), change)
    table = enabled_later.table
    with pytest.raises(UnsupportedFeatureError, match="x"):
        table.snapshot()
    assert table.snapshot(version=5).num_files == 5
    assert table.snapshot(timestamp_ms=5045).version == 4
    assert [entry.timestamp_ms for entry in history(table)] == [6000, 5050, 5040, 5030, 2000, 1000, 0]
    table.check_readable_by_path()


@pytest.mark.requirements("META-1")
def test_metadata_that_was_replaced_may_lack_its_schema(log: ForeignLog) -> None:
    """What a version does not need does not matter; the version that needs it is refused."""
    old = metadata()
    del old["metaData"]["schemaString"]
    log.commit(7, info(), old)
    log.commit(8, info(), metadata())
    assert log.table.snapshot().num_files == log.table.snapshot(version=6).num_files
    with pytest.raises(CorruptLogError, match=r"at version 7 cannot be read because of metaData\.schemaString"):
        log.table.snapshot(version=7)
    log.classic_checkpoint(8)
    log.delete(log_files.commit_file_name(0))
    assert log.table.snapshot().version == 8


@pytest.mark.requirements("ICT-2")
def test_both_spellings_of_the_timestamp_feature_are_one(enabled_later: ForeignLog) -> None:
    """Ruling X1."""
    enabled_later.commit(6, info(inCommitTimestamp=5060), protocol("inCommitTimestamps"))
    assert enabled_later.table.snapshot().timestamp_ms == 5060


@pytest.mark.requirements("CRC-9", "REC-11")
def test_the_time_of_a_version_whose_commit_is_gone_comes_from_its_checksum(enabled_later: ForeignLog) -> None:
    """Checkpoints hold no commitInfo."""
    log = enabled_later
    log.classic_checkpoint(5)
    state = log.state(5)
    fields = {"tableSizeBytes": 50, "numFiles": 5, "numMetadata": 1, "numProtocol": 1, "inCommitTimestampOpt": 5050}
    actions = {
        "protocol": protocol("inCommitTimestamp")["protocol"],
        "metadata": metadata(**{key.replace(".", "__"): value for key, value in state.metadata.configuration.items()})[
            "metaData"
        ],
    }
    log.write(log_files.checksum_file_name(5), json.dumps(fields | actions).encode())
    for version in range(6):
        log.delete(log_files.commit_file_name(version))
    assert log.table.snapshot().timestamp_ms == 5050


# --- history and commits --------------------------------------------------------------------------------------------------


@pytest.mark.requirements("HIST-1", "HIST-2", "HIST-3", "CINFO-1")
def test_the_history_of_a_foreign_table_finds_commit_info_anywhere(log: ForeignLog, times: list[int]) -> None:
    """In the last line, absent, or full of unknown things."""
    log.commit(7, add("f7"), info(operation="LATE", operationMetrics={"numFiles": "1"}, novelty=[{"a": 1}]))
    log.commit(8, add("f8"))
    entries = history(log.table)
    assert [entry.version for entry in entries] == list(range(8, -1, -1))
    assert [entry.timestamp_ms for entry in entries[2:]] == times[::-1]
    late = entries[1].commit_info
    assert late is not None and late.operation == "LATE" and late.operation_metrics == {"numFiles": "1"}
    assert late.user_id is None and late.extra == {"novelty": [{"a": 1}]}
    assert entries[0].commit_info is None


@pytest.mark.requirements("LC-8", "CM-R9")
def test_commits_come_once_each_in_order_and_never_from_compactions(log: ForeignLog) -> None:
    log.write(log_files.compaction_file_name(1, 4), lines(add("wrong")))
    log.commit(4, info(), remove("f1"), add("f4"))
    seen = list(log.table.commits(0, 6))
    assert [commit.version for commit in seen] == list(range(7))
    assert [commit.actions.adds.num_rows for commit in seen] == [0, 1, 1, 1, 1, 1, 1]
    with pytest.raises(VersionNotFoundError, match="0 to 6"):
        log.table.commits(3, 7)
    with pytest.raises(VersionNotFoundError):
        log.table.commits(-1, 2)


# --- who may be read ------------------------------------------------------------------------------------------------------


@pytest.mark.requirements("CM-R8", "CM-1")
def test_old_versions_of_a_table_that_a_catalog_manages_now_are_refused_by_path(log: ForeignLog) -> None:
    features = ("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck")
    log.commit(7, info(inCommitTimestamp=1), protocol(*features), metadata(delta__enableInCommitTimestamps="true"))
    for version in (None, 7, 2):
        with pytest.raises(CatalogManagedAccessError, match="catalog"):
            log.table.snapshot(version=version)


@pytest.mark.requirements("PROT-4", "UP-AMT-1", "UP-NANO-1")
@pytest.mark.parametrize("name", ["catalogOwned", "catalogOwned-preview", "adaptiveMetadata", "timestampNanos", "x"])
def test_an_unknown_reader_feature_is_refused_by_name(log: ForeignLog, name: str) -> None:
    """The names before catalogManaged are other features. Older versions stay readable (TT-4)."""
    fields = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [name], "writerFeatures": [name]}
    log.commit(7, info(), {"protocol": fields})
    with pytest.raises(UnsupportedFeatureError, match=rf"foreign/t at version 7 .*{name}"):
        log.table.snapshot()
    assert log.table.snapshot(version=6).num_files == 6


@pytest.mark.requirements("PROT-5", "UP-COLL-1", "UP-CPP-1")
def test_unknown_writer_features_do_not_stop_a_reader(log: ForeignLog) -> None:
    log.commit(7, info(), protocol("collations", "checkpointProtection", "x"))
    assert log.table.snapshot().num_files == 6


# --- lost parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirements("LOG-4", "CRC-11")
def test_a_commit_that_is_cut_off_is_refused_or_reported(log: ForeignLog, caplog: pytest.LogCaptureFixture) -> None:
    """Cut inside of a line it is not JSON; at the end of a line the checksum of its transaction shows it."""
    data = lines(info(txnId="t7"), add("f7", size=12), remove("f1"), add("f8", size=11, deletionVector=_VECTOR))
    name = log_files.commit_file_name(7)
    log.write(name, data)
    whole = log.table.snapshot()
    fields = {"tableSizeBytes": whole.size_bytes, "numFiles": whole.num_files, "numMetadata": 1, "numProtocol": 1}
    actions = {"protocol": protocol("deletionVectors")["protocol"], "metadata": metadata()["metaData"], "txnId": "t7"}
    log.write(log_files.checksum_file_name(7), json.dumps(fields | actions).encode())
    assert log.table.snapshot().num_files == 7
    for length in range(1, len(data) - 1):  # Without the last newline it is whole.
        log.write(name, data[:length])
        if data[length - 1 : length] != b"\n" and data[length : length + 1] != b"\n":
            with pytest.raises(CorruptLogError, match=r"foreign/t.*7"):
                log.table.snapshot()
            continue
        caplog.clear()
        assert log.table.snapshot().num_files < 8
        assert "Version 7 of memory://foreign/t does not agree with its checksum" in caplog.text


@pytest.mark.requirements("CRC-9", "CRC-11")
def test_the_log_decides_where_a_checksum_disagrees(log: ForeignLog, caplog: pytest.LogCaptureFixture) -> None:
    """Counts and even a protocol that says that a catalog manages the table."""
    log.commit(7, info(txnId="t7"), add("f7"))
    whole = log.table.snapshot()
    fields = {"tableSizeBytes": 1, "numFiles": 99, "numMetadata": 1, "numProtocol": 1, "txnId": "t7"}
    managed = protocol("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck")
    actions = {"protocol": managed["protocol"], "metadata": metadata()["metaData"]}
    log.write(log_files.checksum_file_name(7), json.dumps(fields | actions).encode())
    assert contents(log.table.snapshot()) == contents(whole)
    assert "numFiles is 99 in the checksum and 7 in the log" in caplog.text
    assert log.table.snapshot(version=3).num_files == 3


_VECTOR = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}


# --- listings -------------------------------------------------------------------------------------------------------------


class _CountingStore(MemoryStore):
    """A memory store that notes what is listed, lists in any order, and may hide names from listings."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[tuple[str, str]] = []
        self.read_names: list[str] = []
        self.hidden: frozenset[str] = frozenset()

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        self.listed.append((directory, start))
        found = super().list_from(directory, start=start)
        return [status for status in reversed(found) if status.name not in self.hidden]

    def list_recursive(self, directory: str) -> Iterator[ObjectStatus]:
        return super().list_recursive(directory)

    def read(self, location: str) -> bytes:
        self.read_names.append(location.rpartition("/")[2])
        return super().read(location)

    def times_read(self) -> list[int]:
        """How often each commit was read as a whole."""
        return [self.read_names.count(log_files.commit_file_name(version)) for version in range(7)]


@pytest.fixture
def counting(log: ForeignLog) -> _CountingStore:
    log.classic_checkpoint(3)
    _hint(log, 3)
    store = _CountingStore()
    for status in log.store.list_recursive(log.location):
        store.write(status.location, log.store.read(status.location))
    return store


@pytest.mark.requirements("LIST-1", "LIST-4", "LASTCP-3", "LOG-18")
def test_only_the_log_after_the_hinted_checkpoint_is_listed(log: ForeignLog, counting: _CountingStore) -> None:
    """And in whatever order names come (LIST-3)."""
    counting.write(f"{log.location}/stray.parquet", b"no part of the table")
    snapshot = open_path_table(Stores({"memory": counting}), log.location).snapshot()
    assert snapshot.num_files == 6
    assert set(counting.listed) == {(log.directory, f"{3:020d}")}


@pytest.mark.requirements("LIST-5")
def test_a_commit_that_a_listing_hides_is_read_all_the_same(log: ForeignLog, counting: _CountingStore) -> None:
    """It is asked for by its name before a gap is reported."""
    counting.hidden = frozenset({log_files.commit_file_name(5)})
    table = open_path_table(Stores({"memory": counting}), log.location)
    assert table.snapshot().num_files == 6
    assert table.snapshot(version=5).num_files == 5


@pytest.mark.requirements("CACHE-1")
def test_a_log_that_did_not_change_is_loaded_once(log: ForeignLog, counting: _CountingStore) -> None:
    """To open the table, for its latest version and for its commits; each call lists the log."""
    counting.delete(f"{log.directory}/_last_checkpoint")
    counting.delete(f"{log.directory}/{log_files.classic_checkpoint_file_name(3)}")
    table = open_path_table(Stores({"memory": counting}), log.location)
    table.check_readable_by_path()
    assert table.snapshot().num_files == table.in_time_zone(UTC).snapshot().num_files == 6
    log_of_table = table.commit_log()
    assert (log_of_table.earliest_readable, log_of_table.latest) == (0, 6)
    assert counting.times_read() == [1] * 7
    assert [commit.version for commit in table.commits(0, 6)] == list(range(7))
    assert counting.times_read() == [2] * 7
    assert counting.listed == [(log.directory, "")] * 5

    counting.write(f"{log.directory}/{log_files.commit_file_name(7)}", lines(info(), add("f7")))
    assert (table.snapshot().version, table.snapshot().num_files) == (7, 7)


@pytest.mark.requirements("HIST-1")
def test_a_history_reads_the_newest_commits_only(log: ForeignLog, counting: _CountingStore) -> None:
    """Of a table without in-commit timestamps, as its newest commit shows. A gap is found all the same."""
    table = open_path_table(Stores({"memory": counting}), log.location)
    assert [entry.version for entry in history(table, limit=2)] == [6, 5]
    assert counting.times_read() == [0, 0, 0, 0, 0, 1, 2]
    counting.delete(f"{log.directory}/{log_files.commit_file_name(4)}")
    with pytest.raises(CorruptLogError, match="commits of 4 are missing"):
        history(table, limit=2)


@pytest.mark.requirements("CACHE-1")
def test_another_table_with_an_equal_listing_is_not_the_one_before(log: ForeignLog) -> None:
    """A store may round times to seconds, in which a table can be deleted and created again."""
    table = log.table
    assert "f6" in table.snapshot().files["path"].to_pylist()
    log.commit(6, info(), add("g6"))
    assert log.table.snapshot().files["path"].to_pylist() == table.snapshot().files["path"].to_pylist()
    assert "g6" in table.snapshot().files["path"].to_pylist()


@pytest.mark.requirements("OCC-1")
def test_a_snapshot_stays_what_it_was_when_the_table_goes_on(log: ForeignLog) -> None:
    """From the hinted checkpoint on, the state of one version, files left out by statistics, whatever follows."""
    for version, low in ((7, 0), (8, 100)):
        bounds = {"numRecords": 9, "minValues": {"id": low}, "maxValues": {"id": low + 9}, "nullCount": {"id": 0}}
        log.commit(version, info(), add(f"f{version}", stats=json.dumps(bounds)))
    log.classic_checkpoint(7)
    _hint(log, 7)
    snapshot = log.table.snapshot()
    wanted = parse_predicate("id >= 50", snapshot.schema)
    before = snapshot.matching_files(wanted)["path"].to_pylist()
    assert "f7" not in before and "f8" in before and len(before) == 7

    log.commit(9, info(), remove("f8"), add("f9"))
    assert (snapshot.version, snapshot.matching_files(wanted)["path"].to_pylist()) == (8, before)
    assert "f8" not in log.table.snapshot().files["path"].to_pylist()


@pytest.mark.requirements("CACHE-1")
def test_a_table_that_was_read_before_answers_as_one_that_was_not(log: ForeignLog) -> None:
    """Whether commits and checkpoints were read before or not changes nothing."""
    log.classic_checkpoint(3)
    warm = log.table
    for version in (2, 5, 4, 6, 6):
        assert contents(warm.snapshot(version=version)) == contents(log.table.snapshot(version=version))
    log.commit(7, info(), remove("f1"), add("f7"))
    assert contents(warm.snapshot()) == contents(log.table.snapshot())


@pytest.mark.requirements("COLMAP-1")
@pytest.mark.parametrize(("mode", "expected"), [(None, "none"), ("none", "none"), ("name", "name"), ("id", "id")])
def test_the_mode_of_column_mapping_is_one_of_three(mode: str | None, expected: str) -> None:
    log = ForeignLog()
    configuration = {} if mode is None else {"delta__columnMapping__mode": mode}
    log.commit(0, protocol(reader=2, writer=5), metadata(**configuration))
    assert log.table.snapshot().column_mapping == expected


@pytest.mark.requirements("COLMAP-1")
@pytest.mark.parametrize("mode", ["", "Names", "physical"])
def test_another_mode_of_column_mapping_is_an_error(mode: str) -> None:
    """Columns looked for in the wrong way would be null."""
    log = ForeignLog()
    log.commit(0, protocol(reader=2, writer=5), metadata(delta__columnMapping__mode=mode))
    with pytest.raises(CmDeltaError, match=r"delta\.columnMapping\.mode"):
        _ = log.table.snapshot().column_mapping


@pytest.mark.requirements("VPC-1")
@pytest.mark.parametrize("features", [("vacuumProtocolCheck",), ("vacuumProtocolCheck", "deletionVectors")])
def test_the_vacuum_protocol_check_asks_nothing_of_a_reader(features: tuple[str, ...]) -> None:
    log = ForeignLog()
    log.create(*features)
    log.commit(1, info(), add("f1"))
    assert log.table.snapshot().num_files == 1
