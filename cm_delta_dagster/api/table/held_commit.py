"""Held commits in the Python API: read, ratify or discard what no reader of the tables sees yet."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.table_changes import TableChanges
from cm_delta_dagster.api.table.table_scan import TableScan
from cm_delta_dagster.catalog.holds import Hold, HoldState, WaitsFor
from cm_delta_dagster.client.snapshots.table_with_hold import TableWithHold
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.ratify_hold import RatifiedHold, held_tables, ratify_hold
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.spark.expressions.conditions import column_predicate
from cm_delta_dagster.spark.library import is_column


class HeldCommit:
    """The commits of one table or of several that wait; they become versions together, or not at all.

    The attributes are those of the time when the value was made; ``lake.rules.hold(hold_id)`` reads them again.
    """

    def __init__(self, connection: ClientSession, hold: Hold) -> None:
        self._connection = connection
        self._hold = hold

    def __repr__(self) -> str:
        return f"HeldCommit({self.hold_id!r}, tables={list(self.tables)!r}, state={self.state.value!r})"

    @property
    def hold_id(self) -> str:
        """The id of the hold."""
        return self._hold.hold_id

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(str(table.identifier) for table in self._hold.tables)

    @property
    def base_version(self) -> Mapping[str, int]:
        """By table, the version after which the commit was proposed. Maintenance keeps what it needs of it."""
        return {str(table.identifier): table.read_version for table in self._hold.tables}

    @property
    def state(self) -> HoldState:
        """Pending, or how it ended."""
        return self._hold.state

    @property
    def waits_for(self) -> WaitsFor:
        """The ratification by who made it, or the approval of an owner."""
        return self._hold.waits_for

    @property
    def expires(self) -> datetime:
        """Until when it can be ratified."""
        return datetime.fromtimestamp(self._hold.expires_ms / 1000, UTC)

    @property
    def requested_by(self) -> str | None:
        """The principal that made it; None without a name."""
        return self._hold.requested_by

    @property
    def versions(self) -> Mapping[str, int]:
        """By table, the versions that the commits became; empty before the ratification."""
        return {str(table.identifier): table.version for table in self._hold.tables if table.version is not None}

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        *,
        table: str | None = None,
        time_zone: str | None = None,
    ) -> TableScan:
        """Select rows and columns of exactly the state that a ratification would give now. Nothing is written.

        Args:
            columns, where, time_zone: as for ``table.scan``.
            table: the name of the table; required if the hold has several.

        Raises:
            HoldClosedError: the hold is not pending.
            CommitConflictError: another commit changed what the held one depends on; it cannot be ratified any more.
            InvalidArgumentError: an unknown column or table, or an invalid condition.
            TableStorageMissingError: a file of the hold cannot be read.
        """
        scan = open_scan(
            self._opened(table),
            columns=columns,
            where=None if is_column(where) else where,
            time_zone=as_zone(time_zone),
        )
        if is_column(where):
            scan = replace(scan, where=column_predicate(where, scan.snapshot.schema))
        scan.check()
        return TableScan(self._connection, scan)

    def changes(
        self,
        *,
        table: str | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> TableChanges:
        """Select the row changes of the held commit, of a table with a change data feed. Arguments and errors as :meth:`scan`."""
        opened = self._opened(table)
        versions = ChangeRange(starting_version=opened.latest.version, ending_version=opened.latest.version)
        return TableChanges(self._connection, open_changes(opened, versions, columns=columns, where=where))

    def _opened(self, table: str | None) -> TableWithHold:
        """The table with the held commit; the only one for None."""
        if table is None and len(self.tables) == 1:
            table = self.tables[0]
        if table not in self.tables:
            raise InvalidArgumentError(
                f"table is {table!r}; the hold {self.hold_id} has the tables {', '.join(self.tables)}. Name one of them."
            )
        table_id = next(entry.table_id for entry in self._hold.tables if str(entry.identifier) == table)
        opened = held_tables(self._connection.client, self.hold_id).values()  # By the names that the tables have now.
        return next(entry for entry in opened if entry.table_id == table_id)

    def ratify(
        self, *, tags: Mapping[str, str] | None = None, audited: Mapping[str, int] | None = None
    ) -> RatifiedHold:
        """Make the commits the next versions of their tables, rebased on the latest ones. A repeated call gives the same versions.

        Args:
            tags: recorded in the history with those of the write, which they cannot change.
            audited: by table, ``version`` of the scan that was checked. The rows of another commit since then are then an error.

        Raises:
            CommitConflictError: another commit changed what one depends on; the hold is closed.
            HoldClosedError: the hold was discarded or rejected, has expired, or was closed by a conflict.
            HoldOutdatedError: another commit has changed rows since a version in ``audited``, or the step of an audited asset has
                not checked the hold yet; the hold stays.
            ApprovalRequiredError: a rule demands an approval, which the hold waits for from now on, with what was audited.
            CommitRefusedError: a rule refuses a commit; the hold stays.
            OperationRefusedError: the caller neither made the hold nor owns the tables.
            TableNotFoundError: a table was dropped.
            CommitStateUnknownError: the catalog did not answer; call it again.
            InvalidArgumentError: ``tags`` or ``audited`` is no mapping of that kind, or changes a tag of the write; the hold stays.
        """
        return ratify_hold(self._connection.client, self.hold_id, tags=tags, audited=self._audited(audited))

    def _audited(self, audited: Mapping[str, int] | None) -> Mapping[str, int] | None:
        """By the ids of the tables. Raises InvalidArgumentError for another table, or what is not a version."""
        if audited is None:
            return None
        if not isinstance(audited, Mapping):
            raise InvalidArgumentError(
                f"audited is {audited!r}; give a version for each table, e.g. {{{self.tables[0]!r}: scan.version}}. Nothing was "
                "committed."
            )
        table_ids = {str(table.identifier): table.table_id for table in self._hold.tables}
        for name, version in audited.items():
            if name not in table_ids:
                raise InvalidArgumentError(
                    f"audited names {name!r}; the hold {self.hold_id} has the tables {', '.join(self.tables)}. Nothing was "
                    "committed."
                )
            if not isinstance(version, int) or isinstance(version, bool):
                raise InvalidArgumentError(
                    f"audited has {version!r} for {name}; give the version of the scan that was checked. Nothing was committed."
                )
        return {table_ids[name]: version for name, version in audited.items()}

    def discard(self, reason: str) -> "HeldCommit":
        """End the hold without a commit; ``vacuum`` deletes its files later. A repeated call does nothing.

        Raises:
            HoldClosedError: the hold was ratified or rejected, has expired, or was closed by a conflict.
            OperationRefusedError: the caller neither made the hold nor owns the tables.
            InvalidArgumentError: no reason was given.
        """
        return HeldCommit(self._connection, self._connection.client.holds.discard_hold(self.hold_id, reason=reason))
