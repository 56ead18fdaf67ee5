"""Builds table states from checkpoints and commits (protocol heading "Action Reconciliation").

The newest action for a logical file, identified by ``(path, dvId)``, decides whether the file is live or a tombstone. The state
is columnar and layered: the file actions of a commit form a layer over the older columns until the state is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, size_of
from cm_delta_dagster.protocol.features.row_tracking import highest_row_id
from cm_delta_dagster.protocol.log.checkpoint_content import CheckpointContent
from cm_delta_dagster.protocol.log.file_set import FileSet, KeyedFiles
from cm_delta_dagster.protocol.statistics.file_index import FileIndex
from cm_delta_dagster.protocol.statistics.statistics import num_records

NO_VERSION = -1
"""Version of a table before its first commit: each commit makes the version after that of its predecessor, the first one 0."""

_MAX_LAYERS = 64


@dataclass(frozen=True, slots=True)
class _Layer:
    """The file actions of one commit."""

    adds: pa.Table
    removes: pa.Table


@dataclass(frozen=True)
class FileState:
    """Live files and tombstones.

    Invariant: no logical file is both live and a tombstone. The first access to ``adds`` or ``removes`` reconciles the layers
    and keeps the result, so applying a commit does not depend on the size of the table.
    """

    location: str
    _base: "FileState | None" = None
    _layers: tuple[_Layer, ...] = ()
    _reconciled: tuple[FileSet, FileSet] | None = None
    index: FileIndex = field(default_factory=FileIndex, compare=False, repr=False)
    """Parsed columns of ``adds``, shared with the states derived from this one."""

    @classmethod
    def of(cls, adds: pa.Table, removes: pa.Table, *, location: str) -> "FileState":
        """A state of file actions that are already reconciled, such as those of a checkpoint."""
        reconciled = (FileSet.of(adds, location=location), FileSet.of(removes, location=location))
        return cls(location=location, _reconciled=reconciled)

    @classmethod
    def empty(cls, location: str) -> "FileState":
        return cls.of(ADD_SCHEMA.empty_table(), REMOVE_SCHEMA.empty_table(), location=location)

    def apply(self, commits: Sequence[CommitActions]) -> "FileState":
        """The state after ``commits``, oldest first."""
        layers = tuple(
            _Layer(commit.adds, commit.removes) for commit in commits if commit.adds.num_rows or commit.removes.num_rows
        )
        if not layers:
            return self
        if self._base is not None and not self.is_reconciled and len(self._layers) + len(layers) <= _MAX_LAYERS:
            return replace(self, _layers=self._layers + layers)
        return FileState(location=self.location, _base=self._detached(), _layers=layers, index=self.index)

    def _detached(self) -> "FileState":
        """The same state without references to the states it was derived from, so that they can be freed."""
        if self._base is None or not self.is_reconciled:
            return self
        detached = FileState(location=self.location, _reconciled=self._sets, index=self.index)
        if "highest_row_id" in self.__dict__:
            detached.__dict__["highest_row_id"] = self.highest_row_id
        return detached

    @property
    def is_reconciled(self) -> bool:
        """Whether the files are known without work."""
        return self._reconciled is not None or "_sets" in self.__dict__

    @cached_property
    def _sets(self) -> tuple[FileSet, FileSet]:
        if self._reconciled is not None:
            return self._reconciled
        assert self._base is not None
        live, dead = self._base._sets
        adds, removes, touched = _newest(self._layers, self.location)
        return live.without(touched).plus(adds), dead.without(touched).plus(removes)

    @property
    def adds(self) -> pa.Table:
        """Live files, columns of ``ADD_SCHEMA``."""
        return self._sets[0].table

    @property
    def removes(self) -> pa.Table:
        """Tombstones, columns of ``REMOVE_SCHEMA``."""
        return self._sets[1].table

    @property
    def num_files(self) -> int:
        return len(self._sets[0])

    @property
    def size_bytes(self) -> int:
        return size_of(self.adds)

    @cached_property
    def highest_row_id(self) -> int:
        """The highest row id of the files, -1 without ids. Of files that later commits removed it may count ids too.

        It needs no reconciliation, and parses only what ``index`` has not parsed before.
        """
        if self._reconciled is None:
            assert self._base is not None
            with_ids = (layer.adds for layer in self._layers if _has_row_ids(layer.adds))
            layers = (highest_row_id(adds["baseRowId"], num_records(adds["stats"])) for adds in with_ids)
            return max(self._base.highest_row_id, *layers, -1)
        adds = self.adds
        if not _has_row_ids(adds):
            return -1
        return highest_row_id(adds["baseRowId"], self.index.statistics(adds, {}).num_records)


def _has_row_ids(adds: pa.Table) -> bool:
    return bool(adds["baseRowId"].null_count < adds.num_rows)


def _newest(layers: Sequence[_Layer], location: str) -> tuple[KeyedFiles, KeyedFiles, KeyedFiles]:
    """The newest add or remove of each logical file in ``layers``, oldest first, and all files that occur in them.

    The order of actions within a commit has no meaning. A commit that adds and removes the same logical file is invalid; the
    file is then live, so that no row is lost.
    """
    adds = KeyedFiles.of(pa.concat_tables([layer.adds for layer in layers]), location)
    removes = KeyedFiles.of(pa.concat_tables([layer.removes for layer in layers]), location)
    touched = KeyedFiles.concat([adds.identities(), removes.identities()])
    rows = _rows_of_equal_hashes(touched.hashes)
    if not len(rows):
        return adds, removes, touched
    order = np.concatenate(
        [
            np.repeat(np.arange(len(layers)), [layer.adds.num_rows for layer in layers]) * 2 + 1,
            np.repeat(np.arange(len(layers)), [layer.removes.num_rows for layer in layers]) * 2,
        ]
    )
    codes = pc.dictionary_encode(touched.keys(rows)).indices.to_numpy(zero_copy_only=False)
    ranked = np.lexsort((order[rows], codes))
    decides = np.ones(len(touched.hashes), dtype=bool)
    decides[rows[ranked[:-1][codes[ranked][1:] == codes[ranked][:-1]]]] = False
    count = adds.files.num_rows
    return adds.filter(decides[:count]), removes.filter(decides[count:]), touched


def _rows_of_equal_hashes(hashes: np.ndarray) -> np.ndarray:
    """Row numbers, ascending, whose hash occurs more than once; these rows may refer to the same file."""
    ordered = np.sort(hashes)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return np.zeros(0, dtype=np.int64)
    places = np.searchsorted(repeated, hashes).clip(max=len(repeated) - 1)
    return np.flatnonzero(repeated[places] == hashes)


@dataclass(frozen=True, kw_only=True)
class TableState:
    """The state of a table at ``version``, or before its first commit. ``domains`` contains no removed domains.

    ``metadata_version`` is that of the commit that set ``metadata``; None if a checkpoint has it.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    files: FileState
    transactions: Mapping[str, SetTransaction] = field(default_factory=lambda: MappingProxyType({}))
    domains: Mapping[str, DomainMetadata] = field(default_factory=lambda: MappingProxyType({}))
    metadata_version: int | None = field(default=None, compare=False)

    @classmethod
    def before_creation(
        cls, *, protocol: Protocol, metadata: Metadata, domains: Mapping[str, DomainMetadata], location: str
    ) -> "TableState":
        """The state that version 0 builds on: no files, and the protocol, the metadata and the domains that version 0 sets."""
        return cls(
            version=NO_VERSION, protocol=protocol, metadata=metadata, files=FileState.empty(location), domains=domains
        )


def replay(base: TableState | None, commits: Iterable[CommitActions], *, location: str) -> TableState:
    """Apply ``commits`` to ``base``.

    Args:
        base: None to start from an empty state.
        commits: the versions that follow ``base`` without a gap, oldest first.
        location: absolute URI of the table root.

    Raises:
        CorruptLogError: the result has no protocol or no metadata.
    """
    ordered = list(commits)
    protocol = None if base is None else base.protocol
    metadata = None if base is None else base.metadata
    transactions = {} if base is None else dict(base.transactions)
    domains = {} if base is None else dict(base.domains)
    metadata_version = None if base is None else base.metadata_version
    for commit in ordered:
        protocol = commit.protocol or protocol
        if commit.metadata is not None:
            metadata, metadata_version = commit.metadata, commit.version
        transactions.update((transaction.app_id, transaction) for transaction in commit.transactions)
        domains.update((domain.domain, domain) for domain in commit.domains)
    if protocol is None or metadata is None:
        missing = " and ".join(
            name for name, value in (("protocol", protocol), ("metaData", metadata)) if value is None
        )
        raise CorruptLogError(
            f"The log of {location} contains no {missing} action, which every table must have; it is incomplete."
        )
    files = FileState.empty(location) if base is None else base.files
    return TableState(
        version=ordered[-1].version if ordered else (NO_VERSION if base is None else base.version),
        protocol=protocol,
        metadata=metadata,
        files=files.apply(ordered),
        transactions=MappingProxyType(transactions),
        domains=MappingProxyType({name: domain for name, domain in domains.items() if not domain.removed}),
        metadata_version=metadata_version,
    )


def state_from_checkpoint(contents: Sequence[CheckpointContent], *, version: int, location: str) -> TableState:
    """Combine the files of one checkpoint, including its sidecars, into a table state.

    Raises:
        CorruptLogError: the files contain no protocol or no metadata, or are of another version.
    """
    for content in contents:
        if content.checkpoint_metadata is not None and content.checkpoint_metadata.version != version:
            raise CorruptLogError(
                f"The checkpoint of version {version} of {location} is ignored: its checkpointMetadata action names version "
                f"{content.checkpoint_metadata.version}."
            )
    adds = pa.concat_tables([ADD_SCHEMA.empty_table(), *(content.adds for content in contents)])
    removes = pa.concat_tables([REMOVE_SCHEMA.empty_table(), *(content.removes for content in contents)])
    small = [
        CommitActions(
            version=version,
            commit_info=None,
            protocol=content.protocol,
            metadata=content.metadata,
            transactions=tuple(content.transactions),
            domains=tuple(content.domains),
            adds=ADD_SCHEMA.empty_table(),
            removes=REMOVE_SCHEMA.empty_table(),
            cdc=(),
        )
        for content in contents
    ]
    files = FileState.of(adds, removes, location=location)
    return replace(replay(None, small, location=location), files=files, version=version, metadata_version=None)
