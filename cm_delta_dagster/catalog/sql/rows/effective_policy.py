"""The commit policy that applies to a table, as an expression over its row and the rules of wider scopes."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.sql.database.schema import COMMIT_POLICIES, TABLES

PUT_IF_ABSENT = CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT)
_SCHEMA = TABLES.c.catalog_name + "." + TABLES.c.schema_name


def _of_scope(scope: sa.ColumnElement[str]) -> sa.ScalarSelect[str]:
    rule = sa.select(COMMIT_POLICIES.c.policy).where(COMMIT_POLICIES.c.scope == scope)
    return rule.correlate(TABLES).scalar_subquery()


# A wider scope's put-if-absent applies only to tables that were registered under it; registration copied it to them.
EFFECTIVE_POLICY = sa.func.coalesce(
    TABLES.c.commit_policy,
    sa.func.nullif(_of_scope(_SCHEMA), str(PUT_IF_ABSENT)),
    sa.func.nullif(_of_scope(TABLES.c.catalog_name), str(PUT_IF_ABSENT)),
    CommitPolicyKind.STAGED.value,
).label("commit_policy")
"""The policy of a row of ``TABLES``: the table's own, its schema's, its catalog's, or the default."""


def of_wider_scopes() -> sa.ColumnElement[str]:
    """The policy of the schema, else of the catalog, of a row of ``TABLES``; NULL without a rule."""
    return sa.func.coalesce(_of_scope(_SCHEMA), _of_scope(TABLES.c.catalog_name))
