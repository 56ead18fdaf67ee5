"""A catalog of an older release, and a user who may not migrate it: the error names the owner and the migration."""

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.migrate import HEAD, VERSION_TABLE
from cm_delta_dagster.errors import PermissionDeniedError
from tests.support.database_roles import create_role, url_as

_OLDER = f"UPDATE {VERSION_TABLE} SET version_num = '0013'"


@pytest.mark.postgres
def test_the_owner_of_the_tables_is_asked_to_migrate(postgres_url: str) -> None:
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        catalog.registry.list_tables()
    writer = create_role(postgres_url, "writer")
    engine = sa.create_engine(postgres_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        (owner,) = connection.execute(sa.text("SELECT current_user")).one()
        connection.execute(sa.text(_OLDER))
        connection.execute(sa.text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {writer}"))
    with (
        SqlCatalog(url_as(postgres_url, writer), warehouse="memory://w") as catalog,
        pytest.raises(PermissionDeniedError, match=f"migrated to schema revision {HEAD} first") as refused,
    ):
        catalog.registry.list_tables()
    assert f"let the role that owns the catalog's tables, {owner}, or a member" in str(refused.value)
    assert "Grant the user write permission" not in str(refused.value)
    with engine.begin() as connection:  # A user without rights, with the current schema.
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'"))
        connection.execute(sa.text(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {writer}"))
        connection.execute(sa.text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {writer}"))
    refusal = pytest.raises(PermissionDeniedError, match=f"Ask {owner}, the role that owns")
    with SqlCatalog(url_as(postgres_url, writer), warehouse="memory://w") as catalog, refusal:
        catalog.leases.expire_lease("t", owner="o")
