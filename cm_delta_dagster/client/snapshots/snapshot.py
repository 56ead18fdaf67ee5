"""A table at one version (protocol heading "Action Reconciliation"). Immutable; a refresh returns another snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from cm_delta_dagster.catalog.commit_policy import STAGED_POLICY, CommitPolicy
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, column_mapping_mode
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.action_reconciliation import NO_VERSION, TableState, replay
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate
from cm_delta_dagster.protocol.schema.types import StructType, parse_schema
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of one table at one version.

    Invariants: ``state`` is the reconciled state of exactly ``version``; ``published_version <= version`` unless the catalog
    has moved on; a later refresh never changes this object.

    Attributes:
        identifier: name in the catalog, or the location of a table without one.
        location: absolute URI of the table root, no trailing slash.
        published_version: newest version known to be in ``_delta_log``, at most ``version``.
        data_version: newest version at or before ``version`` that changed data.
        timestamp_ms: commit time of ``version``: its in-commit timestamp.
        commit_policy: how the catalog wanted commits when the snapshot was loaded.
    """

    identifier: str
    table_id: str
    location: str
    version: int
    published_version: int
    data_version: int
    timestamp_ms: int
    state: TableState
    commit_policy: CommitPolicy = STAGED_POLICY

    @classmethod
    def before_creation(
        cls, *, identifier: str, table_id: str, location: str, protocol: Protocol, metadata: Metadata
    ) -> "Snapshot":
        """What version 0 builds on: a table without rows and versions. All its versions are ``NO_VERSION``.

        It has the protocol and the metadata that version 0 sets, so that a write is checked against them.
        """
        return cls(
            identifier=identifier,
            table_id=table_id,
            location=location,
            version=NO_VERSION,
            published_version=NO_VERSION,
            data_version=NO_VERSION,
            timestamp_ms=0,
            state=TableState.before_creation(protocol=protocol, metadata=metadata, location=location),
        )

    @property
    def protocol(self) -> Protocol:
        return self.state.protocol

    @property
    def metadata(self) -> Metadata:
        return self.state.metadata

    @property
    def transactions(self) -> Mapping[str, SetTransaction]:
        """Latest ``txn`` of each application."""
        return self.state.transactions

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """Live domain metadata by name."""
        return self.state.domains

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.state.metadata.partition_columns

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.state.metadata.schema_string)

    @cached_property
    def column_mapping(self) -> ColumnMappingMode:
        return column_mapping_mode(self.state.protocol, self.state.metadata)

    @cached_property
    def properties(self) -> TableProperties:
        return TableProperties(self.state.metadata.configuration)

    @cached_property
    def layout(self) -> TableLayout:
        """The properties of the table that scans and writes use."""
        return TableLayout(
            location=self.location,
            schema=self.schema,
            partition_columns=self.partition_columns,
            mapping=self.column_mapping,
            properties=self.properties,
        )

    @property
    def files(self) -> pa.Table:
        """Live files, one row each, columns of ``file_columns.ADD_SCHEMA``."""
        return self.state.files.adds

    @property
    def tombstones(self) -> pa.Table:
        """Removed files, columns of ``file_columns.REMOVE_SCHEMA``."""
        return self.state.files.removes

    @property
    def num_files(self) -> int:
        return self.state.files.num_files

    @property
    def size_bytes(self) -> int:
        """Bytes of all live files."""
        return self.state.files.size_bytes

    @cached_property
    def num_rows(self) -> int | None:
        """Rows of the table from statistics and deletion vectors; None if some file has no row count."""
        return logical_row_count(self.files)

    def matching_files(self, predicate: Predicate | None) -> pa.Table:
        """Live files that may hold a row for which ``predicate`` is true; all of them for None."""
        if predicate is None or isinstance(predicate, AlwaysTrue):
            return self.files
        files = self.files
        mask = keep_mask(
            files,
            predicate,
            schema=self.schema,
            partition_columns=self.partition_columns,
            mapping=self.column_mapping,
            index=self.state.files.index,
        )
        return files.filter(mask)


def advance(base: Snapshot, commits: Sequence[CommitActions], *, published_version: int) -> Snapshot:
    """``base`` with ``commits``, which follow it without a gap, applied.

    Raises CorruptLogError if the last commit has no in-commit timestamp.
    """
    if not commits:
        return replace(base, published_version=min(max(base.published_version, published_version), base.version))
    state = replay(base.state, commits, location=base.location)
    last = commits[-1]
    if last.commit_info is None or last.commit_info.in_commit_timestamp is None:
        raise CorruptLogError(
            f"Version {last.version} of {base.identifier} has no inCommitTimestamp in its first action, which every commit of "
            "a catalog-managed table must have; the commit is corrupt."
        )
    data_version = max((c.version for c in commits if changes_data(c)), default=base.data_version)
    return replace(
        base,
        state=state,
        version=last.version,
        published_version=min(max(base.published_version, published_version), last.version),
        data_version=max(data_version, base.data_version),
        timestamp_ms=last.commit_info.in_commit_timestamp,
    )


def changes_data(commit: CommitActions) -> bool:
    """Whether a commit changed rows or metadata, as :attr:`CommitSummary.data_change` has it."""
    return commit.metadata is not None or commit.has_data_change
