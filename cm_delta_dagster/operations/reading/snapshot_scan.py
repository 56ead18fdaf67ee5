"""What a read returns: the rows and columns of one version of a table, for the readers with Spark and without it.

A scan is bound to its version, so that all that is read of it agrees. Importing this module needs no Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property

import pyarrow as pa

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate, names_table, names_version
from cm_delta_dagster.protocol.actions.file_columns import REMOVE_SCHEMA
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns, row_id_columns
from cm_delta_dagster.protocol.log.action_reconciliation import FileState
from cm_delta_dagster.protocol.predicates.predicates import Opaque, Predicate, leaves
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.storage.store import Store

_ROW_IDS = (ROW_ID, ROW_COMMIT_VERSION)


@dataclass(frozen=True, kw_only=True, eq=False)
class SnapshotScan:
    """Rows and columns of one version. No file has been opened.

    Attributes:
        snapshot: the version. Its time zone is that of times that state none, in partition values and in ``where``.
        store: the storage of the table.
        columns: columns to return, in this order, spelled as in the schema; all of the table for None. A table with row tracking
            also has ``_row_id`` and ``_row_commit_version``, which must be named to be returned.
        where: condition on the rows, SQL text or a predicate value; it also decides which files are opened.

    Raises:
        InvalidArgumentError: ``columns`` is a text or names an unknown column.
    """

    snapshot: Snapshot
    store: Store
    columns: Sequence[str] | None = None
    where: Predicate | str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            with names_version(self.snapshot):
                object.__setattr__(self, "columns", _spelled(self.columns, self.snapshot))

    @property
    def identifier(self) -> str:
        """The name of the table, or its location; messages contain it."""
        return self.snapshot.identifier

    @cached_property
    def predicate(self) -> Predicate | None:
        """The condition; None for all rows. Raises InvalidArgumentError if ``where`` is not a condition."""
        with names_version(self.snapshot):
            return as_predicate(self.where, self.snapshot.schema, zone=self.snapshot.time_zone)

    @cached_property
    def files(self) -> pa.Table:
        """The files that may hold a requested row, columns of ``file_columns.ADD_SCHEMA``."""
        return self.snapshot.matching_files(self.predicate)

    @property
    def row_ids(self) -> RowIdColumns | None:
        """Names of the row tracking columns in data files; None if no row ids are requested.

        Raises:
            InvalidArgumentError: the table has no row ids.
        """
        if not any(is_row_id(name, self.snapshot.schema) for name in self.columns or ()):
            return None
        with names_version(self.snapshot):
            return row_id_columns(self.snapshot.protocol, self.snapshot.metadata, self.identifier)

    def check(self) -> None:
        """Raise InvalidArgumentError for a condition that cannot be parsed, and for row ids that the table does not have."""
        _ = self.predicate, self.row_ids

    def with_files(self, files: pa.Table) -> "SnapshotScan":
        """The same scan of these files of the version, columns of ``file_columns.ADD_SCHEMA``."""
        state = FileState.of(files, REMOVE_SCHEMA.empty_table(), location=self.snapshot.location)
        return replace(self, snapshot=self.snapshot.with_files(state))

    def in_time_zone(self, zone: tzinfo | None) -> "SnapshotScan":
        """The same scan with another time zone for times that state none."""
        if zone is self.snapshot.time_zone:
            return self
        scan = replace(self, snapshot=self.snapshot.in_time_zone(zone))
        parsed = vars(self).get("predicate")
        # Without a zone, what needs one is left to the engine: what is understood completely is the same in every zone.
        if self.snapshot.time_zone is None and parsed is not None and not _has_opaque_part(parsed):
            vars(scan)["predicate"] = parsed
        return scan


@names_table
def open_scan(
    table: ReadableTable,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
    time_zone: tzinfo | None = None,
) -> SnapshotScan:
    """A scan of the table at its latest version, at ``version``, or as of ``timestamp_ms``.

    Args:
        columns, where: as in :class:`SnapshotScan`.
        timestamp_ms: epoch milliseconds.
        time_zone: of times that state none; that of the table for None.

    Raises:
        VersionNotFoundError: no such version or time.
        InvalidArgumentError: an unknown column, or a version that is not a whole number.
        CorruptLogError: the log is damaged.
        UnsupportedFeatureError: the table needs a feature that this client does not support.
    """
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidArgumentError(f"version is {version!r}; give a whole number.")
    snapshot = table.snapshot(version=version, timestamp_ms=timestamp_ms)
    if time_zone is not None:
        snapshot = snapshot.in_time_zone(time_zone)
    return SnapshotScan(snapshot=snapshot, store=table.store, columns=columns, where=where)


def is_row_id(name: str, schema: StructType) -> bool:
    """Whether a requested column is one of the hidden columns of row tracking, and not one of the table."""
    return name.lower() in _ROW_IDS and schema.field(name) is None


def _spelled(columns: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns is the text {columns!r}; give a list of names, e.g. [{columns!r}].")
    names = []
    for name in columns:
        field = snapshot.schema.field(name)
        if field is None and not is_row_id(name, snapshot.schema):
            known = ", ".join(snapshot.schema.names)
            raise InvalidArgumentError(f"{snapshot.identifier} has no column {name!r}; its columns are {known}.")
        names.append(name.lower() if field is None else field.name)
    return tuple(names)


def _has_opaque_part(predicate: Predicate) -> bool:
    return any(isinstance(leaf, Opaque) for leaf in leaves(predicate))
