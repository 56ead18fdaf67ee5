"""From revision 0013 to 0014: functions, policies and row-level security, by which PostgreSQL enforced grants, are dropped.

Policies restricted what a role with rights on a table read and changed there. Without them it would read and change all rows, so
that all rights on tables of the catalog are revoked from every role but their owner, also on those without policies, as the grants.
The owner grants again what a role needs.
"""

import sqlalchemy as sa

_SCHEMA = sa.text(
    "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.oid = pg_catalog.to_regclass('cm_delta_tables')"
)
_SEARCH_PATH = sa.text("SELECT pg_catalog.current_setting('search_path')")
_SET_SEARCH_PATH = sa.text("SELECT pg_catalog.set_config('search_path', :names, true)")
_OF_CATALOG = "n.nspname = :of_schema AND {name} LIKE 'cm\\_delta\\_%'"
_POLICIES = sa.text(
    "SELECT format('DROP POLICY %I ON %s', p.polname, c.oid::regclass) FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OF_CATALOG.format(name='p.polname')}"
)
_ROW_SECURITY = sa.text(
    "SELECT format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', c.oid::regclass) FROM pg_class c "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relrowsecurity AND {_OF_CATALOG.format(name='c.relname')}"
)
_ENFORCED = "EXISTS (SELECT FROM pg_proc f WHERE f.pronamespace = n.oid AND f.proname = 'cm_delta_holds')"
_RIGHTS_OF_EVERYBODY = sa.text(
    "SELECT format('REVOKE ALL ON TABLE %s FROM PUBLIC', c.oid::regclass) FROM pg_class c "
    f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND {_OF_CATALOG.format(name='c.relname')} "
    f"AND {_ENFORCED}"
)
_RIGHTS_OF_ROLES = sa.text(
    "SELECT DISTINCT format('REVOKE ALL ON TABLE %s FROM %I CASCADE', c.oid::regclass, r.rolname) FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_attribute t ON t.attrelid = c.oid, "
    "LATERAL (SELECT * FROM aclexplode(c.relacl) UNION ALL SELECT * FROM aclexplode(t.attacl)) a "
    "JOIN pg_roles r ON r.oid = a.grantee "
    f"WHERE (c.relrowsecurity OR {_ENFORCED}) AND a.grantee <> c.relowner AND {_OF_CATALOG.format(name='c.relname')}"
)
_FUNCTIONS = sa.text(
    "SELECT format('DROP FUNCTION %s', f.oid::regprocedure) FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace "
    f"WHERE {_OF_CATALOG.format(name='f.proname')}"
)


def upgrade(connection: sa.Connection) -> None:
    """Drop what enforced grants; only the owner keeps rights on its tables."""
    if connection.dialect.name != "postgresql":
        return
    schema = connection.execute(_SCHEMA).scalar_one()
    names = connection.execute(_SEARCH_PATH).scalar_one()
    connection.execute(_SET_SEARCH_PATH, {"names": "pg_catalog"})  # Objects of other roles must not run as the owner.
    for statements in (_RIGHTS_OF_EVERYBODY, _RIGHTS_OF_ROLES, _POLICIES, _ROW_SECURITY, _FUNCTIONS):
        for statement in connection.execute(statements, {"of_schema": schema}).scalars().all():
            connection.exec_driver_sql(statement)
    connection.execute(_SET_SEARCH_PATH, {"names": names})
