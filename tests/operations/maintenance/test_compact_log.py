"""Log compaction on demand."""

import json

import pytest

from cm_delta_dagster.errors import InvalidArgumentError, UnpublishedVersionError, VersionNotFoundError
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from tests.support.lake import Lake, broken_storage


@pytest.mark.requirements("LC-1", "LC-3", "LC-4", "LC-5")
def test_a_compaction_holds_what_remains_of_its_commits_and_keeps_them(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    lake.remove(table, "a.parquet")
    result = compact_log(table, start=1, end=3)
    assert (result.start, result.end) == (1, 3)
    assert result.file_name == f"{1:020d}.{3:020d}.compacted.json"
    data = lake.memory.read(f"{table.location}/_delta_log/{result.file_name}")
    assert result.num_bytes == len(data)
    actions = [json.loads(line) for line in data.decode().splitlines()]
    assert {next(iter(action)): next(iter(action.values()))["path"] for action in actions} == {
        "add": "b.parquet",
        "remove": "a.parquet",
    }
    assert {f"{version:020d}.json" for version in range(4)} <= lake.files(table, "_delta_log")
    assert lake.reopened().table("main.test.t").snapshot().files["path"].to_pylist() == ["b.parquet"]


def test_a_second_compaction_of_a_range_returns_the_existing_file(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.append(table)
    assert compact_log(table, start=0, end=2) == compact_log(table, start=0, end=2)


@pytest.mark.requirements("LC-1")
@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 1)])
def test_a_range_of_fewer_than_two_versions_is_refused(lake: Lake, start: int, end: int) -> None:
    table = lake.new_table()
    lake.append(table)
    with pytest.raises(InvalidArgumentError):
        compact_log(table, start=start, end=end)


@pytest.mark.requirements("CM-M2")
def test_unpublished_commits_are_never_compacted(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{2:020d}.json")
    lake.append(table)
    with pytest.raises(UnpublishedVersionError, match="Version 2"):
        compact_log(table, start=0, end=2)
    compact_log(table, start=0, end=1)


def test_deleted_commits_cannot_be_compacted(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.append(table)
    lake.memory.delete(f"{table.location}/_delta_log/{0:020d}.json")
    with pytest.raises(VersionNotFoundError):
        compact_log(table, start=0, end=2)
