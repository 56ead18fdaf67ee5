"""Catalog databases: a new SQLite file, or a new database on a real PostgreSQL server."""

from pathlib import Path

import pytest


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    directory = tmp_path / "made" / "on" / "demand"
    directory.mkdir(parents=True)
    return f"sqlite:///{directory}/catalog.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))
