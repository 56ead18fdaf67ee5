"""Where the methods and names of earlier releases are now: the only list, for one release.

``AbsentMethods`` makes it the AttributeError of an old name. An entry is old name -> new call as users write it, where ``lake``
is the connection, ``table`` a table, and ``tx`` a transaction over several tables: ``"lake.access.grant(...)"``,
``"table.scan(...).to_batches()"``. ``peer_names`` has the names of other libraries.
"""

from collections.abc import Mapping

_READS: Mapping[str, str] = {
    "aggregates": "table.scan(...).aggregates()",
    "changes_arrow": "table.changes(...).to_arrow()",
    "changes_arrow_batches": "table.changes(...).to_batches()",
    "clustering_columns": "table.snapshot().clustering_columns",
    "count_rows": "table.scan(where=...).count()",
    "files": "table.scan(where=...).files()",
    "plan_read": "table.scan(...).plan()",
    "scan_polars": "table.scan(...).lazy()",
    "stream_arrow": "table.stream(...).to_batches()",
    "to_arrow_batches": "table.scan(...).to_batches()",
    "to_duckdb": "table.scan(...).duckdb()",
    "to_pyarrow_dataset": "table.scan(...).dataset()",
}
CONNECTION: Mapping[str, str] = {
    "whoami": "lake.access.whoami()",
    "grant": "lake.access.grant(...)",
    "revoke": "lake.access.revoke(...)",
    "enable_grants": "lake.access.enable_grants(...)",
    "disable_grants": "lake.access.disable_grants()",
    "add_to_role": "lake.access.add_to_role(...)",
    "remove_from_role": "lake.access.remove_from_role(...)",
    "drop_role": "lake.access.drop_role(...)",
    "owner": "lake.access.owner(name)",
    "reset_application_id": "lake.access.reset_application_id(...)",
    "audit": "lake.access.audit(...)",
    "grants": "lake.access.list_grants(...)",
    "roles": "lake.access.list_roles()",
    "transfer": "lake.access.set_owner(...)",
    "application_ids": "lake.access.list_application_ids(...)",
    "remove_commit_rule": "lake.rules.remove_commit_rule(...)",
    "approve": "lake.rules.approve(approval_id)",
    "reject": "lake.rules.reject(approval_id, reason)",
    "add_commit_rule": "lake.rules.set_commit_rule(...)",
    "commit_rules": "lake.rules.list_commit_rules(...)",
    "approvals": "lake.rules.list_approvals(...)",
    "expire_lease": "lake.maintenance.expire_lease(...)",
    "plan_purge": "lake.maintenance.plan_purge(...)",
    "purge": "lake.maintenance.purge(...)",
    "allow": "lake.maintenance.set_policy(...)",
    "deny": "lake.maintenance.set_policy(..., allowed=False)",
    "reset_policy": "lake.maintenance.remove_policy(...)",
    "policy": "lake.maintenance.list_policies()",
    "leases": "lake.maintenance.list_leases()",
    "set_commit_mode": "lake.settings.set_commit_mode(...)",
    "create_catalog": "lake.settings.create_catalog(...)",
    "drop_catalog": "lake.settings.drop_catalog(...)",
    "reset_commit_mode": "lake.settings.remove_commit_mode(...)",
    "commit_modes": "lake.settings.list_commit_modes()",
    "catalogs": "lake.settings.list_catalogs()",
    "feed": "lake.events.feed(...)",
    "clean_feed": "lake.events.clean_feed(...)",
    "plan_recover": "lake.recovery.plan_recover(...)",
    "recover": "lake.recovery.recover(...)",
    "plan_recover_warehouse": "lake.recovery.plan_recover_warehouse(...)",
    "recover_warehouse": "lake.recovery.recover_warehouse(...)",
    "plan_relocate": "lake.recovery.plan_relocate(...)",
    "relocate": "lake.recovery.relocate(...)",
    "backup": "lake.recovery.backup(...)",
    "plan_adopt": "lake.onboarding.plan_adopt(...)",
    "adopt": "lake.onboarding.adopt(path, name)",
    "plan_release": "lake.onboarding.plan_release(...)",
    "release": "lake.onboarding.release(...)",
    "plan_export": "lake.onboarding.plan_export(...)",
    "export": "lake.onboarding.export(...)",
    "register": "lake.onboarding.register(...)",
    "unregister": "lake.onboarding.unregister(...)",
    "clone": "lake.onboarding.clone(...)",
    "registered": "lake.onboarding.list_registered(...)",
    "append": "lake.open_or_create(..., like=...).append(...)",
    "overwrite": "lake.open_or_create(..., like=...).overwrite(...)",
    "merge": "lake.open_or_create(..., like=...).upsert(...)",
}
DELTA_TABLE: Mapping[str, str] = {
    **_READS,
    "maintenance_decision": "table.maintenance.decision(...)",
    "publish": "table.maintenance.publish()",
    "checkpoint": "table.maintenance.checkpoint()",
    "compact_log": "table.maintenance.compact_log(...)",
    "plan_reorg": "table.maintenance.plan_reorg(...)",
    "reorg": "table.maintenance.reorg(...)",
    "plan_clean_log": "table.maintenance.plan_clean_log()",
    "clean_log": "table.maintenance.clean_log()",
    "plan_clean_staged_commits": "table.maintenance.plan_clean_staged_commits()",
    "clean_staged_commits": "table.maintenance.clean_staged_commits()",
    "plan_repair": "table.maintenance.plan_repair(...)",
}
PATH_DELTA_TABLE: Mapping[str, str] = {**_READS}
TRANSACTION_TABLE: Mapping[str, str] = {}

EXPORTED: Mapping[str, str] = {"ApprovalClosedError": "HoldClosedError", "CommitContext": "CommitProperties"}
"""For names that the package exported, the new name."""

MOVED_ARGUMENTS: Mapping[str, str] = {
    "abandoned_after_ms": "abandoned_after",
    "budget_seconds": "budget",
    "commit_lock_seconds": "commit_lock_timeout",
    "maintenance_lease_ms": "maintenance_lease",
    "max_clock_difference_ms": "max_clock_difference",
    "min_retention_ms": "min_retention",
    "minimum_interval_seconds": "minimum_interval",
    "publish_delay_seconds": "publish_delay",
    "retention_ms": "retention",
    "retry_initial_seconds": "retry_initial_delay",
    "retry_max_seconds": "retry_max_delay",
    "safety_age_ms": "safety_age",
    "tick_seconds": "tick_limit",
}
"""Arguments, fields of values and attributes of components: durations, which are of type ``datetime.timedelta`` now."""

MOVED_NAMES: Mapping[str, Mapping[str, str]] = {
    "Connection": CONNECTION,
    "DeltaTable": DELTA_TABLE,
    "PathDeltaTable": PATH_DELTA_TABLE,
    "TransactionTable": TRANSACTION_TABLE,
    "cm_delta_dagster": EXPORTED,
}
"""The table of each class, and of the package."""
