"""Writes checkpoints and version checksums of ratified versions.

``protocol.log.checkpoints`` and ``protocol.log.version_checksum`` define their content. Files are written in an order that never
exposes an incomplete checkpoint: sidecars, then the checkpoint, then ``_last_checkpoint``.
"""

import uuid
from dataclasses import dataclass

from cm_delta_dagster.client.snapshots.commit_sources import digest_of, published_source
from cm_delta_dagster.client.snapshots.log_reader import hinted_version, read_checksum
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    CorruptLogError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    UnpublishedVersionError,
)
from cm_delta_dagster.protocol.log import checkpoints, last_checkpoint, log_files, version_checksum
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum
from cm_delta_dagster.remedies import CheckTable
from cm_delta_dagster.storage.parquet import encode_parquet
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCheckpoint:
    """A complete checkpoint: its version, file name, sidecars and size in bytes (sidecars included)."""

    version: int
    file_name: str
    num_sidecars: int
    num_actions: int
    size_bytes: int


def write_checkpoint(store: Store, snapshot: Snapshot, *, now_ms: int) -> WrittenCheckpoint:
    """Write a checkpoint of ``snapshot`` and point ``_last_checkpoint`` to it.

    Args:
        now_ms: decides which tombstones have expired.

    Raises:
        UnpublishedVersionError: ``_delta_log`` has no commit of that version yet.
        CorruptLogError: the state contradicts the checksum of its version; nothing was written.
    """
    location, version = snapshot.location, snapshot.version
    _require_published(store, snapshot)
    refuse_contradiction(store, snapshot)
    tables = checkpoints.build_checkpoint(snapshot.state, now_ms=now_ms)
    sidecars = []
    total = 0
    for table in tables.sidecars:
        data = encode_parquet(table)
        name = log_files.sidecar_file_name(str(uuid.uuid4()))
        directory = log_files.log_directory(location)
        store.write_if_absent(f"{log_files.sidecars_directory(location)}/{name}", data, within=directory)
        sidecars.append(
            checkpoints.sidecar_action(name, size_in_bytes=len(data), modification_time=now_ms, sha256=digest_of(data))
        )
        total += len(data)
    top = encode_parquet(checkpoints.with_sidecars(tables.top, sidecars))
    if checkpoints.is_v2(tables):
        name = log_files.v2_checkpoint_file_name(version, str(uuid.uuid4()), "parquet")
    else:
        name = log_files.classic_checkpoint_file_name(version)
    store.write(f"{log_files.log_directory(location)}/{name}", top, within=log_files.log_directory(location))
    written = WrittenCheckpoint(
        version=version,
        file_name=name,
        num_sidecars=len(sidecars),
        num_actions=tables.num_actions + len(sidecars),
        size_bytes=total + len(top),
    )
    _write_hint(store, snapshot, written)
    return written


def refuse_contradiction(store: Store, snapshot: Snapshot) -> None:
    """Compare a state with the checksum of its version, if there is one, before files are derived from it or deleted.

    Raises CorruptLogError.
    """
    stored = read_checksum(store, snapshot.location, snapshot.version)
    # Only a checksum that names its transaction is known to be of this table's history.
    wrong = () if stored is None or stored.txn_id is None else version_checksum.differences(stored, snapshot.state)
    if wrong:
        raise CorruptLogError(
            f"Version {snapshot.version} of {snapshot.identifier} differs from its checksum "
            f"{log_files.checksum_file_name(snapshot.version)} in {', '.join(wrong)}: a file of the log was altered after it "
            "was written, or the checksum is wrong. Nothing was written and nothing deleted.",
            version=snapshot.version,
        ).with_remedy(CheckTable(table=str(snapshot.identifier)))


def _require_published(store: Store, snapshot: Snapshot) -> None:
    if snapshot.published_version >= snapshot.version:
        return
    try:
        store.stat(published_source(snapshot.location, snapshot.version).location)
    except ObjectNotFoundError as error:
        raise UnpublishedVersionError(
            f"Version {snapshot.version} of {snapshot.identifier} is ratified but not published, and only a published version "
            "may be checkpointed. Publish it first."
        ) from error


def _write_hint(store: Store, snapshot: Snapshot, written: WrittenCheckpoint) -> None:
    if hinted_version(store, snapshot.location) > written.version:
        return  # The hint never moves back to an older checkpoint.
    hint = last_checkpoint.LastCheckpoint(
        version=written.version,
        size=written.num_actions,
        size_in_bytes=written.size_bytes,
        num_of_add_files=snapshot.num_files,
    )
    directory = log_files.log_directory(snapshot.location)
    store.write(f"{directory}/{log_files.LAST_CHECKPOINT_FILE_NAME}", last_checkpoint.encode(hint), within=directory)


def write_checksum(store: Store, location: str, version: int, value: VersionChecksum) -> None:
    """Write the checksum of a ratified version unless it exists."""
    try:
        store.write_if_absent(
            _checksum_location(location, version),
            version_checksum.encode(value),
            within=log_files.log_directory(location),
        )
    except ObjectAlreadyExistsError:
        return


def _checksum_location(location: str, version: int) -> str:
    return f"{log_files.log_directory(location)}/{log_files.checksum_file_name(version)}"
