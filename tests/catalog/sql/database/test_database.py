"""Connections and errors of the SQL catalog."""

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.catalog.sql.database.commit_locks import AdvisoryCommitLocks
from cm_delta_dagster.catalog.sql.database.database import Database
from cm_delta_dagster.catalog.sql.database.migrate import HEAD, VERSION_TABLE
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    CatalogVersionError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from tests.support.waiting import until

NAME = TableIdentifier("main", "sales", "orders")


def execute(url: str, statement: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_a_database_of_a_newer_release_is_refused_unchanged(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog:
        catalog.registry.create_staging_table(NAME)
    execute(catalog_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with SqlCatalog(catalog_url) as catalog, pytest.raises(CatalogVersionError, match="9999"):
        catalog.registry.list_tables()
    execute(catalog_url, f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'")
    with SqlCatalog(catalog_url) as catalog:
        assert catalog.registry.list_tables() == ()


@pytest.mark.requirements("STREAM-5")
def test_a_pickled_catalog_opens_the_same_database_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any working directory, and without creating a catalog."""
    monkeypatch.chdir(tmp_path)
    here = SqlCatalog("sqlite:///catalog.db", warehouse="/w")
    sent = pickle.dumps(here)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(sent) as early, pytest.raises(CatalogError):
        early.registry.list_tables()
    monkeypatch.chdir(tmp_path)
    with here:
        here.registry.create_staging_table(NAME)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(sent) as there:
        assert [table.identifier for table in there.registry.inactive_tables()] == [NAME]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    secret = "postgresql+psycopg://user:hidden@host/db"
    assert Database(secret).url_text == secret


def test_the_constructor_does_not_touch_the_database(tmp_path: Path) -> None:
    SqlCatalog(f"sqlite:///{tmp_path}/x/catalog.db").close()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_postgresql_driver_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        with SqlCatalog(f"{scheme}://user:hidden@127.0.0.1:1/x") as catalog:
            with pytest.raises(CatalogError, match=r"pip install '<path of the clone>\[postgres\]'") as caught:
                catalog.registry.list_tables("main")
            assert "hidden" not in str(caught.value)


def test_a_closed_catalog_refuses_further_use(catalog_url: str) -> None:
    catalog = SqlCatalog(catalog_url)
    catalog.registry.list_tables()
    catalog.close()
    catalog.close()
    with pytest.raises(CatalogError, match="closed"):
        catalog.registry.list_tables()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/catalog",
        "postgresql+psycopg://127.0.0.1:1/catalog?user=me&password=hunter2",
        "sqlite:////dev/null/catalog.db",
    ],
)
def test_an_unreachable_database_is_named_without_its_password(url: str) -> None:
    with SqlCatalog(url) as catalog, pytest.raises(CatalogUnavailableError, match="catalog") as raised:
        catalog.registry.list_tables()
    assert "hunter2" not in str(raised.value) and "hunter2" not in repr(catalog)


@pytest.mark.parametrize(
    "url", ["", "hunter2@nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "oracle://x"]
)
def test_a_malformed_url_is_refused_by_the_constructor(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        SqlCatalog(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "warehouse", ["", "s3://a/%20", "s3://a/../b", "file:", "/", "s3:/lake/t", "S3//lake/t", "gs:lake"]
)
def test_a_warehouse_that_cannot_hold_tables_is_refused(warehouse: str, sqlite_url: str) -> None:
    with pytest.raises(InvalidArgumentError):
        SqlCatalog(sqlite_url, warehouse=warehouse)


def test_without_a_warehouse_nothing_can_be_created(sqlite_url: str) -> None:
    with SqlCatalog(sqlite_url) as catalog, pytest.raises(InvalidArgumentError, match="warehouse"):
        catalog.registry.create_staging_table(NAME)


def test_a_local_directory_becomes_a_location(sqlite_url: str, tmp_path: Path) -> None:
    with SqlCatalog(sqlite_url, warehouse=f"{tmp_path}/w/") as catalog:
        location = catalog.registry.create_staging_table(NAME).location
    assert location.startswith(f"file://{tmp_path}/w/main/sales/orders-")


@pytest.mark.requirements("CM-R1")
@pytest.mark.parametrize("warehouse", ["file:/data/w", "file:///data/w/", "file://localhost/data/w", "/data/w//"])
def test_local_locations_start_with_three_slashes_and_end_with_none(warehouse: str, sqlite_url: str) -> None:
    """Clients of Unity Catalog compare locations as strings."""
    with SqlCatalog(sqlite_url, warehouse=warehouse) as catalog:
        location = catalog.registry.create_staging_table(NAME).location
    assert location.startswith("file:///data/w/main/sales/orders-") and not location.endswith("/")


@pytest.mark.parametrize("content", [b"x", b"not a database" * 100])
@pytest.mark.parametrize("if_missing", list(IfMissing))
def test_a_file_that_is_not_a_database_raises_a_catalog_error(
    tmp_path: Path, content: bytes, if_missing: IfMissing
) -> None:
    (tmp_path / "catalog.db").write_bytes(content)
    with (
        SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", if_missing=if_missing) as catalog,
        pytest.raises(CatalogError, match=r"not the database of a catalog|file is not a database") as refused,
    ):
        catalog.registry.list_tables()
    assert not isinstance(refused.value, CatalogNotFoundError)
    assert (tmp_path / "catalog.db").read_bytes() == content


@pytest.mark.requirements("CM-C15")
def test_a_second_connection_keeps_the_locks_of_the_first(sqlite_url: str, tmp_path: Path) -> None:
    """Without its lock, another process that closes the database would delete the log that the first one uses."""
    log = Path(f"{sa.make_url(sqlite_url).database}-wal")
    with SqlCatalog(sqlite_url, warehouse="memory://w") as first:
        first.registry.create_staging_table(NAME)
        with SqlCatalog(sqlite_url) as second:
            assert second.registry.list_tables() == ()
        close = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM cm_delta_tables'); c.close()"
        subprocess.run([sys.executable, "-c", close, str(log)[: -len("-wal")]], check=True)
        assert log.exists()


@pytest.mark.requirements("CM-C15")
def test_a_write_waits_for_the_lock_of_another_process(sqlite_url: str) -> None:
    with SqlCatalog(sqlite_url, warehouse="memory://w") as catalog:
        catalog.registry.list_tables()
        engine = sa.create_engine(sqlite_url, poolclass=sa.pool.NullPool, connect_args={"check_same_thread": False})
        blocker = engine.raw_connection()
        blocker.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.0, blocker.rollback)
        timer.start()
        catalog.registry.create_staging_table(NAME)
        timer.join()
        blocker.close()


@pytest.mark.requirements("CM-C15")
@pytest.mark.postgres
def test_a_connection_that_died_while_idle_is_replaced(postgres_url: str, postgres_server: str) -> None:
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        catalog.registry.list_tables()
        name = sa.make_url(postgres_url).database
        for act in (catalog.registry.list_tables, lambda: catalog.registry.create_staging_table(NAME)):
            execute(postgres_server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            act()


@pytest.mark.requirements("OCC-15")
@pytest.mark.postgres
def test_the_server_releases_the_commit_lock_of_an_idle_client(postgres_url: str) -> None:
    """The server keeps the connections of a machine without network for hours."""
    engine = sa.create_engine(postgres_url)
    locks = AdvisoryCommitLocks(engine)
    holder = locks.commit_lock("a table", seconds=1, holder_timeout_seconds=0.2)
    with holder as timed_out, locks.commit_lock("a table", seconds=30) as waiting:
        assert timed_out and waiting
    engine.dispose()


@pytest.mark.requirements("CM-C15")
@pytest.mark.postgres
def test_a_server_without_a_free_connection_is_retried(postgres_url: str, postgres_server: str) -> None:
    database = sa.make_url(postgres_url).database
    role = f"r{database}"
    execute(postgres_server, f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1")
    execute(postgres_server, f"ALTER DATABASE {database} OWNER TO {role}")
    url = sa.make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
    with SqlCatalog(url, warehouse="memory://w") as first, SqlCatalog(url, warehouse="memory://w") as second:
        first.registry.list_tables()
        gone = threading.Timer(0.5, first.close)
        gone.start()
        assert second.registry.list_tables() == ()
        gone.join()
    execute(postgres_server, f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
    execute(postgres_url, f"REASSIGN OWNED BY {role} TO CURRENT_USER")
    execute(postgres_server, f"DROP ROLE {role}")


@pytest.mark.requirements("OCC-15")
@pytest.mark.postgres
@pytest.mark.parametrize("limited", ["ROLE", "DATABASE"])
def test_commit_locks_use_no_connection_if_few_connections_are_left(
    postgres_url: str, postgres_server: str, limited: str
) -> None:
    """A commit may need the connection that the optional lock would use."""
    database = sa.make_url(postgres_url).database
    role = f"r{database}"
    execute(postgres_server, f"CREATE ROLE {role} LOGIN")
    execute(postgres_server, f"ALTER DATABASE {database} OWNER TO {role}")
    url = sa.make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
    try:
        with SqlCatalog(url, warehouse="memory://w") as catalog:
            catalog.registry.list_tables()
            execute(postgres_server, f"ALTER {limited} {role if limited == 'ROLE' else database} CONNECTION LIMIT 3")
            with catalog.coordinator.commit_lock("a table", seconds=5) as acquired:
                assert not acquired
            count = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
            # The server closes a connection with a delay.
            until(lambda: catalog._database.read(lambda connection: connection.scalar(sa.text(count))) <= 1)
            execute(postgres_server, f"ALTER {limited} {role if limited == 'ROLE' else database} CONNECTION LIMIT 4")
            with catalog.coordinator.commit_lock("a table", seconds=5) as acquired:
                assert not acquired, "no retry for some seconds"
        with SqlCatalog(url, warehouse="memory://w") as catalog:
            catalog.registry.list_tables()
            with catalog.coordinator.commit_lock("a table", seconds=5) as acquired:
                assert acquired
    finally:
        execute(postgres_server, f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
        execute(postgres_url, f"REASSIGN OWNED BY {role} TO CURRENT_USER")
        execute(postgres_server, f"DROP ROLE {role}")


@pytest.mark.postgres
def test_a_user_without_permissions_gets_a_permission_error(postgres_url: str) -> None:
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        catalog.registry.list_tables()
    role = f"r{sa.make_url(postgres_url).database}"
    execute(postgres_url, f"CREATE ROLE {role} LOGIN")
    execute(postgres_url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        url = sa.make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
        with SqlCatalog(url, warehouse="memory://w") as catalog:
            assert catalog.registry.list_tables() == ()
            with pytest.raises(PermissionDeniedError):
                catalog.registry.create_staging_table(NAME)
    finally:
        execute(postgres_url, f"DROP OWNED BY {role}")
        execute(postgres_url, f"DROP ROLE {role}")


@pytest.mark.requirements("CM-C1")
@pytest.mark.postgres
def test_commits_are_durable_on_a_server_with_asynchronous_commits(postgres_url: str) -> None:
    execute(postgres_url, f"ALTER DATABASE {sa.make_url(postgres_url).database} SET synchronous_commit = off")
    database = Database(postgres_url)
    try:
        assert database.read(lambda connection: connection.execute(sa.text("SHOW synchronous_commit")).scalar()) == "on"
    finally:
        database.close()


@pytest.mark.requirements("CM-C1")
def test_sqlite_writes_are_durable(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    try:
        settings = [
            database.read(lambda connection, name=name: connection.execute(sa.text(f"PRAGMA {name}")).scalar())
            for name in ("journal_mode", "synchronous")
        ]
    finally:
        database.close()
    assert settings == ["wal", 2]


def test_an_unclosed_catalog_does_not_disturb_the_exit_of_its_process(sqlite_url: str) -> None:
    code = f"from cm_delta_dagster.catalog.sql import SqlCatalog\nc = SqlCatalog({sqlite_url!r})\nprint(c.registry.list_tables())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "()\n", "")
