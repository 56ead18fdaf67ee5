"""Writing a checkpoint on demand (protocol "Checkpoints").

Content and bytes are made by ``client.checkpointer``; here permission is asked and the version is published first,
because only a published version may be checkpointed (CM-M1).
"""

from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checkpoint
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.authorization import require_permission
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.protocol.features.table_features import check_writable


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    """The checkpoint that was written; ``num_bytes`` counts its sidecars too."""

    version: int
    file_name: str
    num_actions: int
    num_sidecars: int
    num_bytes: int


def checkpoint(table: Table) -> CheckpointResult:
    """Write a checkpoint of the latest version, publishing it first if need be, and point ``_last_checkpoint`` to it.

    Raises:
        MaintenanceNotPermittedError: the catalog's policy denies CHECKPOINT, which it allows unless told otherwise
            (CM-M5).
        UnsupportedFeatureError: the table needs a writer feature that this client does not have.
        CatalogBehindStorageError: storage holds commits that the catalog does not know.
        CorruptLogError: the state contradicts the checksum of its version; nothing was written.
        StorageError: the version could not be published or the checkpoint not be written; the table is as it was.
    """
    require_permission(table, MaintenanceKind.CHECKPOINT)
    published = publish(table).published_version
    snapshot = table.snapshot()
    if snapshot.version > published:
        # Somebody committed meanwhile. Their version is theirs to publish.
        snapshot = table.snapshot(version=published)
    table.refuse_if_known_behind()
    check_writable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
    written = write_checkpoint(table.store, snapshot, now_ms=table.services.now_ms())
    return CheckpointResult(
        version=written.version,
        file_name=written.file_name,
        num_actions=written.num_actions,
        num_sidecars=written.num_sidecars,
        num_bytes=written.size_bytes,
    )
