"""The records of the catalog and the listing of the log that ``doctor`` compares. Changes nothing.

The latest version is read from the catalog before the listings and again after them, so that commits made in between are not
reported as damage. This works on a table that cannot be loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError, CmDeltaError, TableNotFoundError
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.checkpoint_files import complete_checkpoints
from cm_delta_dagster.protocol.log.log_files import (
    ChecksumFile,
    CommitFile,
    CompactionFile,
    LogFile,
    parse_log_file,
)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The records of the catalog, and the log as listed between the first and the last request to it.

    Attributes:
        records: the catalog's record of each version up to the latest one.
        log: files of ``_delta_log`` by name; names that the protocol does not define are left out.
        staged: names in ``_staged_commits``.
        is_missing: ``_delta_log`` holds no file.
        latest_after: the catalog's latest version after the listings.
    """

    ratified: RatifiedCommits
    records: Mapping[int, RatifiedCommit]
    log: Mapping[str, LogFile]
    staged: frozenset[str]
    is_missing: bool
    latest_after: int

    @property
    def latest(self) -> int:
        return self.ratified.latest_version

    @property
    def published(self) -> int:
        """The catalog's published version."""
        return self.ratified.published_version

    def versions(self, kind: type[CommitFile] | type[ChecksumFile]) -> frozenset[int]:
        return frozenset(file.version for file in self.log.values() if isinstance(file, kind))

    def checkpoints(self) -> Mapping[int, list[tuple[str, ...]]]:
        """Names of the files of each complete checkpoint, by version."""
        names_by_version: dict[int, list[tuple[str, ...]]] = {}
        for checkpoint in complete_checkpoints(self.log):
            names_by_version.setdefault(checkpoint.version, []).append(checkpoint.locations)
        return names_by_version

    def compactions(self) -> Mapping[str, CompactionFile]:
        """Compactions of versions up to the latest one, by name."""
        return {
            name: file
            for name, file in self.log.items()
            if isinstance(file, CompactionFile) and file.start < file.end <= self.latest
        }


def observe(table: Table) -> Observation:
    """Query the catalog and list the log.

    Raises:
        TableNotFoundError: the table was dropped.
        CatalogError, StorageError: a request to catalog or storage failed.
    """
    ratified = _known(table)
    log = table.store.list_from(log_files.log_directory(table.location))
    staged = table.store.list_from(log_files.staged_commits_directory(table.location))
    after = _known(table)
    records = table.services.coordinator.commit_records(table.table_id, start=0, end=ratified.latest_version)
    return Observation(
        ratified=ratified,
        records={record.version: record for record in records},
        log={status.name: file for status in log if (file := parse_log_file(status.name)) is not None},
        staged=frozenset(status.name for status in staged),
        is_missing=not log and not staged,
        latest_after=after.latest_version,
    )


def _known(table: Table) -> RatifiedCommits:
    """The ratified commits as a client sees them, or from the catalog alone if the log stops clients with an error."""
    try:
        return table.ratified()
    except (TableNotFoundError, CatalogUnavailableError):
        raise
    except CmDeltaError:
        return table.services.coordinator.get_ratified_commits(table.table_id)
