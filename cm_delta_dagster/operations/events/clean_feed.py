"""Deletes entries of the feed after a retention."""

from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import MaintenanceNotPermittedError, RetentionTooShortError
from cm_delta_dagster.operations.arguments import check_milliseconds
from cm_delta_dagster.remedies import AllowMaintenance

FEED_RETENTION_MS = 30 * 24 * 60 * 60 * 1000
"""Milliseconds for which entries stay in the feed by default."""

_KIND = MaintenanceKind.FEED_CLEANUP
_DEFAULT_CATALOG = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFeedResult:
    """What was deleted. Readers that had not come to ``deleted_up_to`` get FeedGapError."""

    num_entries: int
    deleted_up_to: int


def clean_feed(client: DeltaClient, *, retention_ms: int = FEED_RETENTION_MS) -> CleanFeedResult:
    """Delete the entries of the feed that are older than ``retention_ms``. The records of commits stay.

    The feed belongs to all tables: each catalog that has tables must permit FEED_CLEANUP, and no rule of a schema or table may
    deny it. The longest retention that a rule demands applies. The audit has the decision for each scope, up to the first denial.

    Raises:
        MaintenanceNotPermittedError: it is not permitted; nothing was deleted.
        RetentionTooShortError: a rule demands a longer retention; nothing was deleted.
        InvalidArgumentError: ``retention_ms`` is negative.
    """
    check_milliseconds(retention_ms, name="retention_ms")
    for scope, decision in _decisions(client):
        _check(scope, decision, retention_ms)
    now_ms = client.coordinator.now_ms()
    num_entries = client.events.delete_old_entries(before_ms=now_ms - retention_ms)
    page = client.events.events(after=0, limit=1)
    return CleanFeedResult(num_entries=num_entries, deleted_up_to=page.deleted_up_to)


def _decisions(client: DeltaClient) -> Iterator[tuple[str, MaintenanceDecision]]:
    """What the rules say for each catalog that has tables, and for each scope that has a rule. The audit records each decision."""
    policies = client.maintenance_policies
    catalogs = {table.catalog for table in client.registry.list_tables()} or {_DEFAULT_CATALOG}
    for scope in sorted(catalogs | {rule.scope for rule in policies.maintenance_rules() if rule.kind is _KIND}):
        catalog, schema, table = (*scope.split("."), "", "")[:3]
        yield scope, policies.authorize_maintenance(TableIdentifier(catalog, schema, table), _KIND)


def _check(scope: str, decision: MaintenanceDecision, retention_ms: int) -> None:
    if decision.kind is not _KIND or decision.allowed is not True:
        raise MaintenanceNotPermittedError(
            f"{_KIND.value} is not permitted in {scope} ({decision.reason}). No entry was deleted."
        ).with_remedy(AllowMaintenance(scope=scope, kind=_KIND.value))
    least_ms = decision.min_retention_ms
    if least_ms is not None and retention_ms < least_ms:
        raise RetentionTooShortError(
            f"{_KIND.value} with a retention of {retention_ms} ms was refused: the rules of {scope} demand at least {least_ms} ms "
            f"({decision.reason}). No entry was deleted. Use a longer retention, or ask the owner of the rule to change it."
        )
