"""Deletion of old entries of the feed, where the maintenance rules permit it."""

from collections.abc import Iterator

import sqlalchemy as sa

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.catalog.sql.database.callers import now_of
from cm_delta_dagster.catalog.sql.database.parts import writes
from cm_delta_dagster.catalog.sql.database.schema import FEED, FEED_COUNTER, IS_ACTIVE, MAINTENANCE_RULES, TABLES
from cm_delta_dagster.catalog.sql.feed.events import EventReads
from cm_delta_dagster.catalog.sql.policies import maintenance
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    MaintenanceError,
    MaintenanceNotPermittedError,
    RetentionTooShortError,
)
from cm_delta_dagster.remedies import AllowMaintenance

_KIND = MaintenanceKind.FEED_CLEANUP
_DEFAULT_CATALOG = "main"

# Entries are in the order of their positions, not of their times: the first one that is too young keeps all after it.
_YOUNG = FEED.alias("young")
_FIRST_YOUNG = (
    sa.select(sa.func.min(_YOUNG.c.position)).where(_YOUNG.c.at_ms >= sa.bindparam("before_ms")).scalar_subquery()
)
_UP_TO = sa.select(sa.func.max(FEED.c.position)).where(sa.or_(FEED.c.position < _FIRST_YOUNG, _FIRST_YOUNG.is_(None)))
_FORGET = (
    sa.update(FEED_COUNTER)
    .where(FEED_COUNTER.c.counter_id == 1, FEED_COUNTER.c.deleted_up_to < sa.bindparam("up_to"))
    .values(deleted_up_to=sa.bindparam("up_to"))
)
_DELETE = sa.delete(FEED).where(FEED.c.position <= sa.bindparam("up_to"))
_CATALOGS = sa.select(TABLES.c.catalog_name).where(IS_ACTIVE).distinct()
_SCOPES = sa.select(MAINTENANCE_RULES.c.scope).where(MAINTENANCE_RULES.c.kind == _KIND.value)


class SqlEventFeed(EventReads):
    """Implements :class:`~cm_delta_dagster.catalog.event_feed.EventFeed`."""

    def delete_old_entries(self, *, before_ms: int) -> int:
        """Delete the entries before the first one that was recorded at ``before_ms`` or later.

        Raises InvalidArgumentError, MaintenanceNotPermittedError, RetentionTooShortError.
        """
        self._head()  # Places all entries.
        answer = self._delete_placed(before_ms)
        if isinstance(answer, MaintenanceError):
            raise answer
        return answer

    @writes
    def _delete_placed(self, connection: sa.Connection, before_ms: int) -> int | MaintenanceError:
        """The number of deleted entries, or why none was: the audit has the decisions of a refused deletion too."""
        retention_ms = now_of(connection) - before_ms
        if retention_ms < 0:
            raise InvalidArgumentError(
                f"The entries of the feed before {before_ms} were not deleted: that time is {-retention_ms} ms after the catalog's "
                "clock. Give a time in the past."
            )
        for scope, decision in _decisions(connection):
            if (refusal := _refusal(scope, decision, retention_ms)) is not None:
                return refusal
        up_to = connection.execute(_UP_TO, {"before_ms": max(before_ms, 0)}).scalar_one()
        if up_to is None:
            return 0
        connection.execute(_FORGET, {"up_to": up_to})
        return int(connection.execute(_DELETE, {"up_to": up_to}).rowcount)


def _decisions(connection: sa.Connection) -> Iterator[tuple[str, MaintenanceDecision]]:
    """What the rules say for each catalog that has tables, and for each scope that has a rule. The audit records each decision."""
    catalogs = set(connection.execute(_CATALOGS).scalars()) or {_DEFAULT_CATALOG}
    for scope in sorted(catalogs | set(connection.execute(_SCOPES).scalars())):
        catalog, schema, table = (*scope.split("."), "", "")[:3]
        yield scope, maintenance.authorize(connection, TableIdentifier(catalog, schema, table), _KIND)


def _refusal(scope: str, decision: MaintenanceDecision, retention_ms: int) -> MaintenanceError | None:
    if not decision.allowed:
        return MaintenanceNotPermittedError(
            f"{_KIND.value} is not permitted in {scope} ({decision.reason}). No entry was deleted."
        ).with_remedy(AllowMaintenance(scope=scope, kind=_KIND.value))
    least = decision.min_retention
    if least is not None and retention_ms < milliseconds_of(least):
        return RetentionTooShortError(
            f"{_KIND.value} with a retention of {span_text(retention_ms)} was refused: the rules of {scope} demand at least "
            f"{span_text(milliseconds_of(least))} "
            f"({decision.reason}). No entry was deleted. Use a longer retention, or ask the owner of the rule to change it."
        )
    return None
