"""Several tables at versions of one moment, beside a writer that commits to them one after the other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import VersionNotFoundError
from cm_delta_dagster.operations.reading.consistent_snapshots import load_together
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from tests.support.lake import Lake

ROUNDS = 20


@pytest.mark.parametrize("kind", [CommitPolicyKind.STAGED, CommitPolicyKind.PUT_IF_ABSENT])
@pytest.mark.parametrize("is_other_client", [False, True])
def test_a_reader_sees_versions_that_existed_together(
    tmp_path: Path, kind: CommitPolicyKind, is_other_client: bool
) -> None:
    lake = Lake(tmp_path)
    first, second = lake.new_table("first"), lake.new_table("second")
    choose_commit_policy(lake.client, scope="main", policy=CommitPolicy(kind=kind))
    base = [first.latest_version(), second.latest_version()]
    reader = lake.reopened() if is_other_client else lake.client

    def write() -> None:
        for _ in range(ROUNDS):
            lake.append(first)
            lake.append(second)

    seen = []
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        while not writing.done():
            try:
                states = load_together(reader, (first.identifier, second.identifier))
            except VersionNotFoundError as error:
                assert kind is CommitPolicyKind.PUT_IF_ABSENT and "No common state" in str(error)
                continue
            counts = [states[table.identifier].version - at for table, at in zip((first, second), base, strict=True)]
            snapshots = [states[table.identifier].snapshot() for table in (first, second)]
            assert [snapshot.num_files for snapshot in snapshots] == counts
            seen.append(counts[0] - counts[1])
        writing.result()
    assert set(seen) <= {0, 1}
    states = load_together(reader, (first.identifier, second.identifier))
    assert [state.snapshot().num_files for state in states.values()] == [ROUNDS, ROUNDS]


def test_a_snapshot_of_an_earlier_answer_keeps_its_version(tmp_path: Path) -> None:
    """The cache of the client holds a later version, and still does afterwards."""
    lake = Lake(tmp_path)
    table = lake.new_table()
    lake.append(table)
    states = load_together(lake.client, (table.identifier, TableIdentifier("main", "test", "absent")))
    lake.append(table)
    assert table.snapshot().version == 2
    assert [state.snapshot().version for state in states.values()] == [1]
    cached = lake.client.cached_snapshot(table.table_id)
    assert cached is not None and cached.version == 2
