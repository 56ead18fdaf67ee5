"""Connections, migrations and errors of the SQL catalog."""

import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cm_delta_dagster.catalog.approvals import ApprovalRequest
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.catalog.sql.database.commit_locks import AdvisoryCommitLocks
from cm_delta_dagster.catalog.sql.database.database import Database
from cm_delta_dagster.catalog.sql.database.migrate import HEAD, VERSION_TABLE, alembic_config
from cm_delta_dagster.catalog.sql.database.migrate import create as create_schema
from cm_delta_dagster.catalog.sql.database.schema import METADATA
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    CatalogVersionError,
    CommitRefusedError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from tests.contracts.catalog_bench import create, proposal
from tests.support.commit_builder import REMOVE, commit_of
from tests.support.waiting import until

NAME = TableIdentifier("main", "sales", "orders")


def execute(url: str, statement: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_the_migrations_create_the_tables_that_the_code_uses(catalog_url: str) -> None:
    with SqlCatalog(catalog_url) as catalog:
        catalog.list_tables()
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection, warnings.catch_warnings():
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []


def test_a_new_database_is_what_the_migrations_make(catalog_url: str) -> None:
    """It is created directly."""
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    described = []
    for make in (_through_every_revision, create_schema):
        with engine.connect() as connection:
            make(connection)
            described.append(_described(connection))
            connection.rollback()  # Both databases undo definitions.
            METADATA.drop_all(connection)
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {VERSION_TABLE}")
            connection.commit()
    assert described[0] == described[1]
    assert len(described[0]) == len(METADATA.tables) + 1


def _through_every_revision(connection: sa.Connection) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _described(connection: sa.Connection) -> dict[str, object]:
    """Of each table its columns, keys, constraints, indexes and rows; without the order of columns and the id of the catalog."""
    inspector = sa.inspect(connection)
    found: dict[str, object] = {}
    for name in inspector.get_table_names():
        columns = {column["name"]: {**column, "type": str(column["type"])} for column in inspector.get_columns(name)}
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        rows = [{**row._mapping, "catalog_id": None} for row in connection.execute(sa.select(table))]
        found[name] = (
            columns,
            inspector.get_pk_constraint(name),
            sorted(inspector.get_foreign_keys(name), key=str),
            sorted(inspector.get_unique_constraints(name), key=str),
            sorted(inspector.get_check_constraints(name), key=str),
            sorted(_as_texts(index) for index in inspector.get_indexes(name)),
            rows,
        )
    return found


def _as_texts(index: Mapping[str, Any]) -> list[str]:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return [str(index["name"]), str(index["column_names"]), str(index["unique"]), str(options)]


def test_the_newest_revision_is_the_one_that_the_code_expects() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [HEAD]


def test_a_database_of_the_first_release_is_migrated_with_its_tables(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog:
        catalog.create_staging_table(NAME)
    config = alembic_config()
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    with SqlCatalog(catalog_url) as catalog:
        first = catalog.feed_page(after=0, limit=1)
        assert first.catalog_id and catalog.pinned_version("t", owner="run") is None
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM cm_delta_tables")).scalar_one() == 1


def test_pins_of_the_former_revision_hold_for_every_principal(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="file:///w") as catalog:
        table = create(catalog, TableIdentifier("main", "sales", "a")).table_id
        catalog.pin_version(table, 0, owner="run")
        caller = catalog.whoami().principal
    execute(catalog_url, f"INSERT INTO cm_delta_version_pins VALUES ('run', '{table}', 5, {2**50}, 'other')")
    config = alembic_config()
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0012")
        assert connection.execute(sa.text("SELECT version FROM cm_delta_version_pins")).scalars().all() == [5]
    with SqlCatalog(catalog_url, warehouse="file:///w") as catalog:
        assert catalog.pinned_version(table, owner="run") == 5 == catalog.pin_version(table, 0, owner="run")
        assert catalog.whoami().principal == caller
    with engine.connect() as connection, warnings.catch_warnings():
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []
        keys = sa.inspect(connection).get_pk_constraint("cm_delta_version_pins")["constrained_columns"]
        assert keys == ["owner", "table_id", "principal"]


def test_a_feed_with_deleted_entries_survives_the_former_revision(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="file:///w") as catalog:
        tables = [create(catalog, TableIdentifier("main", "sales", name)).table_id for name in ("a", "b")]
        for table in tables:
            catalog.commit(table, proposal(1))
        assert catalog.delete_old_entries(before_ms=2**50) == 4
        catalog.commit(tables[0], proposal(2))
        before = catalog.feed(after=0, limit=9)
    config = alembic_config()
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0010")
        found = connection.execute(sa.text("SELECT position FROM cm_delta_commits ORDER BY position")).scalars().all()
        assert found == [-4, -3, -2, -1, 5]
    with SqlCatalog(catalog_url, warehouse="file:///w") as catalog:
        assert catalog.feed(after=0, limit=9) == before and catalog.latest_feed_position() == 5
        catalog.commit(tables[1], proposal(2))
        assert [entry.position for entry in catalog.feed(after=5, limit=9)] == [6]


def test_a_request_of_the_former_revision_covers_no_rule(catalog_url: str) -> None:
    demand = CommitRule(
        scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL, reason="kept"
    )
    one = commit_of(1, REMOVE)
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog:
        table_id = create(catalog).table_id
        catalog.set_commit_rule(demand)
        waiting = catalog.request_approval(table_id, one, ApprovalRequest(intent="{}"))
    assert waiting is not None
    approved = replace(one, approval_id=waiting.approval_id)
    config = alembic_config()
    engine = sa.create_engine(catalog_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0011")
        names = {column["name"] for column in sa.inspect(connection).get_columns("cm_delta_approvals")}
        assert "rules" not in names and "what" in names
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog:
        assert catalog.approvals() == (waiting,)
        with pytest.raises(CommitRefusedError, match="Reject the request and run the write again"):
            catalog.commit(table_id, approved)
        assert catalog.approvals() == (waiting,) and catalog.get_ratified_commits(table_id).latest_version == 0
        catalog.remove_commit_rule("main", "keep")
        assert isinstance(catalog.commit(table_id, approved), Ratified)


def test_a_database_of_a_newer_release_is_refused_unchanged(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog:
        catalog.create_staging_table(NAME)
    execute(catalog_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with SqlCatalog(catalog_url) as catalog, pytest.raises(CatalogVersionError, match="9999"):
        catalog.list_tables()
    execute(catalog_url, f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'")
    with SqlCatalog(catalog_url) as catalog:
        assert catalog.list_tables() == ()


def test_a_pickled_catalog_opens_the_same_database_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STREAM-5: in any working directory, and without creating a catalog."""
    monkeypatch.chdir(tmp_path)
    here = SqlCatalog("sqlite:///catalog.db", warehouse="/w")
    sent = pickle.dumps(here)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(sent) as early, pytest.raises(CatalogError):
        early.list_tables()
    monkeypatch.chdir(tmp_path)
    with here:
        here.create_staging_table(NAME)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(sent) as there:
        assert [table.identifier for table in there.inactive_tables()] == [NAME]
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
                catalog.list_tables("main")
            assert "hidden" not in str(caught.value)


def test_a_closed_catalog_refuses_further_use(catalog_url: str) -> None:
    catalog = SqlCatalog(catalog_url)
    catalog.list_tables()
    catalog.close()
    catalog.close()
    with pytest.raises(CatalogError, match="closed"):
        catalog.list_tables()


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
        catalog.list_tables()
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
        catalog.create_staging_table(NAME)


def test_a_local_directory_becomes_a_location(sqlite_url: str, tmp_path: Path) -> None:
    with SqlCatalog(sqlite_url, warehouse=f"{tmp_path}/w/") as catalog:
        location = catalog.create_staging_table(NAME).location
    assert location.startswith(f"file://{tmp_path}/w/main/sales/orders-")


@pytest.mark.parametrize("warehouse", ["file:/data/w", "file:///data/w/", "file://localhost/data/w", "/data/w//"])
def test_local_locations_start_with_three_slashes_and_end_with_none(warehouse: str, sqlite_url: str) -> None:
    """CM-R1: clients of Unity Catalog compare locations as strings."""
    with SqlCatalog(sqlite_url, warehouse=warehouse) as catalog:
        location = catalog.create_staging_table(NAME).location
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
        catalog.list_tables()
    assert not isinstance(refused.value, CatalogNotFoundError)
    assert (tmp_path / "catalog.db").read_bytes() == content


def test_a_second_connection_keeps_the_locks_of_the_first(sqlite_url: str, tmp_path: Path) -> None:
    """CM-C15: without its lock, another process that closes the database would delete the log that the first one uses."""
    log = Path(f"{sa.make_url(sqlite_url).database}-wal")
    with SqlCatalog(sqlite_url, warehouse="memory://w") as first:
        first.create_staging_table(NAME)
        with SqlCatalog(sqlite_url) as second:
            assert second.list_tables() == ()
        close = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM cm_delta_tables'); c.close()"
        subprocess.run([sys.executable, "-c", close, str(log)[: -len("-wal")]], check=True)
        assert log.exists()


def test_a_write_waits_for_the_lock_of_another_process(sqlite_url: str) -> None:
    """CM-C15"""
    with SqlCatalog(sqlite_url, warehouse="memory://w") as catalog:
        catalog.list_tables()
        engine = sa.create_engine(sqlite_url, poolclass=sa.pool.NullPool, connect_args={"check_same_thread": False})
        blocker = engine.raw_connection()
        blocker.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.0, blocker.rollback)
        timer.start()
        catalog.create_staging_table(NAME)
        timer.join()
        blocker.close()


@pytest.mark.postgres
def test_a_connection_that_died_while_idle_is_replaced(postgres_url: str, postgres_server: str) -> None:
    """CM-C15"""
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        catalog.list_tables()
        name = sa.make_url(postgres_url).database
        for act in (catalog.list_tables, lambda: catalog.create_staging_table(NAME)):
            execute(postgres_server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            act()


@pytest.mark.postgres
def test_the_server_releases_the_commit_lock_of_an_idle_client(postgres_url: str) -> None:
    """OCC-15: the server keeps the connections of a machine without network for hours."""
    engine = sa.create_engine(postgres_url)
    locks = AdvisoryCommitLocks(engine)
    holder = locks.commit_lock("a table", seconds=1, holder_timeout_seconds=0.2)
    with holder as timed_out, locks.commit_lock("a table", seconds=30) as waiting:
        assert timed_out and waiting
    engine.dispose()


@pytest.mark.postgres
def test_a_server_without_a_free_connection_is_retried(postgres_url: str, postgres_server: str) -> None:
    """CM-C15"""
    database = sa.make_url(postgres_url).database
    role = f"r{database}"
    execute(postgres_server, f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1")
    execute(postgres_server, f"ALTER DATABASE {database} OWNER TO {role}")
    url = sa.make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
    with SqlCatalog(url, warehouse="memory://w") as first, SqlCatalog(url, warehouse="memory://w") as second:
        first.list_tables()
        gone = threading.Timer(0.5, first.close)
        gone.start()
        assert second.list_tables() == ()
        gone.join()
    execute(postgres_server, f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
    execute(postgres_url, f"REASSIGN OWNED BY {role} TO CURRENT_USER")
    execute(postgres_server, f"DROP ROLE {role}")


@pytest.mark.postgres
@pytest.mark.parametrize("limited", ["ROLE", "DATABASE"])
def test_commit_locks_use_no_connection_if_few_connections_are_left(
    postgres_url: str, postgres_server: str, limited: str
) -> None:
    """OCC-15: a commit may need the connection that the optional lock would use."""
    database = sa.make_url(postgres_url).database
    role = f"r{database}"
    execute(postgres_server, f"CREATE ROLE {role} LOGIN")
    execute(postgres_server, f"ALTER DATABASE {database} OWNER TO {role}")
    url = sa.make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
    try:
        with SqlCatalog(url, warehouse="memory://w") as catalog:
            catalog.list_tables()
            execute(postgres_server, f"ALTER {limited} {role if limited == 'ROLE' else database} CONNECTION LIMIT 3")
            with catalog.commit_lock("a table", seconds=5) as acquired:
                assert not acquired
            count = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
            # The server closes a connection with a delay.
            until(lambda: catalog._database.read(lambda connection: connection.scalar(sa.text(count))) <= 1)
            execute(postgres_server, f"ALTER {limited} {role if limited == 'ROLE' else database} CONNECTION LIMIT 4")
            with catalog.commit_lock("a table", seconds=5) as acquired:
                assert not acquired, "no retry for some seconds"
        with SqlCatalog(url, warehouse="memory://w") as catalog:
            catalog.list_tables()
            with catalog.commit_lock("a table", seconds=5) as acquired:
                assert acquired
    finally:
        execute(postgres_server, f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
        execute(postgres_url, f"REASSIGN OWNED BY {role} TO CURRENT_USER")
        execute(postgres_server, f"DROP ROLE {role}")


@pytest.mark.postgres
def test_a_user_without_permissions_gets_a_permission_error(postgres_url: str) -> None:
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        catalog.list_tables()
    role = f"r{sa.make_url(postgres_url).database}"
    execute(postgres_url, f"CREATE ROLE {role} LOGIN")
    execute(postgres_url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        url = sa.make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
        with SqlCatalog(url, warehouse="memory://w") as catalog:
            assert catalog.list_tables() == ()
            with pytest.raises(PermissionDeniedError):
                catalog.create_staging_table(NAME)
    finally:
        execute(postgres_url, f"DROP OWNED BY {role}")
        execute(postgres_url, f"DROP ROLE {role}")


@pytest.mark.postgres
def test_commits_are_durable_on_a_server_with_asynchronous_commits(postgres_url: str) -> None:
    """CM-C1"""
    execute(postgres_url, f"ALTER DATABASE {sa.make_url(postgres_url).database} SET synchronous_commit = off")
    database = Database(postgres_url)
    try:
        assert database.read(lambda connection: connection.execute(sa.text("SHOW synchronous_commit")).scalar()) == "on"
    finally:
        database.close()


def test_sqlite_writes_are_durable(sqlite_url: str) -> None:
    """CM-C1"""
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
    code = (
        f"from cm_delta_dagster.catalog.sql import SqlCatalog\nc = SqlCatalog({sqlite_url!r})\nprint(c.list_tables())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "()\n", "")
