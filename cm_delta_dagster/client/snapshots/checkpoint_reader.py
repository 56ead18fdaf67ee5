"""Reads the files of a checkpoint (protocol heading "Checkpoints")."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cm_delta_dagster.client.snapshots.commit_reader import CommitReader, interpreter_is_exiting
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.log import checkpoint_reading, log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, state_from_checkpoint
from cm_delta_dagster.protocol.log.checkpoint_content import SIDECAR_DIGEST_TAG, CheckpointContent
from cm_delta_dagster.storage.parquet import decode_parquet, leaf_columns
from cm_delta_dagster.storage.store import Store


def read_checkpoint(reader: CommitReader, *, version: int, locations: Sequence[str]) -> TableState:
    """The state in a checkpoint, sidecars included; a sidecar is compared with the digest that its checkpoint has of it.

    Raises ObjectNotFoundError, CorruptLogError.
    """
    store, location, threads = reader.store, reader.location, reader.threads
    contents = _read_checkpoint_files(store, [(top, None) for top in locations], threads=threads)
    directory = log_files.sidecars_directory(location)
    # Only the file name of the path counts: sidecars lie in the table's own directory.
    sidecars = [
        (
            f"{directory}/{decode_path(sidecar.path.rpartition('/')[2])}",
            (sidecar.tags or {}).get(SIDECAR_DIGEST_TAG),
        )
        for content in contents
        for sidecar in content.sidecars
    ]
    contents += _read_checkpoint_files(store, sidecars, threads=threads)
    return state_from_checkpoint(contents, version=version, location=location)


def _read_checkpoint_files(
    store: Store, files: Sequence[tuple[str, str | None]], *, threads: int
) -> list[CheckpointContent]:
    """Parts or sidecars, given with their digests, in order; read concurrently."""
    if len(files) < 2 or interpreter_is_exiting():
        return [read_checkpoint_file(store, location, sha256=sha256) for location, sha256 in files]
    with ThreadPoolExecutor(max_workers=min(threads, len(files))) as pool:
        return list(pool.map(lambda file: read_checkpoint_file(store, file[0], sha256=file[1]), files))


def read_checkpoint_file(store: Store, location: str, *, sha256: str | None = None) -> CheckpointContent:
    """One file of a checkpoint or one sidecar. Raises ObjectNotFoundError, CorruptLogError; both name the file.

    Args:
        sha256: digest that the file must have; None if it is unknown.
    """
    data = store.read(location)
    if sha256 is not None and digest_of(data) != sha256:
        raise CorruptLogError(f"{location} is not the file that was written: its SHA-256 differs.")
    try:
        if location.endswith(".json"):
            return checkpoint_reading.decode_checkpoint_json(data)
        paths = leaf_columns(data)
        content = checkpoint_reading.decode_checkpoint(decode_parquet(data, checkpoint_reading.columns_to_read(paths)))
        if checkpoint_reading.needs_parsed_statistics(content, paths):
            content = checkpoint_reading.decode_checkpoint(
                decode_parquet(data, checkpoint_reading.columns_with_parsed_statistics(paths))
            )
        return content
    except CorruptLogError as error:
        raise CorruptLogError(f"{location}: {error}") from error
