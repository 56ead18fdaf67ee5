"""Commits that no reader can use: what readers say, and what stays readable."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.log import log_files
from tests.support.actions import add_file
from tests.support.forced_commit import ratify, ratify_unreadable
from tests.support.foreign_log import ForeignLog, add, info
from tests.support.lake import Lake
from tests.support.unreadable_commits import BY_NAME, CASES, METADATA, Reading, UnreadableCommit, line_of

MANAGED = (
    "add.path above the table",
    "add.path no UTF-8",
    "add.path dots before an escaped slash",
    "cdc.path dots within",
    "txn.version text",
    "metaData.schema no JSON",
    "protocol.writerFeatures text",
    "commitInfo.inCommitTimestamp text",
    "line no JSON",
    "line unknown field many digits",
    "line unknown action nested deeply",
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path)
    yield found
    found.client.close()


def _named(case: UnreadableCommit, error: CorruptLogError, version: int) -> bool:
    """Whether the error names the version, and the action and the field of the case."""
    text = f"{case.action}.{case.field}" if case.action and case.field else case.action
    return error.version == version and f"ersion {version}" in str(error) and text in str(error)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_table_without_catalog_is_read_up_to_the_commit(case: UnreadableCommit) -> None:
    if case.field == "inCommitTimestamp":
        pytest.skip("only tables with in-commit timestamps need it")
    if case.action == "protocol" and case.reading is Reading.WORKS:
        pytest.skip("it makes the table one of a catalog")
    log = ForeignLog()
    log.create()
    log.commit(1, info(), add("old.parquet"))
    log.write(log_files.commit_file_name(2), case.data(txn_id="t", timestamp_ms=log.now))

    def read() -> None:
        snapshot = log.table.snapshot()
        assert snapshot.num_files >= 0 and snapshot.schema and snapshot.timestamp_ms

    if case.reading is Reading.FAILS:
        with pytest.raises(CorruptLogError) as caught:
            read()
        assert _named(case, caught.value, 2), caught.value
    else:
        read()
    assert log.table.snapshot(version=1).files["path"].to_pylist() == ["old.parquet"]
    assert [entry.version for entry in iterate_history(log.table)] == [2, 1, 0]
    assert [commit.version for commit in log.table.commits(0, 1)] == [0, 1]
    log.commit(3, info(), add("later.parquet"))
    if case.reading is Reading.FAILS and case.action not in ("metaData", "protocol"):
        with pytest.raises(CorruptLogError) as caught:
            read()
        assert _named(case, caught.value, 2), caught.value


@pytest.mark.parametrize(
    ("name", "is_large"), [*((name, False) for name in MANAGED), *((name, True) for name in MANAGED[:5])]
)
def test_a_table_of_a_catalog_is_read_up_to_the_commit(lake: Lake, name: str, is_large: bool) -> None:
    case = BY_NAME[name]
    table = lake.new_table()
    lake.append(table, "old.parquet")
    good = tuple(line_of("add", path=f'"part-{number}.parquet"') for number in range(1700)) if is_large else ()
    version = ratify_unreadable(lake, table, case, good=good)
    reader = lake.reopened().table("main.test.t")
    if case.reading is Reading.FAILS:
        for _ in range(2):
            with pytest.raises(CorruptLogError) as caught:
                reader.snapshot()
            assert _named(case, caught.value, version), caught.value
    else:
        assert reader.snapshot().num_files
    assert reader.snapshot(version=version - 1).num_files == 1
    assert reader.snapshot(timestamp_ms=lake.clock.now - 500).version == version - 1
    assert [entry.version for entry in iterate_history(reader)] == [2, 1, 0]
    assert next(iterate_history(reader)).timestamp_ms == lake.clock.now
    assert [commit.version for commit in reader.commits(0, 1)] == [0, 1]
    # A client that had loaded the version before.
    if case.reading is Reading.FAILS:
        with pytest.raises(CorruptLogError) as caught:
            table.snapshot()
        assert _named(case, caught.value, version), caught.value


def test_a_ratified_commit_whose_file_does_not_exist_leaves_the_versions_before(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    lake.clock.now += 1000
    version = ratify(lake, table, b"{}\n", txn_id=str(uuid.uuid4()), is_staged=False)
    reader = lake.reopened().table("main.test.t")
    with pytest.raises(CorruptLogError, match=f"{version:020d}") as caught:
        reader.snapshot()
    assert caught.value.version == version
    assert reader.snapshot(version=version - 1).num_files == 1
    assert [entry.version for entry in iterate_history(reader)] == [2, 1, 0]


def test_every_live_file_can_be_removed_and_added_again_where_it_can_be_read(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    lake.put(table, "b.parquet")
    names = [case.name for case in CASES if case.action == "add" and case.reading is not Reading.FAILS]
    assert len(names) > 15
    for name in names:
        version = ratify_unreadable(lake, table, BY_NAME[name])
        assert table.snapshot(version=version).num_files == 2, name
        restore(table, version=1)
        assert table.snapshot().files["path"].to_pylist() == ["old.parquet"], name
        if BY_NAME[name].field in ("stats", "modificationTime", "unknown"):
            restore(table, version=version)
            assert sorted(table.snapshot().files["path"].to_pylist()) == ["b.parquet", "old.parquet"], name
            restore(table, version=1)


def test_metadata_that_cannot_be_used_is_named_with_its_own_commit(lake: Lake) -> None:
    table = lake.new_table()
    version = ratify_unreadable(lake, table, BY_NAME["metaData.schema unknown type"])
    ratify_unreadable(lake, table, BY_NAME["line blank"])
    with pytest.raises(CorruptLogError, match=rf"metaData\.schemaString of the commit of version {version}") as caught:
        lake.reopened().table("main.test.t").snapshot()
    assert (caught.value.version, caught.value.action, caught.value.field) == (version, "metaData", "schemaString")


@pytest.mark.parametrize(
    "file",
    [
        add_file("x/../f"),
        add_file("../f"),
        add_file("a%zz"),
        add_file("/"),
        add_file("a", size=-1),
        add_file("a", stats="{"),
        add_file("a", partition_values={"day": 5}),
    ],
    ids=lambda file: file.path,
)
def test_a_client_proposes_no_invalid_action_and_stages_nothing(lake: Lake, file: AddFile) -> None:
    table = lake.new_table()
    lake.client.wait_for_background()
    before = lake.files(table)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([file])
    with pytest.raises(IllegalCommitError, match="Nothing was written"):
        transaction.commit()
    assert lake.files(table) == before
    assert table.latest_version() == 0


def test_rows_of_the_versions_before_are_read_by_arrow(tmp_path: Path) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "t" / "old.parquet")
    metadata = {**METADATA, "partitionColumns": "[]"}
    first = UnreadableCommit(name="", action="", field="", reading=Reading.WORKS)
    lines = (
        line_of("protocol", minReaderVersion="1", minWriterVersion="2", readerFeatures=None, writerFeatures=None),
        line_of("metaData", **metadata),
        line_of("add", path='"old.parquet"', partitionValues="{}", stats=None),
    )
    (log / f"{0:020d}.json").write_bytes(first.data(txn_id="a", timestamp_ms=1, good=lines))
    (log / f"{1:020d}.json").write_bytes(BY_NAME["add.path broken escape"].data(txn_id="b", timestamp_ms=2))
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        table = lake.path_table(str(tmp_path / "t"))
        with pytest.raises(CorruptLogError, match=r"ersion 1 .*add\.path"):
            table.to_arrow()
        assert table.to_arrow(version=0)["id"].to_pylist() == [1, 2]
        assert [entry.version for entry in table.history()] == [1, 0]
