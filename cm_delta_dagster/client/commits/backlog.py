"""Keeps the number of unpublished commits of a table below ``ClientSettings.max_unpublished_commits``."""

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.client.backoff import attempts
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CatalogUnavailableError, CommitRejectedError, CorruptLogError, StorageError
from cm_delta_dagster.storage.store import Store


def limit_backlog(base: Snapshot, *, store: Store, coordinator: CommitCoordinator, settings: ClientSettings) -> None:
    """Publish first if too many commits are unpublished; the write fails only if they cannot be published.

    Raises CommitRejectedError.
    """
    limit = settings.max_unpublished_commits
    if base.version - base.published_version < limit:
        return
    last: Exception | None = None
    for _ in attempts(settings, 1 + settings.max_resolve_attempts):
        pending = coordinator.get_ratified_commits(base.table_id)
        unpublished = pending.latest_version - pending.published_version
        if unpublished < limit:
            return
        try:
            publish_commits(
                CommitReader(store, base.location, records=CatalogRecords(coordinator, base.table_id)),
                commits=pending.unpublished,
                reached=lambda version: coordinator.set_published_version(base.table_id, version),
            )
        except (StorageError, CatalogUnavailableError, CorruptLogError) as error:
            last = error
        else:
            return
    raise CommitRejectedError(
        f"Nothing was committed to {base.identifier}: {unpublished} of its commits are not published, as many as "
        f"ClientSettings.max_unpublished_commits allows, and they cannot be published: {last} Fix the cause and retry."
    ) from last
