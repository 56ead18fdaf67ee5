"""A checkpoint on demand."""

import pytest

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from tests.support.lake import Lake, broken_storage


@pytest.mark.requirements("CKPT-1", "CKPT-6")
def test_a_checkpoint_replaces_the_commits_before_it(lake: Lake) -> None:
    table = lake.new_table()
    paths = {"a.parquet", "b c.parquet"}
    lake.append(table, "a.parquet")
    lake.append(table, "b%20c.parquet")
    result = checkpoint(table)
    assert result.version == 2
    assert result.num_actions == 5
    assert result.num_bytes == lake.memory.stat(f"{table.location}/_delta_log/{result.file_name}").size
    for version in range(2):
        lake.memory.delete(f"{table.location}/_delta_log/{version:020d}.json")
    fresh = lake.reopened().table("main.test.t")
    assert {path.replace("%20", " ") for path in fresh.snapshot().files["path"].to_pylist()} == paths


@pytest.mark.requirements("CM-M1")
def test_an_unpublished_version_is_published_first(lake: Lake) -> None:
    table = lake.new_table()
    lake.store.fails = broken_storage("write_if_absent", "_delta_log/0000")
    lake.append(table)
    lake.store.fails = lambda method, location: None
    assert checkpoint(table).version == 1
    assert "00000000000000000001.json" in lake.files(table, "_delta_log")


@pytest.mark.requirements("CM-M1")
def test_nothing_is_checkpointed_when_the_version_cannot_be_published(lake: Lake) -> None:
    table = lake.new_table()
    lake.store.fails = broken_storage("write_if_absent", "_delta_log/0000")
    lake.append(table)
    with pytest.raises(StorageError):
        checkpoint(table)
    assert not any("checkpoint" in name for name in lake.files(table, "_delta_log"))


@pytest.mark.requirements("CM-M1")
def test_an_unpublished_concurrent_commit_is_not_checkpointed(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    done: list[int] = []

    def overtake(method: str, argument: object) -> None:
        # After the publication and before the snapshot, another writer commits and cannot publish.
        if method == "get_ratified_commits" and len(done) == 1:
            done.append(1)
            lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{2:020d}.json")
            lake.append(table)
            lake.store.fails = lambda method, location: None
        elif method == "get_ratified_commits" and not done:
            done.append(0)

    lake.catalog.fails = overtake
    assert checkpoint(table).version == 1
    assert table.snapshot().version == 2
