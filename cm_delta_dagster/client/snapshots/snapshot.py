"""A table at one version (protocol heading "Action Reconciliation"). Immutable; a refresh returns another snapshot."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property

import pyarrow as pa

from cm_delta_dagster.catalog.commit_policy import STAGED_POLICY, CommitPolicy
from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.client.snapshots.unreadable_versions import without_time
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.clustering import clustering_columns
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, column_mapping_mode
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.action_reconciliation import NO_VERSION, FileState, TableState, replay
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
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
        commit_time: what :attr:`timestamp_ms` is, or a function that finds it in the log.
        commit_policy: how the catalog wanted commits when the snapshot was loaded.
        reported_counts: what the commit of this version reported to the catalog, if this client made it. With it, the counts
            after the next commit need no reconciliation.
        time_zone: of partition values of type ``timestamp`` that state none; None for that of the Spark session, or UTC without
            a session.
    """

    identifier: str
    table_id: str
    location: str
    version: int
    published_version: int
    data_version: int
    commit_time: int | Callable[[], int]
    state: TableState
    commit_policy: CommitPolicy = STAGED_POLICY
    reported_counts: TableCounts | None = None
    time_zone: tzinfo | None = None

    def __repr__(self) -> str:
        files = ""
        if self.reported_counts is not None:
            files = f", num_files={self.reported_counts.num_files}"
        elif self.state.files.is_reconciled:
            files = f", num_files={self.num_files}"
        return f"{type(self).__name__}({self.identifier!r}, version={self.version}{files})"

    @classmethod
    def before_creation(
        cls,
        *,
        identifier: str,
        table_id: str,
        location: str,
        protocol: Protocol,
        metadata: Metadata,
        domains: Mapping[str, DomainMetadata],
    ) -> "Snapshot":
        """What version 0 builds on: a table without rows and versions. All its versions are ``NO_VERSION``.

        It has the protocol, the metadata and the domains that version 0 sets, so that a write is checked against them.
        """
        return cls(
            identifier=identifier,
            table_id=table_id,
            location=location,
            version=NO_VERSION,
            published_version=NO_VERSION,
            data_version=NO_VERSION,
            commit_time=0,
            state=TableState.before_creation(protocol=protocol, metadata=metadata, domains=domains, location=location),
        )

    @cached_property
    def timestamp_ms(self) -> int:
        """Commit time of ``version`` in epoch milliseconds, as in the history of the table.

        It is the in-commit timestamp if the latest version says that this version has one, else the time of the commit file.
        """
        return self.commit_time if isinstance(self.commit_time, int) else self.commit_time()

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
    def clustering_columns(self) -> tuple[ColumnPath, ...]:
        """Paths of the logical names of the clustering columns, in order; empty if there are none.

        Raises:
            CorruptLogError: the metadata domain of the columns is damaged.
        """
        return clustering_columns(self.domains, self.schema, self.column_mapping)

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
            time_zone=self.time_zone,
        )

    def in_time_zone(self, zone: tzinfo | None) -> "Snapshot":
        """The same state with another :attr:`time_zone`. What this object has computed is not computed again."""
        if zone is self.time_zone:
            return self
        other = copy.copy(self)
        object.__setattr__(other, "time_zone", zone)
        other.__dict__.pop("layout", None)
        return other

    def with_files(self, files: FileState) -> "Snapshot":
        """The same version with these files in place of its own."""
        return replace(self, state=replace(self.state, files=files), reported_counts=None)

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
        reported = None if self.reported_counts is None else self.reported_counts.num_rows
        return logical_row_count(self.files) if reported is None else reported

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
            zone=self.time_zone,
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
        raise without_time(last.version, base.identifier, last.commit_info, "of a catalog-managed table")
    data_version = max((c.version for c in commits if changes_data(c)), default=base.data_version)
    return replace(
        base,
        state=state,
        version=last.version,
        published_version=min(max(base.published_version, published_version), last.version),
        data_version=max(data_version, base.data_version),
        commit_time=last.commit_info.in_commit_timestamp,
        reported_counts=None,
    )


def changes_data(commit: CommitActions) -> bool:
    """Whether a commit changed rows or metadata, as :attr:`CommitSummary.data_change` has it."""
    return commit.metadata is not None or commit.has_data_change
