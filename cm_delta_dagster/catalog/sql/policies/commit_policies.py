"""Commit policies: which one applies to a table, and how it changes.

Commits made by creating their published file do not go through the catalog, so that a table changes to and from that policy in
steps that the catalog checks.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import (
    BARRIER_OPERATION,
    CommitPolicy,
    CommitPolicyKind,
    CommitPolicyRule,
    PolicyChange,
)
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMIT_POLICIES,
    COMMITS,
    IS_ACTIVE,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows import names, rule_lock
from cm_delta_dagster.catalog.sql.rows.effective_policy import PUT_IF_ABSENT, of_wider_scopes
from cm_delta_dagster.catalog.sql.rules import commit_rules, held_commits
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError

_SWITCHING = CommitPolicy(kind=CommitPolicyKind.SWITCHING)
_LOCKED = (
    sa.select(
        *NAME_COLUMNS,
        TABLES.c.commit_policy,
        TABLES.c.barrier_after,
        TABLES.c.latest_version,
        TABLES.c.published_version,
    )
    .where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
    .with_for_update()
)
_ADOPT = (
    sa.update(TABLES)
    .where(
        TABLES.c.table_id == sa.bindparam("of_table"),
        of_wider_scopes() == str(PUT_IF_ABSENT),
    )
    .values(commit_policy=str(PUT_IF_ABSENT))
)
_BARRIER = sa.select(COMMITS.c.version).where(
    COMMITS.c.table_id == sa.bindparam("of_table"),
    COMMITS.c.version > sa.bindparam("after"),
    COMMITS.c.operation == BARRIER_OPERATION,
)


def adopt(connection: sa.Connection, table_id: str) -> None:
    """Give a table that is being registered the put-if-absent policy of its schema or catalog as its own."""
    connection.execute(_ADOPT, {"of_table": table_id})


class SqlCommitPolicies(Part):
    """Implements :class:`~cm_delta_dagster.catalog.commit_policies.CommitPolicies`."""

    @writes
    def set_commit_policy(self, connection: sa.Connection, rule: CommitPolicyRule) -> None:
        """Create or replace the rule of a catalog or a schema. Raises InvalidArgumentError."""
        names.scope_parts(rule.scope)
        if rule.policy == _SWITCHING or rule.scope.count(".") > 1:
            raise InvalidArgumentError(
                f"The commit policy {rule.policy} was not set for {rule.scope!r}: a rule is for a catalog or a schema; a table's "
                "own policy is changed with the table's id, and only the catalog sets switching."
            )
        rule_lock.acquire(connection)
        guard.require_on_scope(connection, Operation.SET_POLICY, rule.scope)
        _refuse_without_check(connection, rule.policy)
        if rule.policy == PUT_IF_ABSENT:
            commit_rules.refuse_put_if_absent(connection, rule.scope)
        of_scope = COMMIT_POLICIES.c.scope == rule.scope
        before = connection.execute(sa.select(COMMIT_POLICIES.c.policy).where(of_scope)).scalar_one_or_none()
        _record(connection, rule.scope, before=before, after=str(rule.policy))
        if before is None:
            connection.execute(sa.insert(COMMIT_POLICIES).values(scope=rule.scope, policy=str(rule.policy)))
        else:
            connection.execute(sa.update(COMMIT_POLICIES).where(of_scope).values(policy=str(rule.policy)))

    @writes
    def remove_commit_policy(self, connection: sa.Connection, scope: str) -> None:
        """Delete the rule of ``scope``. Raises InvalidArgumentError for a malformed scope."""
        names.scope_parts(scope)
        rule_lock.acquire(connection)
        guard.require_on_scope(connection, Operation.SET_POLICY, scope)
        of_scope = COMMIT_POLICIES.c.scope == scope
        before = connection.execute(sa.select(COMMIT_POLICIES.c.policy).where(of_scope)).scalar_one_or_none()
        if before is not None:
            connection.execute(sa.delete(COMMIT_POLICIES).where(of_scope))
            _record(connection, scope, before=before, after=None)

    @reads
    def commit_policies(self, connection: sa.Connection) -> tuple[CommitPolicyRule, ...]:
        """Every rule, by scope."""
        own = sa.select(*NAME_COLUMNS, TABLES.c.commit_policy).where(IS_ACTIVE, TABLES.c.commit_policy.is_not(None))
        policies = {row.scope: row.policy for row in connection.execute(sa.select(COMMIT_POLICIES))}
        for row in connection.execute(own):
            policies[str(identifier_of(row))] = row.commit_policy
        return tuple(
            CommitPolicyRule(scope=scope, policy=CommitPolicy.parse(text)) for scope, text in sorted(policies.items())
        )

    @writes
    def change_commit_policy(
        self, connection: sa.Connection, table_id: str, policy: CommitPolicy | None
    ) -> PolicyChange:
        """Set the policy, or return what must be done first. Raises TableNotFoundError, InvalidArgumentError."""
        # The lock of the row excludes proposals, so that every commit is still published when put-if-absent is written. In the
        # other direction the barrier commit ensures it: a writer that read the policy before can only try versions up to it.
        if policy == _SWITCHING:
            raise InvalidArgumentError("Switching is a state that the catalog sets; choose another commit policy.")
        rule_lock.acquire(connection)
        guard.require_on_table(connection, Operation.SET_POLICY, table_id)
        _refuse_without_check(connection, policy)
        return _change(connection, table_id, policy)

    @writes
    def begin_release(self, connection: sa.Connection, table_id: str) -> PolicyChange:
        """Set put-if-absent for a release. Raises TableNotFoundError, OperationRefusedError, InvalidArgumentError."""
        # A commit that is made by creating its file until the release is not checked against grants; nor is one after the release.
        rule_lock.acquire(connection)
        guard.require_on_table(connection, Operation.RELEASE, table_id)
        return _change(connection, table_id, PUT_IF_ABSENT)


def _change(connection: sa.Connection, table_id: str, policy: CommitPolicy | None) -> PolicyChange:
    row = connection.execute(_LOCKED, {"of_table": table_id}).one_or_none()
    if row is None:
        raise TableNotFoundError(
            f"No registered table has the id {table_id}: its commit policy was not changed. Load the table by its name again."
        )
    current = None if row.commit_policy is None else CommitPolicy.parse(row.commit_policy)
    if current != policy:
        after = None if policy is None else str(policy)
        _record(
            connection,
            str(identifier_of(row)),
            before=row.commit_policy,
            after=after,
            table_id=table_id,
        )
    if policy == PUT_IF_ABSENT:
        commit_rules.refuse_put_if_absent(connection, str(identifier_of(row)))
        held_commits.refuse_put_if_absent(connection, table_id)
        if row.published_version == row.latest_version:
            return _write(connection, table_id, policy, None, PolicyChange.DONE)
        return _write(connection, table_id, _SWITCHING, row.barrier_after, PolicyChange.PUBLISH_FIRST)
    if current == PUT_IF_ABSENT:
        return _write(connection, table_id, _SWITCHING, row.latest_version, PolicyChange.BARRIER_FIRST)
    if row.barrier_after is not None:
        parameters = {"of_table": table_id, "after": row.barrier_after}
        if connection.execute(_BARRIER, parameters).first() is None:
            return PolicyChange.BARRIER_FIRST
    return _write(connection, table_id, policy, None, PolicyChange.DONE)


def _refuse_without_check(connection: sa.Connection, policy: CommitPolicy | None) -> None:
    """Refuse put-if-absent while grants are enabled: the catalog cannot refuse a commit that is made by creating its file."""
    if policy == PUT_IF_ABSENT and guard.is_enabled(connection):
        raise InvalidArgumentError(
            "The commit mode put_if_absent was not set: the catalog enforces grants, and it cannot refuse commits that are made by "
            "creating their files. Nothing was changed. Use staged, inline or auto."
        )


def _record(
    connection: sa.Connection,
    scope: str,
    *,
    before: str | None,
    after: str | None,
    table_id: str | None = None,
) -> None:
    change = audit.Change(action="set commit policy", scope=scope, before=before, after=after, table_id=table_id)
    audit.record(connection, change)


def _write(
    connection: sa.Connection,
    table_id: str,
    policy: CommitPolicy | None,
    barrier_after: int | None,
    answer: PolicyChange,
) -> PolicyChange:
    values = {"commit_policy": None if policy is None else str(policy), "barrier_after": barrier_after}
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(values))
    return answer
