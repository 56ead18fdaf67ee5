"""The copies of one ratified commit, and which bytes are proven. Changes nothing.

A commit has up to three copies: the content in the catalog, the staged file, the published file. A copy *fits* if it agrees with
the catalog's record. Bytes are *proven* as follows:

1. The record has a digest: the bytes of any copy with that SHA-256.
2. The record has no digest, since an older release ratified the commit: the bytes of the copies that agree with the record in
   size, ``txnId`` and in-commit timestamp and that can be parsed, if all such copies are equal. The version checksum must not
   contradict them; :mod:`~cm_delta_dagster.operations.doctor.check_state` checks that.

Repairs write only proven bytes.
"""

from collections.abc import Collection, Container
from dataclasses import dataclass, replace
from enum import StrEnum

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, published_source, staged_names_of
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import log_files


class CopyState(StrEnum):
    """ABSENT: there is no such copy. FITS: it agrees with the catalog's record. ALTERED: it does not."""

    ABSENT = "absent"
    FITS = "fits"
    ALTERED = "altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of a commit: its bytes, None if it is absent, and whether they fit."""

    data: bytes | None
    state: CopyState

    @classmethod
    def of(cls, record: RatifiedCommit, data: bytes | None) -> "Copy":
        if data is None:
            return cls(data=None, state=CopyState.ABSENT)
        return cls(data=data, state=CopyState.FITS if matches_record(record, data) else CopyState.ALTERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCopies:
    """The copies of the commit that ``record`` describes: in the catalog, staged and published."""

    record: RatifiedCommit
    content: Copy
    staged: Copy
    published: Copy

    @property
    def is_contested(self) -> bool:
        """Whether copies without a digest fit the record and differ from each other."""
        return len(self._fitting()) > 1

    @property
    def proven(self) -> bytes | None:
        """The ratified bytes; None if no copy is proven."""
        fitting = self._fitting()
        return fitting[0] if len(fitting) == 1 else None

    @property
    def exists(self) -> bool:
        """Whether there is a file of the commit, intact or not."""
        return self.staged.data is not None or self.published.data is not None

    def _fitting(self) -> list[bytes]:
        contents: list[bytes] = []
        for copy in (self.content, self.staged, self.published):
            if copy.state is CopyState.FITS and copy.data is not None and copy.data not in contents:
                contents.append(copy.data)
        return contents


def matches_record(record: RatifiedCommit, data: bytes) -> bool:
    """Whether ``data`` is the commit that was ratified as ``record``. If the record has no digest, ``data`` must also parse."""
    if not is_ratified(record, data):
        return False
    if record.sha256 is not None:
        return True
    try:
        commit_json.decode_commit(data, version=record.version)
    except CorruptLogError:
        return False
    return True


def foreign_transaction(data: bytes | None, record: RatifiedCommit, *, known: Container[str]) -> str | None:
    """Return the txnId in ``data`` if that is a complete commit without a record in the catalog, else None.

    Args:
        record: the record of the version in the name of the file.
        known: the transactions of all commits with a record in the catalog.
    """
    try:
        info = None if data is None else commit_json.decode_commit(data, version=record.version).commit_info
    except CorruptLogError:
        return None
    if data is None or info is None or not info.txn_id or info.txn_id in known:
        return None
    # The same time and length mean that the txnId of this commit was damaged; another commit differs in them.
    is_damaged = (info.in_commit_timestamp, len(data)) == (record.in_commit_timestamp, record.file_size)
    return None if is_damaged else info.txn_id


def staged_location(table: Table, record: RatifiedCommit) -> str:
    """Location of the staged file that the record names."""
    return f"{log_files.staged_commits_directory(table.location)}/{record.file_name}"


def read_copies(
    table: Table, record: RatifiedCommit, *, staged_names: Collection[str], served: RatifiedCommit | None = None
) -> CommitCopies:
    """Read every copy of one commit.

    Args:
        staged_names: names in ``_staged_commits``; other files are not requested.
        served: the same commit as the catalog serves it to readers, if it does.
    """
    content = record.content if served is None or served.content is None else served.content
    target = published_source(table.location, record.version).location
    published = read_or_none(table, target)
    copies = CommitCopies(
        record=record,
        content=Copy.of(record, content),
        staged=Copy.of(record, _staged_bytes(table, record, staged_names)),
        published=Copy.of(record, published),
    )
    if published is None and copies.proven is None:
        # It may have been published, and its staged file deleted, since the first read.
        copies = replace(copies, published=Copy.of(record, read_or_none(table, target)))
    return copies


def _staged_bytes(table: Table, record: RatifiedCommit, staged_names: Collection[str]) -> bytes | None:
    """The staged file of the commit, else a staged file of its version with the ratified bytes: a catalog that was recovered
    from the log does not know the names of staged files.
    """
    own = read_or_none(table, staged_location(table, record)) if record.file_name in staged_names else None
    if own is not None and is_ratified(record, own):
        return own
    directory = log_files.staged_commits_directory(table.location)
    for name in staged_names_of(record.version, staged_names):
        data = None if name == record.file_name else read_or_none(table, f"{directory}/{name}")
        if data is not None and is_ratified(record, data):
            return data
    return own


def read_or_none(table: Table, location: str) -> bytes | None:
    """Return the bytes of the object, None if it does not exist. Raises StorageError."""
    try:
        return table.store.read(location)
    except ObjectNotFoundError:
        return None
