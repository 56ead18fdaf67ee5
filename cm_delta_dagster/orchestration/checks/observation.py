"""What the checks of one run look at: the table, its snapshot and its log, each read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import VersionNotFoundError
from cm_delta_dagster.orchestration.checks.settings import CheckSettings
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import ObjectStatus

MAX_CHECKED_PARTITIONS = 2000
"""Newest partitions of which the rows are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAsset:
    """The asset of the checks, as far as its definition is known.

    Attributes:
        partition_expr: table column of each partition dimension, as in the write contract.
        column_schema: the declared columns; None if the definition declares none.
    """

    key: dg.AssetKey
    partitions: dg.PartitionsDefinition[Any] | None
    partition_expr: Mapping[str, str]
    column_schema: dg.TableSchema | None


@dataclass(frozen=True, kw_only=True)
class ObservedTable:
    """One table at one moment.

    Attributes:
        state: a held state of the table, which ``snapshot`` is then; None for the latest version.
        written: partitions that are not materialized yet, and that the state has.
        accepts_schema: the run asks to accept the schema as it is.
    """

    asset: CheckedAsset
    table: Table
    settings: CheckSettings
    instance: dg.DagsterInstance
    state: ReadableTable | None = None
    written: frozenset[str] = frozenset()
    accepts_schema: bool = False

    @cached_property
    def snapshot(self) -> Snapshot:
        """The latest version, or the held state."""
        return self._readable.snapshot()

    @property
    def _readable(self) -> ReadableTable:
        return self.state or self.table

    @cached_property
    def log(self) -> tuple[ObjectStatus, ...]:
        """Every file below ``_delta_log``."""
        return tuple(self.table.store.list_recursive(log_files.log_directory(self.table.location)))

    @cached_property
    def staged(self) -> tuple[ObjectStatus, ...]:
        """The files of ``_staged_commits``."""
        directory = f"{log_files.staged_commits_directory(self.table.location).rstrip('/')}/"
        return tuple(status for status in self.log if status.location.startswith(directory))

    @cached_property
    def data_changed_ms(self) -> tuple[int, bool]:
        """When the newest commit that changed data was made, epoch milliseconds. False if cleanup removed that commit: the time is
        then that of the oldest commit in the log, and the data is older.
        """
        if self.snapshot.data_version >= self.snapshot.version:
            return self.snapshot.timestamp_ms, True
        commits = self.table.commit_log()
        version = max(self.snapshot.data_version, commits.first)
        return commits.time_of(version), version == self.snapshot.data_version

    def rows_before_change(self) -> int | None:
        """Rows before the newest commit that changed data; None if there was no version, or it cannot be read or counted."""
        if self.snapshot.data_version <= 0:
            return None
        try:
            return self._readable.snapshot(version=self.snapshot.data_version - 1).num_rows
        except VersionNotFoundError:
            return None

    def materialized_partitions(self) -> tuple[str, ...]:
        """The newest materialized partitions of the asset, in the order of the definition."""
        if self.asset.partitions is None:
            return ()
        done = self.instance.get_materialized_partitions(self.asset.key) | self.written
        keys = self.asset.partitions.get_partition_keys(dynamic_partitions_store=self.instance)
        return tuple(key for key in keys if key in done)[-MAX_CHECKED_PARTITIONS:]
