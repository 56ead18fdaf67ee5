"""Compares the catalog's versions of a table with the commits in its storage.

A catalog whose database was restored from a backup is older than its storage: ``_delta_log`` holds commits above the catalog's
latest version. Reads log a warning or are refused; writes, publication and all deletions are refused, because they would fork
the table's history or delete files that acknowledged commits need. Writes to a table whose log is missing are refused too,
because they would create its directories again.
"""

import datetime
import logging
import threading
from dataclasses import dataclass
from typing import NoReturn

from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.log_reader import storage_missing
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CorruptLogError,
    ObjectNotFoundError,
    TableStorageMissingError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import CommitFile, parse_log_file
from cm_delta_dagster.remedies import ChooseHistory, RecoverTable, RepairTable, TableRemedy
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)

_WARNED: set[str] = set()
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogBehind:
    """The commits in storage that show that the catalog is older than its storage.

    Attributes:
        latest_version: the catalog's latest version.
        first_version, last_version: published commits that the catalog does not know or that differ from its own.
        since_ms: modification time of the first of them, epoch milliseconds.
        is_forked: the catalog has ratified another commit as ``first_version``.
    """

    latest_version: int
    first_version: int
    last_version: int
    since_ms: int
    is_forked: bool = False

    def error(self, identifier: object, location: str) -> CatalogBehindStorageError:
        """The error that refuses a write, a publication or a deletion."""
        since = datetime.datetime.fromtimestamp(self.since_ms / 1000, datetime.UTC)
        is_single = self.first_version == self.last_version
        versions = (
            f"version {self.first_version}"
            if is_single
            else f"the versions {self.first_version} to {self.last_version}"
        )
        if self.is_forked:
            what = (
                f"has ratified other commits from version {self.first_version} on, up to version {self.latest_version}. The table "
                "has two histories, as after its catalog was restored from a backup and then written to. "
            )
            remedy: TableRemedy = ChooseHistory(table=str(identifier))
        else:
            what = (
                f"does not know them: its latest version is {self.latest_version}. The usual causes are a catalog database that "
                "was restored from a backup, and a writer by path that ignores that a catalog manages the table. "
            )
            remedy = RecoverTable(table=str(identifier))
        return CatalogBehindStorageError(
            f"The catalog is behind its storage: {location} holds {versions} of {identifier}, the first written "
            f"{since:%Y-%m-%d %H:%M:%S} UTC, and the catalog {what}Writes, publication and clean-up are refused; nothing was "
            f"written and nothing deleted.",
            identifier=str(identifier),
            latest_version=self.latest_version,
            storage_version=self.last_version,
        ).with_remedy(remedy)


class TablesBehind:
    """Tables for which this process has found the catalog behind their storage. Thread-safe."""

    def __init__(self) -> None:
        self._behind: dict[str, CatalogBehind] = {}
        self._lock = threading.Lock()

    def note(self, table_id: str, behind: CatalogBehind | None) -> None:
        """Record ``behind``; None records that the catalog is not behind."""
        with self._lock:
            if behind is None:
                self._behind.pop(table_id, None)
            else:
                self._behind[table_id] = behind

    def get(self, table_id: str) -> CatalogBehind | None:
        with self._lock:
            return self._behind.get(table_id)


def compare_with_listing(reader: CommitReader, ratified: RatifiedCommits) -> CatalogBehind | None:
    """The commits in ``_delta_log`` that are not in the catalog's answer ``ratified``; None if there are none. One listing.

    Published files of versions that are unpublished according to the catalog are read and compared with the ratified commits.
    """
    latest, location = ratified.latest_version, reader.location
    start = log_files.commit_file_name(ratified.published_version + 1)
    listed = {
        file.version: status
        for status in reader.store.list_from(log_files.log_directory(location), start=start)
        if isinstance(file := parse_log_file(status.name), CommitFile) and file.version > ratified.published_version
    }
    forked = next((c.version for c in ratified.unpublished if c.version in listed and _is_other(reader, c)), None)
    unknown = [version for version in listed if version > latest]
    if forked is None and not unknown:
        return None
    first = min(unknown) if forked is None else forked
    return CatalogBehind(
        latest_version=latest,
        first_version=first,
        last_version=max(listed),
        since_ms=listed[first].modification_time,
        is_forked=forked is not None,
    )


def _is_other(reader: CommitReader, commit: RatifiedCommit) -> bool:
    """Whether the published file of ``commit`` is a commit of another history, and not merely damaged."""
    try:
        info = commit_json.decode_commit_info(
            reader.store.read(published_source(reader.location, commit.version).location)
        )
    except (ObjectNotFoundError, CorruptLogError):
        return False
    return info is not None and info.txn_id not in (None, commit.txn_id)


def has_commit(store: Store, location: str, version: int) -> bool:
    """Whether the published file of ``version`` exists."""
    try:
        store.stat(published_source(location, version).location)
    except ObjectNotFoundError:
        return False
    return True


def refuse_missing(store: Store, identifier: object, location: str, *, published_version: int) -> NoReturn:
    """Refuse a write to a table whose newest published commit is missing. One listing finds the likely causes.

    Raises TableStorageMissingError.
    """
    listed = [parse_log_file(status.name) for status in store.list_from(log_files.log_directory(location))]
    if not any(listed):
        raise storage_missing(location, published_version)
    newest = max((file.version for file in listed if isinstance(file, CommitFile)), default=None)
    newest_text = "no commit" if newest is None else f"commits up to version {newest}"
    raise TableStorageMissingError(
        f"Nothing was written to {identifier}: its version {published_version} is published according to the catalog, and "
        f"{location} holds {newest_text}. Either an older copy of the storage is mounted (a snapshot, a replica, another volume): "
        "mount the current one. Or that one file was lost."
    ).with_remedy(RepairTable(table=str(identifier)))


def warn_behind(identifier: object, location: str, behind: CatalogBehind) -> None:
    """Warn that reads return an older version than storage holds, once for each table and process."""
    _warn_once(location, f"Version {behind.latest_version} is read. {behind.error(identifier, location)}")


def _warn_once(key: str, message: str) -> None:
    with _LOCK:
        known = key in _WARNED
        _WARNED.add(key)
    if not known:
        _log.warning("%s", message)
