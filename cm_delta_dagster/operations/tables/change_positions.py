"""How far consumers have read the changes of other tables: the positions that their own tables record as ``txn`` actions.

A consumer is an asset whose input is ``changes``. Its commits record the version of the input up to which it has read, so that rows
and position are committed together (protocol heading "Transaction Identifiers"). Each time that a user sets a position, a second
``txn`` counts it: what a consumer has reported elsewhere before, such as in the events of Dagster, is then out of date.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError, VersionNotFoundError
from cm_delta_dagster.protocol.actions.actions import SetTransaction

OPERATION = "SET POSITION"
_READ = "dagster-changes:"
_SET = "dagster-changes-set:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInput:
    """A consumer, and a table whose changes it reads."""

    consumer: str
    table_id: str

    @property
    def app_id(self) -> str:
        """``appId`` of the position."""
        return f"{_READ}{self.consumer}:{self.table_id}"

    @property
    def set_app_id(self) -> str:
        """``appId`` of the number of times that the position was set."""
        return f"{_SET}{self.consumer}:{self.table_id}"

    def position(self, snapshot: Snapshot | None) -> int | None:
        """The version that the table of the consumer records; None for none."""
        return _recorded(snapshot, self.app_id)

    def times_set(self, snapshot: Snapshot | None) -> int:
        """How often the position was set by hand."""
        return _recorded(snapshot, self.set_app_id) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePosition:
    """Where a consumer is.

    Attributes:
        table: name of the table whose changes are read; None if the catalog has no such table any more.
        version: the version up to which the consumer has read.
        latest: the latest version of that table; None if there is none.
    """

    read: ConsumerInput
    table: str | None
    version: int
    latest: int | None


def change_positions(client: DeltaClient, table: Table) -> tuple[ChangePosition, ...]:
    """The positions that ``table`` records, by consumer and table."""
    positions = []
    for app_id, version in sorted(_versions(table.snapshot()).items()):
        if not app_id.startswith(_READ):
            continue
        consumer, _, table_id = app_id.removeprefix(_READ).rpartition(":")
        name, latest = _upstream(client, table_id)
        read = ConsumerInput(consumer=consumer, table_id=table_id)
        positions.append(ChangePosition(read=read, table=name, version=version, latest=latest))
    return tuple(positions)


def set_change_position(
    client: DeltaClient,
    table: Table,
    *,
    upstream: str,
    version: int | None = None,
    consumer: str | None = None,
    context: CommitProperties = NO_PROPERTIES,
) -> ChangePosition:
    """Let a consumer continue after a version of ``upstream``. The commit changes no row.

    Args:
        table: the table in which the consumer is stored.
        upstream: name of the table whose changes the consumer reads.
        version: the consumer then counts as having read up to it; the latest for None, so that all unread changes are skipped.
        consumer: asset key, ``a/b``; needed if several consumers have read ``upstream``, or none has.

    Raises:
        TableNotFoundError: there is no table ``upstream``.
        VersionNotFoundError: ``upstream`` has no such version.
        InvalidArgumentError: it is not clear whose position is meant.
        CommitConflictError: the consumer has read on meanwhile.
    """
    source, snapshot = client.table(upstream), table.snapshot()
    latest = source.snapshot().version
    version = latest if version is None else version
    if not 0 <= version <= latest:
        raise VersionNotFoundError(
            f"{source.identifier} has no version {version}: its versions are 0 to {latest}. The position was not set."
        )
    read = ConsumerInput(consumer=consumer or _only_consumer(snapshot, source), table_id=source.table_id)
    transaction = table.start_transaction(
        snapshot,
        operation=OPERATION,
        parameters={"consumer": read.consumer, "table": str(source.identifier), "version": str(version)},
        context=context,
    )
    now, times = table.services.now_ms(), read.times_set(snapshot) + 1
    transaction.set_transaction(SetTransaction(app_id=read.app_id, version=version, last_updated=now))
    transaction.set_transaction(SetTransaction(app_id=read.set_app_id, version=times, last_updated=now))
    transaction.commit()
    return ChangePosition(read=read, table=str(source.identifier), version=version, latest=latest)


def _only_consumer(snapshot: Snapshot, source: Table) -> str:
    ending = f":{source.table_id}"
    known = [
        app_id.removeprefix(_READ).removesuffix(ending)
        for app_id in _versions(snapshot)
        if app_id.startswith(_READ) and app_id.endswith(ending)
    ]
    if len(known) == 1:
        return known[0]
    listed = f"it has those of {', '.join(sorted(known))}" if known else "it has none"
    raise InvalidArgumentError(
        f"{snapshot.identifier} does not record one position in the changes of {source.identifier}: {listed}. Name the asset."
    )


def _upstream(client: DeltaClient, table_id: str) -> tuple[str | None, int | None]:
    try:
        table = client.open(client.registry.load_table_by_id(table_id))
        return str(table.identifier), table.snapshot().version
    except TableNotFoundError:
        return None, None


def _versions(snapshot: Snapshot | None) -> Mapping[str, int]:
    return {} if snapshot is None else {name: item.version for name, item in snapshot.transactions.items()}


def _recorded(snapshot: Snapshot | None, app_id: str) -> int | None:
    stored = None if snapshot is None else snapshot.transactions.get(app_id)
    return None if stored is None else stored.version
