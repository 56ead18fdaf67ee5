"""A catalog that has something of every kind, and a call of each operation of the catalog that concerns it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.rest.operations import CatalogOperation, operations
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import METADATA
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry, TableIdentifier
from tests.contracts.catalog_bench import NAME, PROTOCOL, create, created, defined, metadata, summary
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.holds import hold_one, request_of

TABLE = NAME
CLONE = TableIdentifier("main", "sales", "clone")
DROPPED = TableIdentifier("main", "sales", "dropped")
NEW = TableIdentifier("main", "sales", "new")
PATH = TableIdentifier("main", "sales", "by_path")
OWNER = "owner"
RUN = "run"
RECORDS_OF_REFUSALS = frozenset({"cm_delta_audit", "cm_delta_feed", "cm_delta_feed_counter", "cm_delta_feed_waiters"})
"""Tables that have rows of refused calls."""

_TXN = {"txn": {"appId": "job", "version": 7}}


@dataclass(frozen=True, kw_only=True)
class FullCatalog:
    """What :func:`fill` has made."""

    table: TableEntry
    dropped: TableEntry
    reserved_id: str
    reserved_location: str
    location: str
    hold_id: str
    lease_token: int
    token_id: str
    record: RatifiedCommit

    def arguments_of(self, operation: CatalogOperation) -> Mapping[str, Any]:
        """The arguments of a call that changes something of :data:`OWNER`, or reads it."""
        values = {**self._by_name, **self._of_operation.get(str(operation), {})}
        required = [
            parameter.name
            for parameter in operation.signature.parameters.values()
            if parameter.default is parameter.empty or parameter.name in self._of_operation.get(str(operation), {})
        ]
        return {name: values[name] for name in required}

    @property
    def _by_name(self) -> Mapping[str, Any]:
        return {
            "table_id": self.table.table_id,
            "identifier": TABLE,
            "identifiers": (TABLE,),
            "location": self.location,
            "locations": [self.table.location],
            "proposal": commit_of(2, ADD),
            "proposals": {self.table.table_id: commit_of(2, ADD)},
            "request": request_of(self.table.table_id),
            "summary": summary(1000),
            "scope": str(TABLE),
            "kind": MaintenanceKind.DATA_CLEANUP,
            "owner": RUN,
            "duration_ms": 60_000,
            "token": self.lease_token,
            "token_id": self.token_id,
            "hold_id": self.hold_id,
            "app_id": "job",
            "app_version": 7,
            "reason": "none",
            "version": 1,
            "start": 0,
            "end": 1,
            "after": 0,
            "limit": 100,
            "seconds": 0.0,
            "before_ms": 1,
            "min_age_ms": 0,
            "metadata": metadata("other"),
            "protocol": PROTOCOL,
            "policy": CommitPolicy(kind=CommitPolicyKind.STAGED),
            "name": "main.other",
            "role": "team",
            "members": ["stranger"],
            "grantee": "stranger",
            "privileges": [Privilege.OWN],
            "principal": "stranger",
            "moved_from": self.table.location,
            "data_change": True,
        }

    @property
    def _of_operation(self) -> Mapping[str, Mapping[str, Any]]:
        definition = RecordedDefinition(metadata=metadata("id"), protocol=PROTOCOL, version=2, in_commit_timestamp=1002)
        history = CommitHistory(proposals=(commit_of(2, ADD),), published_version=0, definition=definition)
        adopted = AdoptedTable(
            table_id="adopted", identifier=NEW, location=self.location, state=AdoptedState.ACTIVE, history=history
        )
        scope, kind = str(TABLE), MaintenanceKind.DATA_CLEANUP
        return {
            "registry.create_staging_table": {"identifier": NEW},
            "registry.register_table": {"table_id": self.reserved_id, "identifier": NEW},
            "registry.register_path": {"identifier": NEW},
            "registry.unregister_path": {"identifier": PATH},
            "registry.registered_path": {"identifier": PATH},
            "registry.rename_table": {"identifier": NEW},
            "registry.undrop_table": {"table_id": self.dropped.table_id},
            "registry.begin_purge": {"table_id": self.dropped.table_id},
            "storage_credentials.read_credentials": {"location": self.table.location},
            "storage_credentials.write_credentials": {"location": self.table.location},
            "registry.finish_purge": {"table_id": self.dropped.table_id},
            "coordinator.record_published": {"proposal": created(2)},
            "coordinator.get_ratified_commits": {"content_from_version": 0},
            "recovery.take_in_commits": {"history": history, "after": 1},
            "recovery.replace_commit": {"proposal": commit_of(1, ADD), "replaces": self.record},
            "recovery.check_adoption": {"identifier": NEW},
            "recovery.adopt_table": {"table": adopted},
            "commit_policies.set_commit_policy": {
                "rule": CommitPolicyRule(scope="main.sales", policy=CommitPolicy(kind=CommitPolicyKind.STAGED))
            },
            "commit_policies.remove_commit_policy": {"scope": "main"},
            "commit_rules.set_commit_rule": {
                "rule": CommitRule(scope=scope, name="mine", kind=CommitRuleKind.APPEND_ONLY)
            },
            "commit_rules.remove_commit_rule": {"scope": scope, "name": "keep"},
            "maintenance_policies.set_maintenance_rule": {
                "rule": MaintenanceRule(scope=scope, kind=kind, allowed=False)
            },
            "maintenance_policies.maintenance_decision": {"table_id": self.table.table_id},
            "maintenance_policies.authorize_maintenance": {"table_id": self.table.table_id},
            "namespaces.drop_namespace": {"name": "main.empty"},
            "pins.raise_pinned_version": {"version": 1},
            "access.enable_grants": {"owner": "stranger"},
            "access.revoke": {"scope": "*", "grantee": OWNER, "force": True},
            "access.transfer_table": {"owner": "stranger"},
            "audit_log.audit": {"scope": scope},
        }


def fill(catalog: SqlCatalog) -> FullCatalog:
    """Make tables with commits, and a row in every list of the catalog; then enforce grants.

    Args:
        catalog: an empty one, as :data:`OWNER`.
    """
    table = defined(catalog)
    catalog.coordinator.commit(table.table_id, commit_of(1, ADD, _TXN))
    clone = catalog.registry.create_staging_table(CLONE, clone_of=table.table_id)
    catalog.registry.register_table(clone.table_id, CLONE, summary=summary(1000))
    dropped = create(catalog, DROPPED)
    catalog.registry.drop_table(DROPPED)
    reserved = catalog.registry.create_staging_table(NEW)
    location = f"{table.location.rpartition('/')[0]}/elsewhere"
    catalog.registry.register_path(PATH, location)
    catalog.namespaces.create_namespace("main.empty")
    kept = CommitRule(scope=str(TABLE), name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    catalog.commit_rules.set_commit_rule(kept)
    staged = CommitPolicy(kind=CommitPolicyKind.STAGED)
    catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=staged))
    allowed = MaintenanceRule(scope=str(TABLE), kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
    catalog.maintenance_policies.set_maintenance_rule(allowed)
    lease = catalog.leases.acquire_maintenance_lease(
        table.table_id, MaintenanceKind.DATA_CLEANUP, owner=RUN, duration_ms=3_600_000
    )
    assert isinstance(lease, LeaseGranted)
    catalog.pins.pin_version(table.table_id, 0, owner=RUN)
    hold = hold_one(catalog, table.table_id, commit_of(2, REMOVE), app_id="job", app_version=8)
    assert hold is not None
    catalog.access.add_to_role("team", ["ana"])
    token = catalog.tokens.create_token(OWNER)
    catalog.access.enable_grants(owner=OWNER)
    (record,) = catalog.coordinator.commit_records(table.table_id, start=1, end=1)
    return FullCatalog(
        table=table,
        dropped=dropped,
        reserved_id=reserved.table_id,
        reserved_location=reserved.location,
        location=location,
        hold_id=hold.hold_id,
        lease_token=lease.token,
        token_id=token.token.token_id,
        record=record,
    )


def every_operation() -> tuple[CatalogOperation, ...]:
    """The operations of the HTTP API."""
    return tuple(operation for part in operations().values() for operation in part.values())


def rows_of(url: str) -> Mapping[str, frozenset[str]]:
    """All rows by table, without the times at which tokens were last used, and positions, which entries of the feed get later."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return rows_over(connection)


def rows_over(connection: sa.Connection, *, without: Collection[str] = ()) -> Mapping[str, frozenset[str]]:
    """As :func:`rows_of`, but the tables ``without``."""
    return {
        table.name: frozenset(
            str({name: value for name, value in row.items() if name not in ("last_used_ms", "position")})
            for row in connection.execute(sa.select(table)).mappings()
        )
        for table in METADATA.sorted_tables
        if table.name not in without
    }
