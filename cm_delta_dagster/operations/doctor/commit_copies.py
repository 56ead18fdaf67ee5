"""The copies of one ratified commit, and which of them is proven. Nothing is changed here.

A commit may stand in up to three places: in the catalog's content, in its staged file, in its published file. A copy *fits* if it
is what the catalog's record says. Which bytes are *proven*:

1. The record has a digest: the bytes of any copy with that SHA-256.
2. The record has none, since the commit was ratified before catalogs kept digests: the bytes of the copies that agree with the
   record in size, ``txnId`` and in-commit timestamp and that can be parsed, if all such copies are equal. The version checksum
   must not contradict them either; :mod:`~cm_delta_dagster.operations.doctor.state_check` looks at that.

Nothing else is proven, and nothing is repaired from it.
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
    """ABSENT: there is no such copy. FITS: it is what the catalog's record says. ALTERED: it is not."""

    ABSENT = "absent"
    FITS = "fits"
    ALTERED = "altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of a commit: its bytes, None if it is not there, and what they are worth."""

    data: bytes | None
    state: CopyState

    @classmethod
    def of(cls, record: RatifiedCommit, data: bytes | None) -> "Copy":
        if data is None:
            return cls(data=None, state=CopyState.ABSENT)
        return cls(data=data, state=CopyState.FITS if fits(record, data) else CopyState.ALTERED)


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
        """The bytes that were ratified; None if no copy proves to be them."""
        fitting = self._fitting()
        return fitting[0] if len(fitting) == 1 else None

    @property
    def exists(self) -> bool:
        """Whether there is any file of the commit, whatever it is worth."""
        return self.staged.data is not None or self.published.data is not None

    def _fitting(self) -> list[bytes]:
        found: list[bytes] = []
        for copy in (self.content, self.staged, self.published):
            if copy.state is CopyState.FITS and copy.data is not None and copy.data not in found:
                found.append(copy.data)
        return found


def fits(record: RatifiedCommit, data: bytes) -> bool:
    """Whether ``data`` is what ``record`` says; without a digest it has to be a commit that can be parsed, too."""
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
    """The txnId in ``data`` if that is a whole commit which the catalog has no record of; None if it is anything else.

    Args:
        record: of the version under whose name the data lies.
        known: the transactions of all commits that the catalog has records of.
    """
    try:
        info = None if data is None else commit_json.decode_commit(data, version=record.version).commit_info
    except CorruptLogError:
        return None
    if data is None or info is None or not info.txn_id or info.txn_id in known:
        return None
    # Damage may have hit the txnId alone; another commit has another time and, as a rule, another length.
    is_damaged = (info.in_commit_timestamp, len(data)) == (record.in_commit_timestamp, record.file_size)
    return None if is_damaged else info.txn_id


def staged_location(table: Table, record: RatifiedCommit) -> str:
    return f"{log_files.staged_commits_directory(table.location)}/{record.file_name}"


def read_copies(
    table: Table, record: RatifiedCommit, *, staged_names: Collection[str], served: RatifiedCommit | None = None
) -> CommitCopies:
    """Read every copy of one commit.

    Args:
        staged_names: names in ``_staged_commits``; a file that is not among them is not asked for.
        served: the same commit as the catalog serves it to readers, where it does.
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
        # Published and its staged file cleaned up in between, perhaps.
        copies = replace(copies, published=Copy.of(record, read_or_none(table, target)))
    return copies


def _staged_bytes(table: Table, record: RatifiedCommit, staged_names: Collection[str]) -> bytes | None:
    """The staged file of the commit, or the one of its version that has the ratified bytes: a catalog that was recovered from
    the log does not know the names of staged files."""
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
    """The object's bytes, None if it is not there. Raises StorageError."""
    try:
        return table.store.read(location)
    except ObjectNotFoundError:
        return None
