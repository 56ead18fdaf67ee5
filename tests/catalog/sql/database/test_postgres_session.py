"""Sessions of PostgreSQL, directly and through a connection pooler."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CatalogError
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores
from tests.catalog.sql.database.pooler import pooled
from tests.support.actions import add_file
from tests.support.creation import create_table

pytestmark = pytest.mark.postgres

SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))
SESSIONS, WRITERS, COMMITS = 3, 6, 12


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[str]:
    """URL of an empty database behind a pooler."""
    with pooled(postgres_url, sessions=SESSIONS) as url:
        yield url


@pytest.mark.requirements("CM-C1", "CM-C15")
def test_many_writers_share_a_few_sessions_of_a_pooler(pooler: str, tmp_path: Path) -> None:
    """A statement that one session has prepared is unknown or another one in the next session."""

    def client() -> DeltaClient:
        return DeltaClient(SqlCatalog(pooler, warehouse=f"file://{tmp_path}/w"), stores=Stores())

    def write(number: int) -> None:
        with closing(client()) as own:
            table = own.table("main.test.t")
            for commit in range(COMMITS):
                transaction = table.start_transaction(table.snapshot(), operation="WRITE")
                path = f"{number}-{commit}.parquet"
                transaction.add_files([add_file(path)])
                transaction.commit()

    with closing(client()) as first:
        create_table(first, identifier="main.test.t", schema=SCHEMA)
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(write, range(WRITERS)))
        snapshot = first.table("main.test.t").snapshot()
        assert (snapshot.version, snapshot.num_files) == (WRITERS * COMMITS, WRITERS * COMMITS)


@pytest.mark.requirements("OCC-15")
def test_no_commit_lock_is_acquired_through_a_pooler(pooler: str) -> None:
    """Waiting writers would use the sessions of which the holder needs one."""
    with SqlCatalog(pooler, warehouse="memory://w") as catalog:
        catalog.registry.list_tables()
        with catalog.coordinator.commit_lock(
            "a table", seconds=3600
        ) as acquired:  # Longer than the timeout of the test.
            assert not acquired


@pytest.mark.requirements("CM-C1")
def test_a_pooler_to_a_server_with_asynchronous_commits_is_refused(postgres_url: str, postgres_server: str) -> None:
    """A setting of one session does not apply to the next one."""
    name = sa.make_url(postgres_url).database
    engine = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    with (
        pooled(postgres_url, sessions=SESSIONS) as url,
        SqlCatalog(url, warehouse="memory://w") as catalog,
        pytest.raises(CatalogError, match=f"ALTER DATABASE {name} SET synchronous_commit = on"),
    ):
        catalog.registry.list_tables()
