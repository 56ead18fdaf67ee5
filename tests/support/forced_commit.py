"""A commit that is staged and ratified without a check of the log in storage, as by a client that lacks the check."""

import uuid

from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary, Ratified
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Action, AddFile, CommitInfo
from cm_delta_dagster.protocol.log import log_files
from tests.support.lake import Lake
from tests.support.unreadable_commits import UnreadableCommit


def ratify_append(lake: Lake, table: Table, path: str, *more: Action, base_row_id: int | None = None) -> int:
    """Stage and ratify an append of 10 rows, and ``more``, as the catalog's next version; it is not published."""
    lake.clock.now += 1000
    latest = lake.catalog.coordinator.get_ratified_commits(table.table_id).latest_version
    version, txn_id = latest + 1, str(uuid.uuid4())
    info = CommitInfo(
        in_commit_timestamp=lake.clock(), timestamp=lake.clock(), txn_id=txn_id, operation="WRITE", engine_info="fork"
    )
    add = AddFile(
        path=path,
        partition_values={"day": "2026-01-01"},
        size=100,
        modification_time=lake.clock(),
        stats='{"numRecords":10}',
        base_row_id=base_row_id,
        default_row_commit_version=None if base_row_id is None else version,
    )
    lake.put(table, path)
    ratify(lake, table, commit_json.encode_commit([info, *more, add]), txn_id=txn_id)
    return version


def ratify(lake: Lake, table: Table, data: bytes, *, txn_id: str, is_staged: bool = True) -> int:
    """Ratify ``data`` as the catalog's next version, with the time of the lake's clock; it is not published.

    Args:
        is_staged: whether the staged file that the proposal names is written.
    """
    version = lake.catalog.coordinator.get_ratified_commits(table.table_id).latest_version + 1
    name = log_files.staged_commit_file_name(version, str(uuid.uuid4()))
    if is_staged:
        lake.memory.write(f"{log_files.staged_commits_directory(table.location)}/{name}", data)
    outcome = lake.catalog.coordinator.commit(
        table.table_id,
        CommitProposal(
            version=version,
            file_name=name,
            file_size=len(data),
            file_modification_time=lake.clock(),
            sha256=digest_of(data),
            summary=CommitSummary(txn_id=txn_id, in_commit_timestamp=lake.clock(), operation="WRITE", data_change=True),
        ),
    )
    assert isinstance(outcome, Ratified)
    return version


def ratify_unreadable(lake: Lake, table: Table, case: UnreadableCommit, *, good: tuple[str, ...] = ()) -> int:
    """Ratify the commit of ``case``, with the lines ``good`` in it."""
    lake.clock.now += 1000
    txn_id = str(uuid.uuid4())
    return ratify(lake, table, case.data(txn_id=txn_id, timestamp_ms=lake.clock(), good=good), txn_id=txn_id)
