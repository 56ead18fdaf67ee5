"""Objects of other roles that would act with the rights of the role that owns the catalog's tables, on PostgreSQL.

A trigger on a table of the catalog runs inside of the functions that enforce grants, also if another role created it. The search
path of these functions contains the catalog's schema: a function or an operator there can take the place of a built-in one.
"""

import sqlalchemy as sa

from cm_delta_dagster.errors import InvalidArgumentError

_SHOWN = 5

_FOUND = sa.text(r"""
WITH tables AS (
    SELECT c.oid, c.relname, c.relowner, c.relnamespace FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT d.relnamespace FROM pg_catalog.pg_class d WHERE d.oid = CAST(:tables AS oid))
        AND c.relname LIKE 'cm\_delta\_%' AND c.relkind IN ('r', 'p')
), place AS (
    SELECT n.oid, n.nspname, n.nspowner, n.nspacl, t.relowner AS owner
    FROM pg_catalog.pg_namespace n JOIN tables t ON t.relnamespace = n.oid AND t.oid = CAST(:tables AS oid)
), strangers AS (
    SELECT r.oid FROM pg_catalog.pg_roles r, place p
    WHERE NOT pg_has_role(r.oid, p.owner, 'USAGE') AND NOT pg_has_role(r.oid, p.nspowner, 'USAGE')
)
SELECT 'the trigger ' || quote_ident(g.tgname) || ' on ' || t.relname
FROM pg_catalog.pg_trigger g JOIN tables t ON t.oid = g.tgrelid WHERE NOT g.tgisinternal
UNION ALL
SELECT 'the foreign key ' || quote_ident(k.conname) || ' of ' || k.conrelid::regclass || ' to ' || t.relname
FROM pg_catalog.pg_constraint k JOIN tables t ON t.oid = k.confrelid
WHERE k.contype = 'f' AND k.conrelid NOT IN (SELECT oid FROM tables)
UNION ALL
SELECT 'the function ' || f.oid::regprocedure || ' of the role ' || pg_get_userbyid(f.proowner)
FROM pg_catalog.pg_proc f JOIN place p ON p.oid = f.pronamespace WHERE f.proowner IN (SELECT oid FROM strangers)
UNION ALL
SELECT 'the operator ' || o.oid::regoperator || ' of the role ' || pg_get_userbyid(o.oprowner)
FROM pg_catalog.pg_operator o JOIN place p ON p.oid = o.oprnamespace WHERE o.oprowner IN (SELECT oid FROM strangers)
UNION ALL
SELECT 'the right of the role ' || pg_get_userbyid(a.grantee) || ' to create objects in the schema ' || p.nspname
FROM place p, pg_catalog.aclexplode(p.nspacl) a
WHERE a.privilege_type = 'CREATE' AND a.grantee IN (SELECT oid FROM strangers)
""")


def refuse(connection: sa.Connection, tables: int) -> None:
    """Refuse to enforce grants beside such objects.

    Args:
        tables: object id of the table ``cm_delta_tables``.

    Raises InvalidArgumentError, which names the objects.
    """
    found = sorted(connection.execute(_FOUND, {"tables": tables}).scalars())
    if not found:
        return
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise InvalidArgumentError(
        f"Grants were not enabled: {'; '.join(found[:_SHOWN])}{more}. With these a role could act with the rights of the role that "
        "owns the catalog's tables. Nothing was changed. Drop the objects and revoke the right, or create the catalog in a schema "
        "in which no other role can create objects."
    )
