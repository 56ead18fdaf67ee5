"""Adopting and releasing while the catalog enforces grants: refused before anything is written, possible for the owner."""

from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
import sqlalchemy as sa

from cm_delta_dagster import Connection, OperationRefusedError, PermissionDeniedError, connect
from tests.support.database_roles import create_role, url_as

NAME = "main.sales.orders"


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def path_table(directory: Path) -> Path:
    deltalake.write_deltalake(str(directory), pa.table({"id": [1, 2]}))
    return directory


@pytest.fixture
def connected(tmp_path: Path) -> Callable[[str], Connection]:
    """Connections of principals to one embedded catalog."""

    def connect_as(principal: str) -> Connection:
        return connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", principal=principal)

    return connect_as


def test_adoption_without_the_privilege_leaves_the_table_to_its_path(
    connected: Callable[[str], Connection], tmp_path: Path
) -> None:
    location = path_table(tmp_path / "raw")
    before = files(location)
    with connected("ana") as ana, connected("bob") as bob:
        ana.access.enable_grants()
        for act in (bob.onboarding.plan_adopt, bob.onboarding.adopt):
            with pytest.raises(OperationRefusedError, match="does not have the privilege alter"):
                act(str(location), NAME)
            assert files(location) == before
        ana.access.grant("alter", "main.sales", to="bob")
        assert bob.onboarding.adopt(str(location), NAME).version() == 1
        assert ana.access.owner(NAME) == "bob"


def test_an_owner_releases_a_table_while_grants_are_enforced(
    connected: Callable[[str], Connection], tmp_path: Path
) -> None:
    location = path_table(tmp_path / "raw")
    with connected("ana") as ana, connected("bob") as bob:
        ana.onboarding.adopt(str(location), NAME)
        ana.access.enable_grants()
        ana.access.grant(["alter", "modify", "maintain"], NAME, to="bob")
        before = files(location)
        for act in (bob.onboarding.plan_release, bob.onboarding.release):
            with pytest.raises(OperationRefusedError, match="does not have the privilege own"):
                act(NAME)
            assert files(location) == before
        assert ana.onboarding.release(NAME).version == 2
        assert deltalake.DeltaTable(str(location)).to_pyarrow_table()["id"].to_pylist() == [1, 2]
        assert ana.access.whoami().grants_enabled and ana.tables() == ()


@pytest.mark.postgres
def test_a_role_that_may_only_read_adopts_nothing(postgres_url: str, tmp_path: Path) -> None:
    """Without grants of the catalog, the rights of the database alone decide."""
    location = path_table(tmp_path / "raw")
    before = files(location)
    role = create_role(postgres_url, "reader")
    with connect(postgres_url, warehouse=f"{tmp_path}/warehouse") as owner:
        assert owner.tables() == ()
        with sa.create_engine(postgres_url, poolclass=sa.pool.NullPool).begin() as connection:
            connection.execute(sa.text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"))
        reader = connect(url_as(postgres_url, role), warehouse=f"{tmp_path}/warehouse")
        with reader, pytest.raises(PermissionDeniedError):
            reader.onboarding.adopt(str(location), NAME)
    assert files(location) == before
