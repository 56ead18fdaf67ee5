"""Builds the content of log compaction files (protocol heading "Log Compaction Files").

The caller decides whether the range is published and may be compacted. ``log_files`` builds the file name.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, encode_commit
from cm_delta_dagster.protocol.actions.file_columns import dv_ids, table_to_adds, table_to_removes
from cm_delta_dagster.protocol.actions.paths import file_keys


def compact(commits: Sequence[CommitActions], *, location: str) -> bytes:
    """Encode the compaction file of ``commits``, one action per line, after action reconciliation.

    Args:
        commits: at least two, of contiguous versions.
        location: absolute URI of the table root, against which paths are normalised.

    Raises:
        IllegalCommitError: fewer than two commits, or a gap between them.
    """
    ordered = sorted(commits, key=lambda commit: commit.version)
    _check_range([commit.version for commit in ordered])
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, SetTransaction] = {}
    domains: dict[str, DomainMetadata] = {}
    for commit in ordered:
        protocol = commit.protocol or protocol
        metadata = commit.metadata or metadata
        transactions.update((txn.app_id, txn) for txn in commit.transactions)
        # Removed domains stay: they cancel entries of the state before the range.
        domains.update((domain.domain, domain) for domain in commit.domains)
    adds, removes = _newest_file_actions(ordered, location)
    small = [action for action in (protocol, metadata) if action is not None]
    actions: list[Action] = [*small, *transactions.values(), *domains.values()]
    actions += table_to_removes(removes)
    actions += table_to_adds(adds)
    return encode_commit(actions)


def _check_range(versions: Sequence[int]) -> None:
    if len(versions) >= 2 and list(versions) == list(range(versions[0], versions[0] + len(versions))):
        return
    raise IllegalCommitError(
        f"Versions {list(versions)} cannot be compacted into one file: it must cover two or more versions without "
        "a gap. Pass every commit of the range once."
    )


def _newest_file_actions(commits: Sequence[CommitActions], location: str) -> tuple[pa.Table, pa.Table]:
    """Adds and removes of the range: the newest action for each (path, dvId)."""
    adds = pa.concat_tables([commit.adds for commit in commits])
    removes = pa.concat_tables([commit.removes for commit in commits])
    # Adds are ordered after the removes of their commit. A valid commit has at most one of the two for a key.
    order = [2 * index for index, commit in enumerate(commits) for _ in range(commit.removes.num_rows)]
    order += [2 * index + 1 for index, commit in enumerate(commits) for _ in range(commit.adds.num_rows)]
    keys = pa.table(
        {
            "path": pa.concat_arrays([file_keys(location, removes["path"]), file_keys(location, adds["path"])]),
            "dv": pa.concat_arrays([_ids(removes), _ids(adds)]),
            "order": pa.array(order, pa.int64()),
            "row": pa.array(range(len(order)), pa.int64()),
        }
    ).sort_by([("order", "ascending"), ("row", "ascending")])
    newest = keys.group_by(["path", "dv"], use_threads=False).aggregate([("row", "last")])["row_last"]
    rows = newest.take(pc.array_sort_indices(newest)) if len(newest) else newest
    is_remove = pc.less(rows, removes.num_rows)
    return (
        adds.take(pc.subtract(rows.filter(pc.invert(is_remove)), removes.num_rows)),
        removes.take(rows.filter(is_remove)),
    )


def _ids(files: pa.Table) -> pa.Array:
    ids = dv_ids(files)
    array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    # A group key: no dvId is empty, so the empty text stands for null (no deletion vector).
    return pc.fill_null(array.cast(pa.string()), "")
