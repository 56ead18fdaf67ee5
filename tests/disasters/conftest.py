"""One place for each commit mode and database, made once in a session."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicyKind
from tests.disasters.place import Database, Place, PostgresDatabase, SqliteDatabase
from tests.disasters.runner import warnings_of_package
from tests.disasters.selection import Kind
from tests.disasters.vocabulary import Mode

Places = Callable[[Kind, Mode], Place]


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Places:
    """Gives the place of a database and a mode; two tests must not use a place concurrently."""
    made: dict[tuple[Kind, Mode], Place] = {}

    def get(kind: Kind, mode: Mode) -> Place:
        if (kind, mode) not in made:
            root: Path = tmp_path_factory.mktemp(f"{kind.value}-{mode.value}")
            database: Database
            if kind is Kind.SQLITE:
                database = SqliteDatabase(root / "live" / "catalog.db", root / "databases")
            else:
                database = PostgresDatabase(request.getfixturevalue("postgres_server"))
            with warnings_of_package():
                made[kind, mode] = Place(root, mode=CommitPolicyKind(mode.value), database=database)
        return made[kind, mode]

    return get
