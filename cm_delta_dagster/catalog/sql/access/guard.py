"""Which privilege each operation requires, and whether the caller has it.

Every operation but a commit asks :func:`require` once. The privileges that a commit requires follow from its content; see
``grant_check``. Functions over an open connection.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import ROLE, WHOLE_CATALOG, Privilege, plain_name
from cm_delta_dagster.catalog.maintenance import BY_GRANTS
from cm_delta_dagster.catalog.sql.access.grantees import PUBLIC, of_user
from cm_delta_dagster.catalog.sql.database.callers import caller_of, roles_of
from cm_delta_dagster.catalog.sql.database.json_texts import texts, texts_of
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE_CHECKS,
    GRANTS,
    NAME_COLUMNS,
    PURGED,
    ROLE_MEMBERS,
    TABLES,
    identifier_of,
    scope_keys,
)
from cm_delta_dagster.catalog.sql.rows.table_names import HOLDER, name_parameters
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import OperationRefusedError
from cm_delta_dagster.refusals import Refusal

RULE = BY_GRANTS
"""Name of the rule in refusals, and of the check of commits."""


class Operation(StrEnum):
    """What a caller asks the catalog for. The value is the text of messages and of the audit."""

    READ = "read"
    LOCATE = "locate tables"
    PIN = "pin version"
    MOVE_PINS = "move pins of others"
    CREATE = "create table"
    REGISTER_PATH = "register path"
    CREATE_CATALOG = "create catalog"
    CREATE_SCHEMA = "create schema"
    DROP_CATALOG = "drop catalog"
    DROP_SCHEMA = "drop schema"
    RENAME = "rename"
    DROP = "drop"
    UNDROP = "undrop"
    PURGE = "purge"
    CLONE = "clone"
    ADOPT = "adopt"
    RELEASE = "release"
    REPAIR = "repair definition"
    RESET_APPLICATION_ID = "reset application id"
    MAINTAIN = "maintain"
    LEASE = "lease"
    EXPIRE_LEASE = "expire lease"
    PUBLISH = "publish"
    WRITE_FILES = "write files"
    SET_POLICY = "set policy"
    APPROVE = "approve"
    GRANT = "grant"
    TRANSFER = "transfer ownership"
    MANAGE_ROLES = "manage roles"
    MANAGE_TOKENS = "manage tokens"
    ENABLE_GRANTS = "enable grants"
    DISABLE_GRANTS = "disable grants"
    RECOVER = "recover"
    READ_AUDIT = "read audit"


_WRITE = (Privilege.APPEND, Privilege.ALTER, Privilege.MAINTAIN)
REQUIRED: Mapping[Operation, tuple[Privilege, ...]] = MappingProxyType(
    {
        Operation.READ: (Privilege.READ,),
        # Who writes anywhere must know of every table whose files are there.
        Operation.LOCATE: (Privilege.READ,),
        Operation.PIN: (Privilege.READ,),
        Operation.MOVE_PINS: _WRITE,
        # A clone restricts what the owner of its source may do, and its creation holds the lease of the source.
        Operation.CLONE: _WRITE,
        Operation.LEASE: _WRITE,
        Operation.EXPIRE_LEASE: (Privilege.MAINTAIN,),
        Operation.PUBLISH: _WRITE,
        Operation.WRITE_FILES: _WRITE,
        Operation.CREATE: (Privilege.ALTER,),
        Operation.REGISTER_PATH: (Privilege.ALTER,),
        Operation.CREATE_CATALOG: (Privilege.ALTER,),
        Operation.CREATE_SCHEMA: (Privilege.ALTER,),
        Operation.DROP_CATALOG: (Privilege.OWN,),
        Operation.DROP_SCHEMA: (Privilege.OWN,),
        Operation.ADOPT: (Privilege.ALTER,),
        Operation.REPAIR: (Privilege.ALTER, Privilege.MAINTAIN),
        Operation.RESET_APPLICATION_ID: (Privilege.ALTER,),
        Operation.MAINTAIN: (Privilege.MAINTAIN,),
        Operation.RENAME: (Privilege.OWN,),
        Operation.DROP: (Privilege.OWN,),
        Operation.UNDROP: (Privilege.OWN,),
        Operation.PURGE: (Privilege.OWN,),
        Operation.RELEASE: (Privilege.OWN,),
        Operation.RECOVER: (Privilege.OWN,),
        Operation.SET_POLICY: (Privilege.OWN,),
        Operation.APPROVE: (Privilege.OWN,),
        Operation.GRANT: (Privilege.OWN,),
        Operation.TRANSFER: (Privilege.OWN,),
        Operation.MANAGE_ROLES: (Privilege.OWN,),
        Operation.MANAGE_TOKENS: (Privilege.OWN,),
        Operation.ENABLE_GRANTS: (Privilege.OWN,),
        Operation.DISABLE_GRANTS: (Privilege.OWN,),
        Operation.READ_AUDIT: (Privilege.OWN,),
    }
)
"""The privileges of which one is required for each operation."""

_STATE = Prepared(
    sa.select(ACTIVE_CHECKS.c.scope).where(ACTIVE_CHECKS.c.check_name == RULE, ACTIVE_CHECKS.c.scope == WHOLE_CATALOG)
)
IS_ENABLED = sa.exists(
    sa.select(ACTIVE_CHECKS.c.scope).where(ACTIVE_CHECKS.c.check_name == RULE, ACTIVE_CHECKS.c.scope == WHOLE_CATALOG)
).label("grants_enabled")
"""A column for statements that read tables: whether the caller needs a privilege, so that without grants they are one statement."""

_STATED = texts_of("caller_names").c.value
_IS_ITSELF = _STATED.concat("") == _STATED
"""Always true. PostgreSQL expects a hundred texts of an array, then thousands of roles, and would read all grants. With a condition
whose result it does not know it expects one."""

_NAMES = sa.select(_STATED.label("name")).where(_IS_ITSELF).cte("names", recursive=True)
NAMES = _NAMES.union(
    sa.select(ROLE_MEMBERS.c.role).where(ROLE_MEMBERS.c.member == _NAMES.c.name),
)
"""The caller and its roles, direct and indirect, with the role of everybody, as they are stored.

Statements with them have :func:`caller_parameters`.
"""

_IS_ONE_OF_THEM = GRANTS.c.grantee.in_(sa.select(NAMES.c.name))
_HELD_ON_TABLE = Prepared(
    sa.select(
        GRANTS.c.privilege,
        sa.case((TABLES.c.owner.in_(sa.select(NAMES.c.name)), 1), else_=0).label("is_owner"),
    )
    .select_from(TABLES.outerjoin(GRANTS, sa.and_(GRANTS.c.scope.in_(scope_keys()), _IS_ONE_OF_THEM)))
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
)
MAY_READ = sa.or_(
    sa.not_(IS_ENABLED.element),
    TABLES.c.owner.in_(sa.select(NAMES.c.name)),
    sa.exists(
        sa.select(GRANTS.c.scope)
        .where(
            GRANTS.c.scope.in_(scope_keys()),
            GRANTS.c.privilege.in_(
                [privilege.value for privilege in Privilege if Privilege.READ in privilege.included]
            ),
            _IS_ONE_OF_THEM,
        )
        .correlate(TABLES)
    ),
).label("may_read")
"""A column for lists of tables, with :func:`caller_parameters`: whether the caller may read the table of a row of ``TABLES``."""
_HELD_ON_SCOPES = sa.select(GRANTS.c.privilege).where(
    GRANTS.c.scope.in_(sa.bindparam("scopes", expanding=True)), _IS_ONE_OF_THEM
)
_TABLE = sa.select(*NAME_COLUMNS, TABLES.c.owner).where(TABLES.c.table_id == sa.bindparam("of_table"))
_HELD_ANYWHERE = sa.union(
    sa.select(GRANTS.c.privilege).where(_IS_ONE_OF_THEM),
    sa.select(sa.literal_column(f"'{Privilege.OWN.value}'", sa.Text)).where(
        sa.exists(
            sa.select(TABLES.c.table_id).where(TABLES.c.owner.in_(sa.select(NAMES.c.name)), TABLES.c.state != PURGED)
        )
    ),
)
_OWNERS = (
    sa.select(GRANTS.c.grantee)
    .where(GRANTS.c.privilege == Privilege.OWN.value, GRANTS.c.scope.in_(sa.bindparam("scopes", expanding=True)))
    .order_by(sa.func.length(GRANTS.c.scope).desc(), GRANTS.c.grantee)
    .limit(3)
)


def is_enabled(connection: sa.Connection) -> bool:
    """Whether the catalog enforces grants."""
    return bool(_STATE.rows(connection, {}))


def require(
    connection: sa.Connection,
    operation: Operation,
    on: "TableIdentifier | str",
    *,
    table_id: str | None = None,
) -> None:
    """Return if grants are not enabled, or if the caller has the privilege for ``operation``.

    Args:
        on: name of the table, or the scope: ``*``, a catalog or a schema. With ``table_id`` only for messages.
        table_id: the table, if the operation concerns an existing one.

    Raises:
        OperationRefusedError: the caller lacks the privilege; the message names the scope and whom to ask.
    """
    if not is_enabled(connection):
        return
    privileges = held_on_scope(connection, str(on)) if table_id is None else held_on_table(connection, table_id)
    if privileges.isdisjoint(REQUIRED[operation]):
        refusal = missing(connection, str(operation), REQUIRED[operation][:1], on=str(on), table_id=table_id)
        raise OperationRefusedError(str(refusal), refusal=refusal)


def require_on_scope(connection: sa.Connection, operation: Operation, scope: str) -> None:
    """As :func:`require`, for a scope that may be the name of a table, which need not exist."""
    if not is_enabled(connection):
        return
    require(connection, operation, scope, table_id=table_id_of(connection, scope))


def require_anywhere(connection: sa.Connection, operation: Operation) -> None:
    """As :func:`require`, for what concerns the tables of others: the privilege on any one scope or table is enough."""
    if not is_enabled(connection):
        return
    privileges = connection.execute(_HELD_ANYWHERE, caller_parameters(connection)).scalars()
    if _with_included(set(privileges)).isdisjoint(REQUIRED[operation]):
        refusal = missing(connection, str(operation), REQUIRED[operation][:1], on=WHOLE_CATALOG, table_id=None)
        raise OperationRefusedError(str(refusal), refusal=refusal)


def table_id_of(connection: sa.Connection, scope: str) -> str | None:
    """The id of the table that the scope names; None for other scopes, and for a table that does not exist."""
    if scope.count(".") + 1 != len(NAME_COLUMNS):
        return None
    return connection.execute(HOLDER, name_parameters(TableIdentifier(*scope.split(".")))).scalar_one_or_none()


def require_on_table(connection: sa.Connection, operation: Operation, table_id: str) -> None:
    """As :func:`require` for the table with this id; an unknown one is left to the operation."""
    if not is_enabled(connection):
        return
    identifier = identifier_of_table(connection, table_id)
    if identifier is not None:
        require(connection, operation, identifier, table_id=table_id)


def identifier_of_table(connection: sa.Connection, table_id: str) -> TableIdentifier | None:
    """The name of the table with this id; None for an unknown one."""
    row = connection.execute(_TABLE, {"of_table": table_id}).one_or_none()
    return None if row is None else identifier_of(row)


def may_on_table(connection: sa.Connection, operation: Operation, table_id: str) -> bool:
    """Whether the caller has the privilege for ``operation`` on the table with this id."""
    return not is_enabled(connection) or not held_on_table(connection, table_id).isdisjoint(REQUIRED[operation])


def permits(operation: Operation) -> sa.ColumnElement[bool]:
    """A condition for statements that list tables: whether the caller has the privilege for ``operation`` on the table of a row.

    The statement has :func:`caller_parameters`. An owner of a table has every privilege on it.
    """
    sufficient = [name.value for name in Privilege if not name.included.isdisjoint(REQUIRED[operation])]
    names = sa.select(NAMES.c.name)
    return sa.or_(
        ~IS_ENABLED.element,
        TABLES.c.owner.in_(names),
        sa.exists(
            sa.select(GRANTS.c.privilege).where(
                GRANTS.c.scope.in_(scope_keys()), _IS_ONE_OF_THEM, GRANTS.c.privilege.in_(sufficient)
            )
        ),
    )


def caller_parameters(connection: sa.Connection) -> dict[str, Any]:
    """The parameters of statements with :data:`NAMES`, with :func:`permits` or with columns of this module."""
    return {"caller_names": texts(first_names(connection))}


def first_names(connection: sa.Connection) -> tuple[str, ...]:
    """The caller, the roles that its call states, and the role of everybody, as they are stored."""
    user = of_user(caller_of(connection))
    stated = (f"{ROLE}{name}" for name in roles_of(connection))
    return (*(() if user is None else (user,)), *stated, f"{ROLE}{PUBLIC}")


def held_on_table(connection: sa.Connection, table_id: str) -> frozenset[Privilege]:
    """The privileges of the caller on a table, with those that they include."""
    statement, parameters = read_of_privileges(connection, table_id)
    return privileges_in(statement.rows(connection, parameters))


def read_of_privileges(connection: sa.Connection, table_id: str) -> Call:
    """The statement of :func:`held_on_table`, whose rows :func:`privileges_in` takes."""
    return _HELD_ON_TABLE, {"of_table": table_id, **caller_parameters(connection)}


def privileges_in(rows: Sequence[Any]) -> frozenset[Privilege]:
    """The privileges in rows of :func:`read_of_privileges`, with those that they include."""
    privileges = {row.privilege for row in rows if row.privilege is not None}
    return _with_included(privileges | ({Privilege.OWN.value} if any(row.is_owner for row in rows) else set()))


def held_on_scope(connection: sa.Connection, scope: str) -> frozenset[Privilege]:
    """The privileges of the caller on ``*``, a catalog, a schema, or on the schema of a table's name."""
    parameters = {"scopes": list(wider_scopes(scope)), **caller_parameters(connection)}
    return _with_included(set(connection.execute(_HELD_ON_SCOPES, parameters).scalars()))


def wider_scopes(scope: str) -> tuple[str, ...]:
    """The scopes whose grants apply to ``scope``: all tables, its catalog, its schema. A table's own grants belong to its id."""
    parts = scope.split(".")
    if scope == WHOLE_CATALOG:
        return (WHOLE_CATALOG,)
    return (WHOLE_CATALOG, *(".".join(parts[:count]) for count in range(1, min(len(parts), 2) + 1)))


def _with_included(privileges: set[str]) -> frozenset[Privilege]:
    return frozenset(included for name in privileges for included in Privilege(name).included)


def owners(connection: sa.Connection, on: str, table_id: str | None) -> tuple[str, ...]:
    """The names of up to three owners of the table, or of the narrowest scope that has one."""
    grantees: list[str] = []
    scopes = list(wider_scopes(on))
    if table_id is not None:
        row: Any = connection.execute(_TABLE, {"of_table": table_id}).one_or_none()
        grantees += [] if row is None or row.owner is None else [row.owner]
        scopes.append(f"id:{table_id}")
    grantees += connection.execute(_OWNERS, {"scopes": scopes}).scalars()
    return tuple(dict.fromkeys(map(plain_name, grantees)))[:3]


def missing(
    connection: sa.Connection, what: str, privileges: tuple[Privilege, ...], *, on: str, table_id: str | None
) -> Refusal:
    """The refusal of an operation for which the caller lacks ``privileges``."""
    caller = caller_of(connection)
    who = "a client that states no principal" if caller is None else f"the principal {caller}"
    names = " and ".join(privilege.value for privilege in privileges)
    return Refusal(
        what=what if what[:1].isupper() else f"The operation {what} on {on}",
        reason=f"{who} does not have the privilege{'s' if len(privileges) > 1 else ''} {names} on {on}",
        rule=RULE,
        scope=on,
        ask=owners(connection, on, table_id),
        table_id=table_id,
    )
