"""The result of a write, also of one that an earlier attempt committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.types import StructType


class WriteOutcome(StrEnum):
    """How a write ended. A failure is an exception."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"
    """A ``txn`` action of the table shows that an earlier attempt committed; nothing was written."""
    NOTHING_TO_DO = "nothing_to_do"
    """No row would change; no version was created."""
    STAGED = "staged"
    """The write is part of a transaction over several tables, which commits it at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write.

    Attributes:
        version: the committed version. For ALREADY_COMMITTED the version that the earlier attempt committed, if the log still
            holds it; otherwise, for NOTHING_TO_DO and for STAGED, the version that was read.
        data_version: newest version at or before ``snapshot.version`` that changed data.
        num_output_rows: rows in the added files, including rows copied from rewritten files.
        metrics: as in ``commitInfo.operationMetrics``.
        snapshot: the table after the commit; without a commit, the snapshot that was read.
        rows_by_partition: rows of the added files for each tuple of serialized partition values, in the order of the partition
            columns.
        replaced_schema: the schema before the write, if the write changed the metadata of a table that existed.
    """

    table_id: str
    version: int
    data_version: int
    outcome: WriteOutcome
    num_output_rows: int = 0
    num_added_files: int = 0
    num_removed_files: int = 0
    added_bytes: int = 0
    removed_bytes: int = 0
    retries: int = 0
    metrics: Mapping[str, str] = field(default_factory=dict)
    snapshot: Snapshot = field(repr=False)
    rows_by_partition: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)
    replaced_schema: StructType | None = field(default=None, repr=False)


def is_already_committed(snapshot: Snapshot, idempotency: Idempotency | None) -> bool:
    """Whether the ``txn`` actions of the snapshot show that an earlier attempt of the write committed."""
    if idempotency is None:
        return False
    current = snapshot.transactions.get(idempotency.app_id)
    return idempotency.is_done(None if current is None else current.version)


def earlier_write(table: WriteTarget, snapshot: Snapshot, idempotency: Idempotency | None) -> WriteResult | None:
    """Return the result of a write whose earlier attempt committed; None if no attempt did.

    Raises:
        InvalidArgumentError: the write was held and never ratified, and the table has recorded a later one of the application.
    """
    if idempotency is None or not is_already_committed(snapshot, idempotency):
        return None
    version = table.find_transaction(app_id=idempotency.app_id, version=idempotency.version)
    if version is None:
        _require_not_only_held(table, snapshot, idempotency)
    return already_committed(table, snapshot, version=snapshot.version if version is None else version)


def _require_not_only_held(table: WriteTarget, snapshot: Snapshot, idempotency: Idempotency) -> None:
    """Refuse to take a write for committed because a later one is, if this one was held and is no version.

    Raises InvalidArgumentError.
    """
    app_id, version = idempotency.app_id, idempotency.version
    recorded = snapshot.transactions[app_id].version
    if recorded == version:
        return
    hold = table.services.holds.find_hold(table.table_id, app_id=app_id, app_version=version)
    if hold is None or hold.state is HoldState.COMMITTED:
        return
    raise InvalidArgumentError(
        f"Version {version} of {app_id!r} was not written to {table.identifier}: it was held as {hold.hold_id}, which is "
        f"{hold.state.value} and no version of the table, and the table has recorded version {recorded} since. Nothing was "
        f"committed; the table has no rows of version {version}. Write its rows with a version after {recorded}."
    )


def already_committed(
    table: WriteTarget, snapshot: Snapshot, *, version: int, data_version: int | None = None
) -> WriteResult:
    """Return the result of a write that an earlier attempt committed as ``version``.

    Args:
        data_version: by default that of ``snapshot``.
    """
    return WriteResult(
        table_id=table.table_id,
        version=version,
        data_version=snapshot.data_version if data_version is None else data_version,
        outcome=WriteOutcome.ALREADY_COMMITTED,
        snapshot=snapshot,
    )


def nothing_to_do(table: WriteTarget, snapshot: Snapshot) -> WriteResult:
    """Return the result of a write that changes no row."""
    return WriteResult(
        table_id=table.table_id,
        version=snapshot.version,
        data_version=snapshot.data_version,
        outcome=WriteOutcome.NOTHING_TO_DO,
        snapshot=snapshot,
    )
