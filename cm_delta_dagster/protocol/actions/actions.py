"""Actions of a commit, as frozen values (protocol heading "Actions").

The file actions of a table are kept in columns (:mod:`~cm_delta_dagster.protocol.actions.file_columns`); ``AddFile`` and
``RemoveFile`` represent the few that a single transaction proposes. JSON names are defined in
:mod:`~cm_delta_dagster.protocol.actions.action_fields`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a client must support to read and to write the table.

    ``reader_features`` is None unless the reader version is 3, ``writer_features`` unless the writer version is 7. Feature names
    are in the order of the log.
    """

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The table's schema (as the log's JSON text), partition columns (logical names) and configuration."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    format_provider: str = "parquet"
    format_options: Mapping[str, str] = field(default_factory=dict)
    created_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransaction:
    """``txn``: the latest ``version`` of the application ``app_id``; ``last_updated`` in epoch milliseconds."""

    app_id: str
    version: int
    last_updated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainMetadata:
    """Named configuration of a feature (``delta.*``) or a user; ``removed`` makes it a tombstone."""

    domain: str
    configuration: str
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorDescriptor:
    """Where the deletion vector of a file is stored (protocol heading "Deletion Vector Descriptor Schema").

    ``storage_type`` is ``u`` for a file named by a UUID, ``p`` for a file named by its absolute path, ``i`` for an inline vector.
    """

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """With the path this identifies a logical file: storage type, path or inline data, and ``@offset`` if it is set."""
        base = f"{self.storage_type}{self.path_or_inline_dv}"
        return base if self.offset is None else f"{base}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile:
    """A data file that the commit adds to the table.

    ``path`` is percent-encoded as in the log, ``size`` is in bytes, ``modification_time`` in epoch milliseconds, and ``stats`` is
    JSON text.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile:
    """A data file that the commit removes from the table; ``deletion_timestamp`` in epoch milliseconds."""

    path: str
    data_change: bool = True
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCdcFile:
    """``cdc``: a change data file; its ``dataChange`` is always false."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    tags: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """Provenance of a commit. ``extra`` keeps all other fields of the JSON object."""

    in_commit_timestamp: int | None = None
    timestamp: int | None = None
    txn_id: str | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, str] = field(default_factory=dict)
    operation_metrics: Mapping[str, str] | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    engine_info: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    user_metadata: str | None = None
    tags: Mapping[str, str] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


TRANSACTION_TAG = "delta.multiTableTransaction.transactionId"
"""Tag of ``commitInfo`` and of the commit feed: the id that the commits of one transaction over several tables share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParticipant:
    """One table of a transaction over several tables, by the id that the catalog gives it, and the version proposed for it.

    ``extra`` keeps all other fields of the JSON object.
    """

    table_id: str
    proposed_version: int
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionGroup:
    """``transactionGroup``: the transaction over several tables that a commit is a part of. Readers ignore it.

    It is equal in the commits of all participants, of which there are two or more. ``coordinating_catalog`` is the id of the
    catalog that ratifies them; ``extra`` keeps all other fields of the JSON object.
    """

    transaction_id: str
    participants: tuple[GroupParticipant, ...]
    coordinating_catalog: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of ``commitInfo`` in each of the commits."""
        return {TRANSACTION_TAG: self.transaction_id}

    def proposed_version(self, table_id: str) -> int | None:
        """The version that the transaction proposes for the table; None if the table does not take part."""
        return next((part.proposed_version for part in self.participants if part.table_id == table_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """First action of a V2 checkpoint."""

    version: int
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFile:
    """Reference of a V2 checkpoint to one file of ``_delta_log/_sidecars``."""

    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str] | None = None


Action: TypeAlias = (
    CommitInfo
    | Protocol
    | Metadata
    | SetTransaction
    | DomainMetadata
    | TransactionGroup
    | AddFile
    | RemoveFile
    | AddCdcFile
)
"""The actions of a commit file. Checkpoints may also contain :class:`CheckpointMetadata` and :class:`SidecarFile`."""
