"""Publish ratified commits on demand (protocol heading "Publishing Commits").

Each writer publishes after its commit. This operation publishes commits whose writer crashed or failed to publish. It needs no
permission, because publication is a part of the commit and not maintenance.
"""

from dataclasses import dataclass

from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.remedies import CheckTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """The result of a publication.

    Attributes:
        published_version: ``_delta_log`` holds all commits up to this version.
        published: versions that this call published or found published, ascending; empty if nothing was pending.
    """

    published_version: int
    published: tuple[int, ...]

    @property
    def num_commits(self) -> int:
        return len(self.published)


def publish(table: Table) -> PublishResult:
    """Copy the ratified, unpublished commits of ``table`` to ``_delta_log``, in order of version.

    Raises:
        StorageError: a commit could not be copied; the commits before it are published, the later ones are not.
        CatalogBehindStorageError: storage holds commits that the catalog does not know.
        CorruptLogError: the content of a ratified commit is missing, or the catalog has no record of the commit.
        TableStorageMissingError: the log does not exist at the location that the catalog returns.
    """
    table.refuse_if_known_behind()
    try:
        return _publish_pending(table)
    except ObjectNotFoundError:
        # Another client may have published the commit, and cleanup deleted the staged file. Retry with the current answer of
        # the catalog, unless the directory is missing.
        table.require_storage(table.catalog_answer().published_version)
    try:
        return _publish_pending(table)
    except ObjectNotFoundError as error:
        raise CorruptLogError(
            f"{table.identifier} cannot be published: {error} The catalog ratified that commit, and neither it nor storage has its "
            "content. Commits before it are published. Restore that file from a backup."
        ).with_remedy(CheckTable(table=str(table.identifier))) from error


def _publish_pending(table: Table) -> PublishResult:
    table.post_commit.publication.report()
    ratified = table.catalog_answer()
    pending = [commit.version for commit in ratified.unpublished]
    if ratified.latest_version > (pending[-1] if pending else ratified.published_version):
        raise CorruptLogError(
            f"{table.identifier} cannot be published: the catalog calls {ratified.latest_version} its latest version and has no "
            "record of how it was committed. Nothing was written. Restore the catalog's database from a backup.",
            version=ratified.latest_version,
        ).with_remedy(CheckTable(table=str(table.identifier)))
    published = publish_commits(
        table.reader,
        commits=ratified.unpublished,
        reached=lambda version: table.services.coordinator.set_published_version(table.table_id, version),
    )
    return PublishResult(
        published_version=published[-1] if published else ratified.published_version,
        published=published,
    )
