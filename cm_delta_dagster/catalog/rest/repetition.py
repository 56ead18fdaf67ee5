"""What a client may do with an operation that got no answer, as the interfaces of the catalog say it.

An operation that is not listed is never repeated.
"""

from collections.abc import Mapping
from enum import Enum


class Repetition(Enum):
    """What a client may do if it got no answer.

    READ: call again; the operation changes nothing. REPEATABLE: call again; a second call has no further effect, and its answer
    stands for that of the first. ONCE: a second call would change something else, or fail because the first took effect.
    """

    READ = "read"
    REPEATABLE = "repeatable"
    ONCE = "once"


def repetition_of(part: str, name: str) -> Repetition:
    """What the interface permits for the method ``name`` of a part."""
    if name in READS.get(part, ()):
        return Repetition.READ
    return Repetition.REPEATABLE if name in REPEATABLE.get(part, ()) else Repetition.ONCE


READS: Mapping[str, frozenset[str]] = {
    "registry": frozenset(
        {
            "identity",
            "load_table",
            "load_tables",
            "load_table_by_id",
            "list_tables",
            "readable_tables",
            "registered_path",
            "registered_paths",
            "clones_of",
            "sources_of",
            "inactive_tables",
        }
    ),
    "coordinator": frozenset({"get_ratified_commits", "commit_records", "commit_digests"}),
    "recovery": frozenset({"check_adoption", "overlapping_tables", "tables_with_files_elsewhere", "check_release"}),
    "namespaces": frozenset({"list_catalogs", "list_schemas"}),
    "commit_policies": frozenset({"commit_policies"}),
    "commit_rules": frozenset({"commit_rules"}),
    "holds": frozenset({"holds", "find_hold", "held_proposals", "protected_commits"}),
    "maintenance_policies": frozenset({"maintenance_rules", "maintenance_decision"}),
    "leases": frozenset({"check_lease", "leases"}),
    "feed": frozenset({"feed", "feed_page", "latest_feed_position", "newest_deleted_commits"}),
    "events": frozenset({"events", "wait_for_events"}),
    "pins": frozenset({"pinned_version"}),
    "access": frozenset({"whoami", "grants", "roles", "table_owner"}),
    "tokens": frozenset({"tokens"}),
    "application_ids": frozenset({"application_ids"}),
    "audit_log": frozenset({"audit"}),
    "overview": frozenset({"table_overviews", "newest_commits", "table_commits"}),
    "storage_credentials": frozenset({"read_credentials", "write_credentials"}),
}

REPEATABLE: Mapping[str, frozenset[str]] = {
    "registry": frozenset(
        {
            "register_table",
            "register_path",
            "set_definition",
            "rename_table",
            "undrop_table",
            "abandon_clones",
            "begin_purge",
            "finish_purge",
        }
    ),
    "coordinator": frozenset({"commit", "commit_together", "hold", "record_published", "set_published_version"}),
    "recovery": frozenset({"adopt_table", "release_table", "record_sources", "relocate_table"}),
    "commit_policies": frozenset(
        {"set_commit_policy", "remove_commit_policy", "change_commit_policy", "begin_release"}
    ),
    "commit_rules": frozenset({"set_commit_rule"}),
    "holds": frozenset({"reject_hold", "discard_hold", "close_hold"}),
    "maintenance_policies": frozenset({"set_maintenance_rule", "remove_maintenance_rule", "authorize_maintenance"}),
    "leases": frozenset({"acquire_maintenance_lease", "renew_lease", "release_maintenance_lease"}),
    "pins": frozenset({"pin_version", "raise_pinned_version"}),
    "tokens": frozenset({"revoke_token"}),
    "access": frozenset({"enable_grants", "disable_grants", "grant", "add_to_role", "transfer_table"}),
}
