"""Which checks are active for which scopes."""

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.migrate import create
from cm_delta_dagster.catalog.sql.database.schema import ACTIVE_CHECKS
from cm_delta_dagster.catalog.sql.rows.active_checks import activate, deactivate, is_active

ALL = {(name, scope) for name in ("grants", "rules") for scope in ("*", "main")}


def _active(connection: sa.Connection) -> set[tuple[str, str]]:
    rows = connection.execute(sa.select(ACTIVE_CHECKS.c.check_name, ACTIVE_CHECKS.c.scope)).all()
    assert len(rows) == len(set(rows))
    shown = {(name, scope) for name, scope in ALL if is_active(connection, name, scope)}
    assert shown == {tuple(row) for row in rows}
    return shown


@pytest.mark.parametrize("removed", sorted(ALL), ids=" of ".join)
def test_a_check_is_activated_and_deactivated_for_one_scope_alone(catalog_url: str, removed: tuple[str, str]) -> None:
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        create(connection)
        assert _active(connection) == set()
        for name, scope in [*sorted(ALL), *sorted(ALL)]:
            activate(connection, name, scope)
        assert _active(connection) == ALL
        for _ in range(2):
            deactivate(connection, *removed)
            assert _active(connection) == ALL - {removed}
        activate(connection, *removed)
        assert _active(connection) == ALL
