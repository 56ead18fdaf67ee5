"""Finds where the history in storage begins if log cleanup removed the commits that follow the catalog's. Changes nothing.

A catalog that was restored from a backup older than the last log cleanup has versions that the log can no longer rebuild. The
history then begins with a checkpoint above them, which a version checksum proves and whose metadata names the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.log_reader import proven_checkpoint, read_checksum
from cm_delta_dagster.errors import ProtocolError, StorageError
from cm_delta_dagster.operations.recovery.commit_chain import Chain, CommitFileContent, RefusedError, parsed
from cm_delta_dagster.operations.recovery.log_listing import DirectoryListings
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log import log_files, version_checksum
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.checkpoint_files import CheckpointSource, complete_checkpoints
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum


@dataclass(frozen=True, kw_only=True)
class StartAfterCleanup:
    """The beginning of the history in storage.

    Attributes:
        chain: holds the state of the checkpoint, and its commit as the first link if the log has it.
        common_version: newest version of the catalog that was committed before the checkpoint's.
        fork: oldest version of the catalog that was committed after it, which belongs to another history; None if there is none.
    """

    chain: Chain
    common_version: int
    fork: int | None


def is_cleaned_above(listing: DirectoryListings, version: int) -> bool:
    """Return whether the log begins with a checkpoint above ``version``, as it does after log cleanup."""
    checkpoints = complete_checkpoints(listing.derived)
    return 0 not in listing.published and bool(checkpoints) and checkpoints[0].version > version


def start_after_cleanup(
    reader: CommitReader,
    listing: DirectoryListings,
    records: Mapping[int, RatifiedCommit],
    *,
    table_id: str,
    metadata_id: str | None,
) -> StartAfterCleanup | str:
    """Return the chain from the oldest usable checkpoint without a missing commit above it, or a text that says why there is none.

    If commits are missing above every checkpoint, the oldest usable checkpoint is the start.

    Args:
        records: the catalog's records of the versions of the table.
        metadata_id: of the table's metadata in the catalog; None if it is not known.
    """
    problems: list[str] = []
    checkpoints = complete_checkpoints(listing.derived)
    newest = max(listing.published)
    whole = [
        checkpoint
        for checkpoint in checkpoints
        if all(v in listing.published for v in range(checkpoint.version + 1, newest + 1))
    ]
    for source in [*whole, *(checkpoint for checkpoint in checkpoints if checkpoint not in whole)]:
        try:
            return _start(reader, listing, records, source, table_id=table_id, metadata_id=metadata_id)
        except (RefusedError, ProtocolError, StorageError) as error:
            problems.append(f"{source.locations[0]}: {error}")
    return " ".join(problems)


def _start(
    reader: CommitReader,
    listing: DirectoryListings,
    records: Mapping[int, RatifiedCommit],
    source: CheckpointSource,
    *,
    table_id: str,
    metadata_id: str | None,
) -> StartAfterCleanup:
    """Raises RefusedError, ProtocolError, StorageError: the checkpoint cannot be used."""
    version = source.version
    state, stored = _proven(reader, source, table_id=table_id, metadata_id=metadata_id)
    status = listing.published.get(version)
    file = None
    time, txn_id = stored.in_commit_timestamp, stored.txn_id
    if status is not None:
        file = CommitFileContent.read(reader.store, status, version)
        _, info, time = parsed(file)
        if txn_id not in (None, info.txn_id):
            raise RefusedError(f"its version checksum names the transaction {txn_id}, and its commit {info.txn_id}.")
        txn_id = info.txn_id
    if time is None:
        raise RefusedError("neither a commit nor the version checksum has its in-commit timestamp.")
    # In-commit timestamps increase, so commits that the catalog ratified at a later time did not lead to the checkpoint.
    before = [record for record in records.values() if record.in_commit_timestamp < time and record.version < version]
    if not before:
        raise RefusedError("the catalog has no older commit.")
    common = max(before, key=lambda record: record.version)
    known = {record.txn_id for record in before}
    chain = Chain(
        reader.store,
        reader.location,
        table_id=table_id,
        state=None if file is not None else state,
        timestamp_ms=common.in_commit_timestamp if file is not None else time,
        known_txn_ids=known if file is not None or txn_id is None else {*known, txn_id},
    )
    if file is not None:
        chain.begin(file, state)
    return StartAfterCleanup(
        chain=chain,
        common_version=common.version,
        fork=min((other for other in records if other > common.version), default=None),
    )


def _proven(
    reader: CommitReader, source: CheckpointSource, *, table_id: str, metadata_id: str | None
) -> tuple[TableState, VersionChecksum]:
    """Return the state in a checkpoint and the checksum that proves it. Raises RefusedError, ProtocolError, StorageError."""
    stored = read_checksum(reader.store, reader.location, source.version)
    if stored is None:
        raise RefusedError("it has no version checksum that proves it.")
    directory = log_files.log_directory(reader.location)
    locations = [f"{directory}/{name}" for name in source.locations]
    state = proven_checkpoint(reader, version=source.version, locations=locations)
    wrong = version_checksum.differences(stored, state)
    if wrong:
        raise RefusedError(f"it differs from its version checksum in {', '.join(wrong)}.")
    own = TableProperties(state.metadata.configuration).table_id
    if own != table_id:
        raise RefusedError(f"its metadata names the table id {own}, and this is table {table_id}.")
    if metadata_id is not None and state.metadata.id != metadata_id:
        raise RefusedError(f"its metadata has the id {state.metadata.id}, and the table's is {metadata_id}.")
    return state, stored
