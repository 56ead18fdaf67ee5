"""Publishing ratified commits on demand (protocol "Publishing commits").

Every writer publishes after its commit already; this verb clears what a crashed or failing publication left behind. It
needs no permission: publishing is part of committing, not maintenance.
"""

from dataclasses import dataclass

from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """What was published.

    Attributes:
        published_version: ``_delta_log`` holds every commit up to this version.
        published: versions that this call copied or found copied, ascending; empty if nothing was pending.
    """

    published_version: int
    published: tuple[int, ...]

    @property
    def num_commits(self) -> int:
        return len(self.published)


def publish(table: Table) -> PublishResult:
    """Copy every ratified, unpublished commit of ``table`` to its place in ``_delta_log``, in order.

    Raises:
        StorageError: a commit could not be copied; those before it are published, those after it are not (CM-P2).
        CatalogBehindStorageError: storage holds commits that the catalog does not know.
        CorruptLogError: the ratified content of a commit is nowhere, or the catalog has no record of it.
        TableStorageMissingError: the table's log is not where the catalog says.
    """
    table.refuse_if_known_behind()
    try:
        return _publish_pending(table)
    except ObjectNotFoundError:
        # Another publisher may have been faster and cleanup may have taken the staged file since: the catalog knows
        # (CM-P5). A missing directory is not that.
        table.require_storage(table.catalog_answer().published_version)
    try:
        return _publish_pending(table)
    except ObjectNotFoundError as error:
        raise CorruptLogError(
            f"{table.identifier} cannot be published: {error} The catalog ratified that commit, and neither it nor storage has its "
            "content. Commits before it are published. Restore that file from a backup; `cm-delta doctor "
            f"{table.identifier}` says what else is wrong."
        ) from error


def _publish_pending(table: Table) -> PublishResult:
    table.post_commit.publication.report()
    ratified = table.catalog_answer()
    pending = [commit.version for commit in ratified.unpublished]
    if ratified.latest_version > (pending[-1] if pending else ratified.published_version):
        raise CorruptLogError(
            f"{table.identifier} cannot be published: the catalog calls {ratified.latest_version} its latest version and has no "
            f"record of how it was committed. Nothing was written. Restore the catalog's database from a backup; `cm-delta doctor "
            f"{table.identifier}` says what else is wrong.",
            version=ratified.latest_version,
        )
    published = publish_commits(
        table.reader,
        commits=ratified.unpublished,
        reached=lambda version: table.catalog.set_published_version(table.table_id, version),
    )
    return PublishResult(
        published_version=published[-1] if published else ratified.published_version,
        published=published,
    )
