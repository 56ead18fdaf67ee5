"""DESCRIBE HISTORY."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.history import history
from tests.support.lake import Lake, broken_storage


@pytest.mark.requirements("HIST-1", "HIST-3")
def test_history_lists_commits_newest_first(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    committed = lake.append(table)
    entries = history(table)
    assert [entry.version for entry in entries] == [2, 1, 0]
    assert entries[0].timestamp_ms == committed.in_commit_timestamp
    assert [entry.commit_info.operation for entry in entries if entry.commit_info] == ["WRITE", "WRITE", "CREATE TABLE"]


@pytest.mark.requirements("HIST-1")
def test_history_can_be_limited(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    assert [entry.version for entry in history(table, limit=1)] == [1]
    assert history(table, limit=0) == ()
    with pytest.raises(InvalidArgumentError):
        history(table, limit=-1)


@pytest.mark.requirements("HIST-3", "CM-R9")
def test_history_includes_ratified_commits_that_are_not_published(lake: Lake) -> None:
    table = lake.new_table()
    lake.store.fails = broken_storage("write_if_absent", "_delta_log/00000000000000000001.json")
    lake.append(table)
    assert [entry.version for entry in history(table)] == [1, 0]
