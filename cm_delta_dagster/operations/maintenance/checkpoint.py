"""Write a checkpoint on demand (protocol heading "Checkpoints").

``client.post_commit.checkpoint_writer`` builds and writes the checkpoint. This module asks for permission and publishes the
version first, because only a published version may be checkpointed.
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
    """The written checkpoint. ``num_bytes`` includes its sidecars."""

    version: int
    file_name: str
    num_actions: int
    num_sidecars: int
    num_bytes: int


def checkpoint(table: Table) -> CheckpointResult:
    """Publish the latest version if needed, write its checkpoint, and update ``_last_checkpoint``.

    Raises:
        MaintenanceNotPermittedError: the policy denies CHECKPOINT; it is allowed unless a rule denies it.
        UnsupportedFeatureError: the table needs a writer feature that this client does not support.
        CatalogBehindStorageError: storage holds commits that the catalog does not know.
        CorruptLogError: the state contradicts the checksum of its version; nothing was written.
        StorageError: publication or the checkpoint failed; the table is unchanged.
    """
    require_permission(table, MaintenanceKind.CHECKPOINT)
    published = publish(table).published_version
    snapshot = table.snapshot()
    if snapshot.version > published:
        # A concurrent commit is published by its writer.
        snapshot = table.snapshot(version=published)
    table.refuse_if_known_behind()
    check_writable(snapshot.protocol, snapshot.identifier)
    written = write_checkpoint(table.store, snapshot, now_ms=table.services.now_ms())
    return CheckpointResult(
        version=written.version,
        file_name=written.file_name,
        num_actions=written.num_actions,
        num_sidecars=written.num_sidecars,
        num_bytes=written.size_bytes,
    )
