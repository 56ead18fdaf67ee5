"""Reads commits and verifies that they are those that the catalog ratified.

A commit that is read from storage is compared with its SHA-256 in the catalog. If it is lost or altered, an intact copy is read
(the catalog's content, the staged file, the published file), with a warning; without one the read fails. Tables without a
catalog have no digests, and their commits are not verified.
"""

import logging
import os
import threading
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, compress, repeat

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_sources import (
    digest_of,
    is_ratified,
    published_source,
    staged_names_of,
    staged_source,
)
from cm_delta_dagster.errors import CmDeltaError, CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_segment import (
    CommitSource,
    CompactedCommits,
    InlineCommit,
    PublishedCommit,
    StagedCommit,
)
from cm_delta_dagster.remedies import CheckTable, RepairTable
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)

_PARTS_OF_READER = 4
"""Parts of the commits that each thread reads, one after the other, so that slow answers of the store delay one part only."""

_PARSED_BYTES = 2**20

_FAST_SECONDS = 0.0003
_PATIENCE_SECONDS = 0.02
"""A local file system is fast if it reads small commits in the first of these times, apart from a delay of the second."""

_WARNED: set[tuple[str, int]] = set()
_WARNED_LOCK = threading.Lock()


class CommitRecords(typing.Protocol):
    """What a catalog knows of the commits of one table."""

    def digests(self, start: int, end: int) -> Mapping[int, str]:
        """SHA-256 digests of the versions ``start..end``; versions without one are left out."""
        ...

    def records(self, start: int, end: int) -> Sequence[RatifiedCommit]:
        """The records of the versions ``start..end``, ascending, with the content that the catalog has."""
        ...


class CatalogRecords:
    """Implements :class:`CommitRecords` for a table of ``coordinator``."""

    def __init__(self, coordinator: CommitCoordinator, table_id: str) -> None:
        self._coordinator = coordinator
        self._table_id = table_id

    def digests(self, start: int, end: int) -> Mapping[int, str]:
        return self._coordinator.commit_digests(self._table_id, start=start, end=end)

    def records(self, start: int, end: int) -> Sequence[RatifiedCommit]:
        return self._coordinator.commit_records(self._table_id, start=start, end=end)


class _ParsedCommits:
    """Small commits by version and content. Each operation on a table without a catalog reads its log again, and a content that
    was parsed before is not parsed again. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._remembered: dict[tuple[int, bytes], CommitActions] = {}

    def select(self, keys: Iterable[tuple[int, bytes]]) -> dict[tuple[int, bytes], CommitActions]:
        """Those of ``keys`` that are remembered."""
        known = self._remembered
        return {key: known[key] for key in keys if key in known}

    def remember(self, parsed: Mapping[tuple[int, bytes], CommitActions]) -> None:
        """Add ``parsed``, and forget the others if together they are too large."""
        together = {**self._remembered, **parsed}
        if sum(len(data) for _, data in together) > _PARSED_BYTES:
            together = dict(parsed) if sum(len(data) for _, data in parsed) <= _PARSED_BYTES else {}
        self._remembered = together


class CommitReader:
    """Reads and parses commits of one table. Safe to share between threads.

    Args:
        records: the catalog's records of the commits; None for a table without a catalog.
        threads: number of concurrent reads.
    """

    def __init__(self, store: Store, location: str, *, records: CommitRecords | None = None, threads: int = 8) -> None:
        self.store = store
        self.location = location
        self.threads = threads
        self.records = records
        self._parsed = _ParsedCommits()

    @property
    def is_managed(self) -> bool:
        """Whether a catalog ratifies the commits of the table."""
        return self.records is not None

    def records_of(self, version: int) -> Sequence[RatifiedCommit]:
        """The catalog's record of one version; empty without a catalog or a record."""
        return () if self.records is None else self.records.records(version, version)

    def with_digests(self, sources: Sequence[CommitSource]) -> Sequence[CommitSource]:
        """``sources`` with the digests of published files, from one query to the catalog if any is missing."""
        unknown = [source.version for source in sources if isinstance(source, PublishedCommit) and not source.sha256]
        if not unknown or self.records is None:
            return sources
        digests = self.records.digests(min(unknown), max(unknown))
        if not digests:
            return sources
        return [
            replace(source, sha256=digests.get(source.version))
            if isinstance(source, PublishedCommit) and not source.sha256
            else source
            for source in sources
        ]

    def read(self, source: CommitSource) -> bytes:
        """The content of one commit or compaction.

        Raises:
            ObjectNotFoundError: it is missing, and there is no intact copy.
            CorruptLogError: it differs from the ratified commit, and there is no intact copy.
        """
        if isinstance(source, InlineCommit):
            return source.content
        try:
            data = self.store.read(source.location)
        except ObjectNotFoundError as error:
            return self._from_copy(source, error, why="is missing")
        if isinstance(source, CompactedCommits):
            return data
        if source.sha256 is not None and digest_of(data) != source.sha256:
            return self._from_copy(source, self._altered(source, "other bytes than"), why="was altered")
        if isinstance(source, StagedCommit) and source.size not in (None, len(data)):
            altered = self._altered(source, f"{len(data)} bytes and not the {source.size} of")
            return self._from_copy(source, altered, why="has another size")
        return data

    def decode(self, source: CommitSource) -> CommitActions:
        """One commit or compaction, parsed. Raises ObjectNotFoundError, CorruptLogError; both name the file."""
        return self._decoded(self.read(source), source)

    def decode_all(self, sources: Sequence[CommitSource]) -> tuple[CommitActions, ...]:
        """Read, verify and parse commits, in the order given. Raises ObjectNotFoundError, CorruptLogError."""
        here = [source for source in sources if isinstance(source, InlineCommit)]
        if len(here) == len(sources) and all(len(source.content) < commit_json.LARGE_COMMIT_BYTES for source in here):
            return self._decoded_together([(source, source.content) for source in here])
        sources = self.with_digests(sources)
        if len(sources) <= 2 or interpreter_is_exiting():
            return tuple(self.decode(source) for source in sources)
        first_read = self._read_without_threads(sources)
        if len(first_read) == len(sources) and len(first_read[-1]) < commit_json.LARGE_COMMIT_BYTES:
            return self._decoded_together(list(zip(sources, first_read, strict=True)))
        pairs = list(zip(sources, chain(first_read, repeat(None)), strict=False))
        num_readers = min(self.threads, len(sources))
        some = -(-len(sources) // (_PARTS_OF_READER * num_readers))
        # Many threads may wait for the store. Fewer parse large commits, because each thread keeps the memory it has used.
        with (
            ThreadPoolExecutor(max_workers=min(self.threads, os.cpu_count() or 1)) as parsers,
            ThreadPoolExecutor(max_workers=num_readers) as readers,
        ):

            def read_some(part: Sequence[tuple[CommitSource, bytes | None]]) -> list[bytes | CommitActions]:
                contents: list[bytes | CommitActions] = []
                for source, known in part:
                    data = self.read(source) if known is None else known
                    is_small = len(data) < commit_json.LARGE_COMMIT_BYTES
                    contents.append(data if is_small else parsers.submit(self._decoded, data, source).result())
                return contents

            parts = [pairs[first : first + some] for first in range(0, len(pairs), some)]
            read = [item for part in readers.map(read_some, parts) for item in part]
        small = [(source, item) for source, item in zip(sources, read, strict=True) if isinstance(item, bytes)]
        decoded = iter(self._decoded_together(small))
        return tuple(next(decoded) if isinstance(item, bytes) else item for item in read)

    def decode_in(self, pool: ThreadPoolExecutor, sources: Sequence[CommitSource]) -> tuple[CommitActions, ...]:
        """As :meth:`decode_all`, with the threads of ``pool`` and the digests that ``sources`` have."""
        first_read = self._read_without_threads(sources)
        rest = pool.map(self.read, sources[len(first_read) :])
        read = tuple(zip(sources, chain(first_read, rest), strict=True))
        is_large = [len(data) >= commit_json.LARGE_COMMIT_BYTES for _, data in read]
        large = pool.map(lambda item: self._decoded(item[1], item[0]), compress(read, is_large))
        small = iter(
            self._decoded_together([item for item, is_long in zip(read, is_large, strict=True) if not is_long])
        )
        return tuple(next(large) if is_long else next(small) for is_long in is_large)

    def _read_without_threads(self, sources: Sequence[CommitSource]) -> list[bytes]:
        """The first of ``sources``, read by this thread: all of them if they are small and in a local file system that is fast.

        Handing such a file to another thread takes longer than to read it. Only the last one may be large.
        """
        contents: list[bytes] = []
        if not (isinstance(self.store, LocalStore) and self.location.startswith("file:")):
            return contents
        start = time.perf_counter()
        for number, source in enumerate(sources, 1):
            data = self.read(source)
            contents.append(data)
            is_slow = time.perf_counter() - start > _PATIENCE_SECONDS + number * _FAST_SECONDS
            if is_slow or len(data) >= commit_json.LARGE_COMMIT_BYTES:
                break
        return contents

    def copies(self, versions: Iterable[range]) -> tuple[InlineCommit, ...]:
        """The ratified content of lost commits, if the catalog or a staged file still has it; logs a warning."""
        commits = []
        for part in versions:
            for record in () if self.records is None else self.records.records(part.start, part.stop - 1):
                data = self._copy_of(record, other_than=published_source(self.location, record.version).location)
                if data is not None:
                    self._warn(record.version, "the published commit is missing.")
                    commits.append(InlineCommit(version=record.version, content=data))
        return tuple(commits)

    def _decoded(self, data: bytes, source: CommitSource) -> CommitActions:
        try:
            return commit_json.decode_commit(data, version=source.version)
        except CorruptLogError as error:
            file = source.file if isinstance(source, InlineCommit) else source
            if file is None:
                raise _located("The catalog's answer", error, source.version) from error
            if file is source:
                raise _located(file.location, error, source.version) from error
            _log.warning(
                "The catalog's copy of version %d is damaged: %s %s is read.", source.version, error, file.location
            )
            return self.decode(file)

    def _decoded_together(self, read: Sequence[tuple[CommitSource, bytes]]) -> tuple[CommitActions, ...]:
        keys = [(source.version, data) for source, data in read]
        parsed = self._parsed.select(keys)
        new = [key for key in keys if key not in parsed]
        try:
            parsed.update(zip(new, commit_json.decode_commits(new), strict=True))
        except CorruptLogError:
            return tuple(self._decoded(data, source) for source, data in read)  # To name or replace the damaged one.
        if self.records is None:
            self._parsed.remember(parsed)
        return tuple(parsed[key] for key in keys)

    def _from_copy(
        self, source: PublishedCommit | StagedCommit | CompactedCommits, error: CmDeltaError, *, why: str
    ) -> bytes:
        """The ratified bytes from another place than ``source``. Raises ``error`` if no other place has them.

        Args:
            why: what is wrong with ``source``, for the warning.
        """
        if isinstance(error, ObjectNotFoundError):
            error.version = source.version
        if isinstance(source, CompactedCommits) or self.records is None:
            raise error
        record = next(iter(self.records_of(source.version)), None)
        data = None if record is None else self._copy_of(record, other_than=source.location)
        if data is None:
            raise error
        # A staged file is usually missing because it was deleted after publication; that needs no warning.
        if isinstance(source, PublishedCommit) or not isinstance(error, ObjectNotFoundError):
            self._warn(source.version, f"{source.location} {why}.")
        return data

    def _copy_of(self, record: RatifiedCommit, *, other_than: str) -> bytes | None:
        """The bytes that were ratified, from the catalog or a file other than ``other_than``; None if none has them."""
        if record.content is not None and is_ratified(record, record.content):
            return record.content
        files = (staged_source(self.location, record), published_source(self.location, record.version))
        for location in [file.location for file in files if file.location != other_than]:
            try:
                data = self.store.read(location)
            except ObjectNotFoundError:
                continue
            if is_ratified(record, data):
                return data
        # A catalog that was recovered from the log does not know the names of staged files.
        directory = log_files.staged_commits_directory(self.location)
        for name in staged_names_of(record.version, (status.name for status in self.store.list_from(directory))):
            location = f"{directory}/{name}"
            if location not in (other_than, files[0].location):
                try:
                    data = self.store.read(location)
                except ObjectNotFoundError:
                    continue
                if is_ratified(record, data):
                    return data
        return None

    def _altered(self, source: PublishedCommit | StagedCommit, what: str) -> CorruptLogError:
        return CorruptLogError(
            f"{source.location} has {what} the commit that the catalog ratified as version {source.version}: the file was "
            "altered or damaged after it was written, and no intact copy was found. Restore that file from a backup.",
            version=source.version,
        ).with_remedy(CheckTable())

    def _warn(self, version: int, what: str) -> None:
        """Log a warning, once for each version of a table and process."""
        with _WARNED_LOCK:
            known = (self.location, version) in _WARNED
            _WARNED.add((self.location, version))
        if not known:
            _log.warning(
                "Version %d of the table at %s is read from an intact copy: %s %s",
                version,
                self.location,
                what,
                advice(RepairTable()),
            )


def _located(place: str, error: CorruptLogError, version: int) -> CorruptLogError:
    """``error`` with the place of the commit of ``version``."""
    return CorruptLogError(
        f"{place} cannot be read: {error.message}", version=version, action=error.action, field=error.field
    ).with_remedy(error.remedy)


def interpreter_is_exiting() -> bool:
    """Whether the process runs its exit handlers, which cannot start a thread pool."""
    return not threading.main_thread().is_alive()
