"""Proves commit by commit that files of a log continue the history of a table. Changes nothing.

A commit follows the previous commit if it can be read, has a ``txnId`` and a later in-commit timestamp, belongs to the table by
its metadata, needs no feature that this client lacks, removes only live files, and agrees with the version checksum that the
same transaction wrote.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary
from cm_delta_dagster.catalog.tables import RecordedDefinition
from cm_delta_dagster.client.commits.changed_partitions import ChangedPartition, changed_partitions, feed_tags
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.errors import CorruptLogError, ProtocolError
from cm_delta_dagster.operations.recovery.plan import FoundCommit
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import CommitInfo, Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import dv_ids, table_to_adds, table_to_removes
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.column_mapping import column_mapping_mode
from cm_delta_dagster.protocol.features.identity_columns import same_columns
from cm_delta_dagster.protocol.features.table_features import check_readable, check_writable, is_catalog_managed
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log import log_files, version_checksum
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.protocol.schema.types import parse_schema
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.storage.store import ObjectStatus, Store

_SHOWN_TAGS = ("dagster/run_id", "dagster/asset_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFileContent:
    """A file that may be the commit of ``version``; ``name`` is bare, ``modification_time`` in epoch milliseconds."""

    version: int
    name: str
    data: bytes
    modification_time: int

    @classmethod
    def read(cls, store: Store, status: ObjectStatus, version: int) -> "CommitFileContent":
        """The content of the object. Raises StorageError."""
        data = store.read(status.location)
        return cls(version=version, name=status.name, data=data, modification_time=status.modification_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A commit of the chain: its record, its description, and the paths of the files that it adds."""

    proposal: CommitProposal
    description: FoundCommit
    added: pa.ChunkedArray


class RefusedError(Exception):
    """The file does not continue the history; the text says why. Recovery catches it and reports the file."""


class Chain:
    """A table's history from one version on, to which commits are added.

    Args:
        state: of the version before the first link; None for a chain that begins with version 0.
        timestamp_ms: in-commit timestamp of that version.
        known_txn_ids: of commits that the table has already.
    """

    def __init__(
        self,
        store: Store,
        location: str,
        *,
        table_id: str,
        state: TableState | None,
        timestamp_ms: int,
        known_txn_ids: Iterable[str] = (),
    ) -> None:
        self.state = state
        self.links: list[Link] = []
        self._store, self._location, self.table_id = store, location, table_id
        self._time = timestamp_ms
        self._txn_ids = set(known_txn_ids)
        self._defined = (-1 if state is None else state.version, timestamp_ms)

    @property
    def version(self) -> int:
        """Newest version of the chain."""
        return -1 if self.state is None else self.state.version

    def definition(self) -> RecordedDefinition:
        """Metadata and protocol after the newest version."""
        assert self.state is not None
        version, time = self._defined
        return RecordedDefinition(
            metadata=self.state.metadata, protocol=self.state.protocol, version=version, in_commit_timestamp=time
        )

    def row_id_mark(self) -> int | None:
        """The highest row id that was assigned up to the newest version; None without row tracking, or if its domain is damaged."""
        assert self.state is not None
        return row_tracking.stated_high_water_mark(self.state.domains)

    def check(self, file: CommitFileContent) -> tuple[CommitActions, CommitInfo, int, TableState]:
        """Return the parsed commit and the state after it if :meth:`add` would append it. Raises RefusedError."""
        commit, info, time = self._parsed(file)
        state = self._replayed(commit)
        self._check_files(commit)
        self._check_checksum(commit, info, state)
        return commit, info, time, state

    def add(self, file: CommitFileContent) -> Link:
        """Append the commit in ``file``. Raises RefusedError and changes nothing if it does not follow."""
        commit, info, time, state = self.check(file)
        return self._append(file, commit, info, time, state)

    def begin(self, file: CommitFileContent, state: TableState) -> Link:
        """Make the commit in ``file`` the first link; ``state`` is the table after it. Raises RefusedError."""
        commit, info, time = parsed(file)
        self._check_new(info, time)
        self._check_definition(state.metadata, state.protocol)
        self._check_checksum(commit, info, state)
        self._defined = (file.version, time)
        return self._append(file, commit, info, time, state)

    def _append(
        self, file: CommitFileContent, commit: CommitActions, info: CommitInfo, time: int, state: TableState
    ) -> Link:
        assert info.txn_id is not None
        if commit.metadata is not None or commit.protocol is not None:
            self._defined = (file.version, time)
        link = Link(
            proposal=_proposal(file, commit, info, state, before=self.state),
            description=_description(commit, info, time),
            added=commit.adds["path"],
        )
        self.state, self._time = state, time
        self._txn_ids.add(info.txn_id)
        self.links.append(link)
        return link

    def _parsed(self, file: CommitFileContent) -> tuple[CommitActions, CommitInfo, int]:
        if file.version != self.version + 1:
            before = (
                f"version {file.version} has another commit"
                if file.version <= self.version
                else f"the commit of version {self.version + 1} is missing"
            )
            raise RefusedError(f"it does not follow version {self.version}: {before}.")
        commit, info, time = parsed(file)
        self._check_new(info, time)
        return commit, info, time

    def _check_new(self, info: CommitInfo, time: int) -> None:
        if time <= self._time:
            raise RefusedError(
                f"its in-commit timestamp, {utc_text(time)}, is not later than that of the version before, {utc_text(self._time)}."
            )
        if info.txn_id in self._txn_ids:
            raise RefusedError(f"another commit of the table has the same txnId, {info.txn_id}.")

    def _replayed(self, commit: CommitActions) -> TableState:
        try:
            state = replay(self.state, (commit,), location=self._location)
        except CorruptLogError as error:
            raise RefusedError(str(error)) from error
        self._check_definition(state.metadata, state.protocol)
        return state

    def _check_definition(self, metadata: Metadata, protocol: Protocol) -> None:
        own = TableProperties(metadata.configuration).table_id
        if own not in (None, self.table_id):
            raise RefusedError(f"its metadata names the table id {own}, and this is table {self.table_id}.")
        if self.state is not None and metadata.id != self.state.metadata.id:
            raise RefusedError(f"its metadata has the id {metadata.id}, and the table's is {self.state.metadata.id}.")
        if not is_catalog_managed(protocol):
            raise RefusedError("its protocol does not list the feature catalogManaged.")
        try:
            check_readable(protocol, self._location)
            check_writable(protocol, self._location)
        except ProtocolError as error:
            raise RefusedError(str(error)) from error

    def _check_files(self, commit: CommitActions) -> None:
        if not commit.removes.num_rows:
            return
        live = None if self.state is None else _identities(self.state.files.adds, self._location)
        removed = _identities(commit.removes, self._location)
        is_live = pa.array([False] * len(removed)) if live is None else pc.is_in(removed, value_set=live)
        if not pc.all(is_live).as_py():
            path = commit.removes["path"].combine_chunks().filter(pc.invert(is_live))[0].as_py()
            raise RefusedError(f"it removes {path}, which the version before does not contain.")

    def _check_checksum(self, commit: CommitActions, info: CommitInfo, state: TableState) -> None:
        stored = read_checksum(self._store, self._location, commit.version)
        if stored is None or stored.txn_id not in (None, info.txn_id):
            return  # A checksum of another transaction does not apply.
        wrong = version_checksum.differences(stored, state)
        if wrong:
            raise RefusedError(
                f"{log_files.checksum_file_name(commit.version)}, which the same transaction wrote, contradicts it in "
                f"{', '.join(wrong)}; a part of the log is lost or was changed."
            )


def parsed(file: CommitFileContent) -> tuple[CommitActions, CommitInfo, int]:
    """Return the commit with its commitInfo and in-commit timestamp. Raises RefusedError."""
    try:
        commit = commit_json.decode_commit(file.data, version=file.version)
    except CorruptLogError as error:
        raise RefusedError(f"it cannot be read: {error}") from error
    info = commit.commit_info
    if info is None or not info.txn_id or info.in_commit_timestamp is None:
        raise RefusedError(
            "it has no commitInfo with txnId and inCommitTimestamp, which every commit of a catalog-managed table has."
        )
    return commit, info, info.in_commit_timestamp


def describe_commit(file: CommitFileContent) -> FoundCommit:
    """Return the description of the commit in ``file``, without checking what it follows. Raises RefusedError."""
    return _description(*parsed(file))


def _identities(files: pa.Table, location: str) -> pa.Array:
    """Path and deletion vector of each file, which a remove action refers to."""
    keys = file_keys(location, files["path"])
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    return pc.binary_join_element_wise(keys, pc.fill_null(dv_ids(files), ""), "\n")


def _description(commit: CommitActions, info: CommitInfo, time: int) -> FoundCommit:
    tags = info.tags or {}
    by = [info.user_name, info.engine_info, *(f"{name} {tags[name]}" for name in _SHOWN_TAGS if name in tags)]
    return FoundCommit(
        version=commit.version,
        txn_id=info.txn_id or "",
        timestamp_ms=time,
        operation=info.operation or "",
        made_by=", ".join(part for part in by if part),
        num_added_files=commit.adds.num_rows,
        num_removed_files=commit.removes.num_rows,
        num_rows=logical_row_count(commit.adds),
        group=commit.transaction_group,
    )


def _proposal(
    file: CommitFileContent, commit: CommitActions, info: CommitInfo, state: TableState, *, before: TableState | None
) -> CommitProposal:
    """The proposal that the writer of the commit sends to the catalog.

    Args:
        state: the table after the commit; ``before``: the table before it, None if it is not known.
    """
    assert info.txn_id is not None and info.in_commit_timestamp is not None
    tags = dict(info.tags or {})
    changed = _changed_partitions(commit, state, before)
    if changed is not None:
        tags |= feed_tags(changed)
    # The metadata of version 0 creates the table and changes no data.
    redefines = commit.metadata is not None and commit.version > 0
    return CommitProposal(
        version=file.version,
        file_name=file.name,
        file_size=len(file.data),
        file_modification_time=file.modification_time,
        mode=CommitMode.STAGED,
        sha256=digest_of(file.data),
        summary=CommitSummary(
            txn_id=info.txn_id,
            in_commit_timestamp=info.in_commit_timestamp,
            operation=info.operation or "",
            data_change=redefines or commit.has_data_change,
            metrics=dict(info.operation_metrics or {}),
            tags=tags,
            engine_info=info.engine_info,
            user_metadata=info.user_metadata,
        ),
    )


def _changed_partitions(
    commit: CommitActions, state: TableState, before: TableState | None
) -> tuple[ChangedPartition, ...] | None:
    """The partitions of the files that change data, as in the commit feed; None if not known."""
    columns = state.metadata.partition_columns
    if not columns or (commit.version > 0 and not _changes_rows_only(commit, before)):
        return None
    adds, removes = (files.filter(pc.fill_null(files["dataChange"], True)) for files in (commit.adds, commit.removes))
    if adds["partitionValues"].null_count:
        return None
    return changed_partitions(
        [replace(add, data_change=True) for add in table_to_adds(adds)],
        [replace(remove, data_change=True) for remove in table_to_removes(removes)],
        columns=columns,
        schema=parse_schema(state.metadata.schema_string),
        mapping=column_mapping_mode(state.protocol, state.metadata),
    )


def _changes_rows_only(commit: CommitActions, before: TableState | None) -> bool:
    """Whether a commit leaves the columns of the table as they are; as ``Transaction.changed_partitions`` has it."""
    if commit.metadata is None:
        return True
    return commit.has_data_change and before is not None and same_columns(before.metadata, commit.metadata)
