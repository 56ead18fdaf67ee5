"""Grants, roles and owners of tables.

Changes exclude each other, so that two clients cannot remove
the last two owners at the same time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import ROLE, USER, WHOLE_CATALOG, Caller, Grant, Privilege, Role, plain_name
from cm_delta_dagster.catalog.commit_policy import NOT_THROUGH_CATALOG
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.audit import Change
from cm_delta_dagster.catalog.sql.access.grantees import PUBLIC, of_role, of_user, shown, shown_by, stored
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database import callers
from cm_delta_dagster.catalog.sql.database.callers import checked_principal, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMIT_POLICIES,
    GRANTS,
    IS_ACTIVE,
    NAME_COLUMNS,
    ROLE_MEMBERS,
    ROLES,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows import active_checks, names, rule_lock, table_names
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import checked_reason
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import RepeatWithOption

_NAMED = sa.select(*NAME_COLUMNS, TABLES.c.table_id, TABLES.c.owner).where(
    TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A scope that a caller named. ``key`` is how grants name it: a table by its id."""

    name: str
    key: str
    table_id: str | None = None


class SqlAccessControl(Part):
    """Callers, grants, roles and owners; implements :class:`~cm_delta_dagster.catalog.access_control.AccessControl`."""

    @reads
    def whoami(self, connection: sa.Connection) -> Caller:
        """The caller of this client."""
        principal = callers.caller_of(connection)
        caller_names = connection.execute(sa.select(guard.NAMES.c.name), guard.caller_parameters(connection)).scalars()
        roles = {plain_name(name) for name in caller_names if name.startswith(ROLE)}
        return Caller(
            principal=principal,
            source=callers.source_of(connection),
            roles=tuple(sorted(roles - {PUBLIC})),
            grants_enabled=guard.is_enabled(connection),
        )

    @writes
    def enable_grants(self, connection: sa.Connection, *, owner: str | None = None, force: bool = False) -> None:
        """Enforce grants. Raises InvalidArgumentError, OperationRefusedError."""
        owner = checked_principal(owner)
        rule_lock.acquire(connection)
        guard.require(connection, Operation.ENABLE_GRANTS, WHOLE_CATALOG)
        _refuse_commits_by_creation(connection)
        grantee = of_user(callers.caller_of(connection)) if owner is None else stored(connection, owner)
        if grantee is not None:
            _insert(connection, [Privilege.OWN], Scope(name=WHOLE_CATALOG, key=WHOLE_CATALOG), grantee)
        _refuse_lock_out(connection, force)
        if not guard.is_enabled(connection):
            active_checks.activate(connection, guard.RULE, WHOLE_CATALOG)
            audit.record(connection, Change(action="enable grants", scope=WHOLE_CATALOG, before="off", after="on"))

    @writes
    def disable_grants(self, connection: sa.Connection) -> None:
        """Stop the enforcement. Raises OperationRefusedError."""
        rule_lock.acquire(connection)
        guard.require(connection, Operation.DISABLE_GRANTS, WHOLE_CATALOG)
        if guard.is_enabled(connection):
            active_checks.deactivate(connection, guard.RULE, WHOLE_CATALOG)
            audit.record(connection, Change(action="disable grants", scope=WHOLE_CATALOG, before="on", after="off"))

    @writes
    def grant(
        self, connection: sa.Connection, privileges: Sequence[Privilege], scope: str, grantee: str, *, reason: str = ""
    ) -> None:
        """Insert grants. Raises InvalidArgumentError, TableNotFoundError, OperationRefusedError."""
        privileges, grantee, reason = _privileges(privileges), _required_name(grantee), checked_reason(reason)
        rule_lock.acquire(connection)
        place = scope_of(connection, scope)
        guard.require(connection, Operation.GRANT, place.name, table_id=place.table_id)
        _insert(connection, privileges, place, stored(connection, grantee), reason=reason)

    @writes
    def revoke(
        self,
        connection: sa.Connection,
        privileges: Sequence[Privilege],
        scope: str,
        grantee: str,
        *,
        reason: str = "",
        force: bool = False,
    ) -> None:
        """Delete grants. Raises InvalidArgumentError, TableNotFoundError, OperationRefusedError."""
        privileges, grantee, reason = _privileges(privileges), _required_name(grantee), checked_reason(reason)
        rule_lock.acquire(connection)
        place = scope_of(connection, scope)
        guard.require(connection, Operation.GRANT, place.name, table_id=place.table_id)
        key = stored(connection, grantee)
        for privilege in privileges:
            same = (GRANTS.c.grantee == key, GRANTS.c.scope == place.key, GRANTS.c.privilege == privilege.value)
            if not connection.execute(sa.delete(GRANTS).where(*same)).rowcount:
                raise InvalidArgumentError(
                    f"{privilege.value} on {scope} was not revoked from {grantee}: there is no such grant. Nothing was changed. A "
                    "privilege may come from a wider scope, a role, or the ownership of the table; list the grants."
                )
            change = _change("revoke", place, privilege, shown(connection, key), reason=reason, had=True)
            audit.record(connection, change)
        _refuse_lock_out_if_enabled(connection, force)

    @reads
    def grants(self, connection: sa.Connection, scope: str = "") -> tuple[Grant, ...]:
        """The grants at, above and below a scope. Raises InvalidArgumentError for a malformed one."""
        if scope not in ("", WHOLE_CATALOG):
            names.scope_parts(scope)
        named = {f"id:{row.table_id}": row for row in connection.execute(sa.select(*NAME_COLUMNS, TABLES.c.table_id))}
        grants, show = [], shown_by(connection)
        for row in connection.execute(sa.select(GRANTS)):
            table = named.get(row.scope)
            name = row.scope if table is None else str(identifier_of(table))
            if _overlaps(name, scope):
                grants.append(
                    Grant(
                        grantee=show(row.grantee),
                        privilege=Privilege(row.privilege),
                        scope=name,
                        granted_by=row.granted_by,
                        granted_ms=row.granted_ms,
                        table_id=None if table is None else table.table_id,
                    )
                )
        order = {privilege: place for place, privilege in enumerate(Privilege)}
        return tuple(sorted(grants, key=lambda grant: (grant.scope, grant.grantee, order[grant.privilege])))

    @writes
    def add_to_role(self, connection: sa.Connection, role: str, members: Sequence[str], *, reason: str = "") -> None:
        """Insert memberships. Raises InvalidArgumentError, OperationRefusedError."""
        role, members, reason = _role_name(role), _member_names(members), checked_reason(reason)
        rule_lock.acquire(connection)
        guard.require(connection, Operation.MANAGE_ROLES, WHOLE_CATALOG)
        key = of_role(role)
        if connection.execute(sa.select(ROLES.c.role).where(ROLES.c.role == key)).first() is None:
            connection.execute(sa.insert(ROLES).values(role=key))
            change = Change(action="create role", scope=WHOLE_CATALOG, after=plain_name(key), reason=reason)
            audit.record(connection, change)
        known = _members(connection)
        for member, added in ((member, stored(connection, member)) for member in members):
            if added == key or key in _members_of(added, known):
                raise InvalidArgumentError(
                    f"{member} was not added to the role {role}: the role would be a member of itself. Nothing was changed."
                )
            if added not in known.get(key, ()):
                connection.execute(sa.insert(ROLE_MEMBERS).values(role=key, member=added))
                text = f"{member} in {role}"
                audit.record(connection, Change(action="add to role", scope=WHOLE_CATALOG, after=text, reason=reason))
                known.setdefault(key, set()).add(added)

    @writes
    def remove_from_role(
        self, connection: sa.Connection, role: str, members: Sequence[str], *, reason: str = "", force: bool = False
    ) -> None:
        """Delete memberships. Raises InvalidArgumentError, OperationRefusedError."""
        role, members, reason = _role_name(role), _member_names(members), checked_reason(reason)
        rule_lock.acquire(connection)
        guard.require(connection, Operation.MANAGE_ROLES, WHOLE_CATALOG)
        for member in members:
            same = (ROLE_MEMBERS.c.role == of_role(role), ROLE_MEMBERS.c.member == stored(connection, member))
            if not connection.execute(sa.delete(ROLE_MEMBERS).where(*same)).rowcount:
                raise InvalidArgumentError(f"{member} is not a member of the role {role}. Nothing was changed.")
            text = f"{member} in {role}"
            audit.record(connection, Change(action="remove from role", scope=WHOLE_CATALOG, before=text, reason=reason))
        _refuse_lock_out_if_enabled(connection, force)

    @writes
    def drop_role(self, connection: sa.Connection, role: str, *, reason: str = "", force: bool = False) -> None:
        """Delete a role. Raises InvalidArgumentError, OperationRefusedError."""
        role, reason = _role_name(role), checked_reason(reason)
        rule_lock.acquire(connection)
        guard.require(connection, Operation.MANAGE_ROLES, WHOLE_CATALOG)
        key = of_role(role)
        owned = connection.execute(_OWNED_BY, {"of_owner": key}).first()
        if owned is not None:
            raise InvalidArgumentError(
                f"The role {role} was not dropped: it owns the table {identifier_of(owned)}. Nothing was changed. Transfer its "
                "tables to another owner first; bring a dropped one back before, or purge it."
            )
        connection.execute(
            sa.delete(ROLE_MEMBERS).where(sa.or_(ROLE_MEMBERS.c.role == key, ROLE_MEMBERS.c.member == key))
        )
        if not connection.execute(sa.delete(ROLES).where(ROLES.c.role == key)).rowcount:
            raise InvalidArgumentError(f"There is no role {role!r}; list the roles. Nothing was changed.")
        connection.execute(sa.delete(GRANTS).where(GRANTS.c.grantee == key))
        audit.record(connection, Change(action="drop role", scope=WHOLE_CATALOG, before=plain_name(key), reason=reason))
        _refuse_lock_out_if_enabled(connection, force)

    @reads
    def roles(self, connection: sa.Connection) -> tuple[Role, ...]:
        """All roles, sorted."""
        known = _members(connection)
        role_names = sorted(connection.execute(sa.select(ROLES.c.role)).scalars())
        show = shown_by(connection)
        members = {role: sorted(map(show, known.get(role, ()))) for role in role_names}
        return tuple(Role(name=plain_name(role), members=tuple(members[role])) for role in role_names)

    @reads
    def table_owner(self, connection: sa.Connection, table_id: str) -> str | None:
        """The owner of a table. Raises TableNotFoundError."""
        row = connection.execute(_NAMED, {"of_table": table_id}).one_or_none()
        if row is None:
            raise unknown_table(table_id)
        return None if row.owner is None else shown(connection, row.owner)

    @writes
    def transfer_table(self, connection: sa.Connection, table_id: str, owner: str, *, reason: str = "") -> None:
        """Set the owner of a table. Raises TableNotFoundError, InvalidArgumentError, OperationRefusedError."""
        owner, reason = _required_name(owner), checked_reason(reason)
        row = connection.execute(_NAMED, {"of_table": table_id}).one_or_none()
        if row is None:
            raise unknown_table(table_id)
        name = str(identifier_of(row))
        guard.require(connection, Operation.TRANSFER, name, table_id=table_id)
        key = stored(connection, owner)
        if row.owner != key:
            connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(owner=key))
            change = Change(
                action="transfer ownership",
                scope=name,
                before=None if row.owner is None else shown(connection, row.owner),
                after=shown(connection, key),
                reason=reason,
                table_id=table_id,
            )
            audit.record(connection, change)


def scope_of(connection: sa.Connection, text: str) -> Scope:
    """The scope that ``text`` names. Raises InvalidArgumentError, TableNotFoundError."""
    if text == WHOLE_CATALOG:
        return Scope(name=text, key=text)
    if not text:
        raise InvalidArgumentError("No scope was given: write *, catalog, catalog.schema or catalog.schema.table.")
    parts = names.scope_parts(text)
    if len(parts) < 3:
        return Scope(name=text, key=text)
    table_id = table_names.id_of(connection, TableIdentifier(*parts))
    return Scope(name=text, key=f"id:{table_id}", table_id=table_id)


_OWNED_BY = sa.select(*NAME_COLUMNS).where(TABLES.c.owner == sa.bindparam("of_owner")).limit(1)


def _privileges(privileges: Sequence[Privilege]) -> tuple[Privilege, ...]:
    distinct = tuple(dict.fromkeys(privileges))
    if not distinct:
        raise InvalidArgumentError(
            f"No privilege was given; the privileges are {', '.join(privilege.value for privilege in Privilege)}."
        )
    return distinct


def _required_name(name: str) -> str:
    checked = checked_principal(name)
    if checked is None:
        raise InvalidArgumentError("No principal was given: name the user, the pipeline or the role.")
    return checked


def _role_name(name: str) -> str:
    checked = _required_name(name)
    if checked in (PUBLIC, f"{ROLE}{PUBLIC}"):
        raise InvalidArgumentError(f"{name!r} is the role of everybody; it has no members to add or remove.")
    return checked


def _member_names(members: Sequence[str]) -> tuple[str, ...]:
    if isinstance(members, str) or not isinstance(members, Sequence) or not members:
        raise InvalidArgumentError(f"The members {members!r} are not a list of names; give at least one, e.g. ['ana'].")
    return tuple(_role_name(member) for member in members)


def _insert(
    connection: sa.Connection,
    privileges: Iterable[Privilege],
    place: Scope,
    grantee: str,
    *,
    reason: str = "",
) -> None:
    of_grantee = sa.select(GRANTS.c.privilege).where(GRANTS.c.grantee == grantee, GRANTS.c.scope == place.key)
    granted = set(connection.execute(of_grantee).scalars())
    for privilege in dict.fromkeys(privileges):
        if privilege.value in granted:
            continue
        row = {"grantee": grantee, "scope": place.key, "privilege": privilege.value}
        by = {"granted_by": callers.caller_of(connection), "granted_ms": now_of(connection)}
        connection.execute(sa.insert(GRANTS).values(**row, **by))
        change = _change("grant", place, privilege, shown(connection, grantee), reason=reason, had=False)
        audit.record(connection, change)


def _change(action: str, place: Scope, privilege: Privilege, grantee: str, *, reason: str, had: bool) -> Change:
    text = f"{privilege.value} to {grantee}"
    return Change(
        action=action,
        scope=place.name,
        before=text if had else None,
        after=None if had else text,
        reason=reason,
        table_id=place.table_id,
    )


def _overlaps(name: str, scope: str) -> bool:
    """Whether one of two scopes contains the other."""
    if not scope or WHOLE_CATALOG in (name, scope):
        return True
    return f"{name}.".startswith(f"{scope}.") or f"{scope}.".startswith(f"{name}.")


def _members(connection: sa.Connection) -> dict[str, set[str]]:
    """Direct members by role, as they are stored."""
    members: dict[str, set[str]] = {}
    for row in connection.execute(sa.select(ROLE_MEMBERS)):
        members.setdefault(row.role, set()).add(row.member)
    return members


def _members_of(role: str, known: dict[str, set[str]]) -> set[str]:
    """Direct and indirect members."""
    members: set[str] = set()
    waiting = [role]
    while waiting:
        for member in known.get(waiting.pop(), set()) - members:
            members.add(member)
            waiting.append(member)
    return members


def _refuse_lock_out_if_enabled(connection: sa.Connection, force: bool) -> None:
    if guard.is_enabled(connection):
        _refuse_lock_out(connection, force)


def _refuse_lock_out(connection: sa.Connection, force: bool) -> None:
    """Refuse a state in which no principal owns the whole catalog, unless the caller asked for it explicitly."""
    if force:
        return
    owning = sa.select(GRANTS.c.grantee).where(
        GRANTS.c.scope == WHOLE_CATALOG, GRANTS.c.privilege == Privilege.OWN.value
    )
    grantees = set(connection.execute(owning).scalars())
    known = _members(connection)
    people = {name for grantee in grantees for name in {grantee, *_members_of(grantee, known)}}
    if not any(name.startswith(USER) or name == f"{ROLE}{PUBLIC}" for name in people):
        raise InvalidArgumentError(
            "No principal would own the whole catalog and could change its grants. Nothing was changed. Name an owner; "
            "otherwise only the owner of the catalog's database can undo it."
        ).with_remedy(RepeatWithOption(option="force"))


def _refuse_commits_by_creation(connection: sa.Connection) -> None:
    by_creation = sa.select(*NAME_COLUMNS).where(IS_ACTIVE, TABLES.c.commit_policy.in_(NOT_THROUGH_CATALOG))
    row = connection.execute(by_creation.limit(1)).first()
    rule = connection.execute(
        sa.select(COMMIT_POLICIES.c.scope).where(COMMIT_POLICIES.c.policy.in_(NOT_THROUGH_CATALOG)).limit(1)
    ).scalar_one_or_none()
    where = rule if row is None else str(identifier_of(row))
    if where is not None:
        raise InvalidArgumentError(
            f"Grants were not enabled: commits of {where} are made by creating their files (put-if-absent), and the catalog cannot "
            "refuse them. Set another commit mode first."
        )
