"""Prepared statements return the same rows as SQLAlchemy and raise its errors."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.errors import code_of, had_no_effect
from cm_delta_dagster.catalog.sql.database.prepared import Prepared, run_in_order
from cm_delta_dagster.catalog.sql.database.schema import FEED_COUNTER
from cm_delta_dagster.errors import CatalogError
from tests.contracts.catalog_bench import create, inline

_TABLE = sa.table("t", sa.column("id", sa.BigInteger), sa.column("data", sa.LargeBinary))
_READ = Prepared(
    sa.select(_TABLE.c.id, _TABLE.c.data, sa.literal("x").label("text"))
    .where(_TABLE.c.id < 3, _TABLE.c.id >= sa.bindparam("first"))
    .order_by(_TABLE.c.id)
)
_WRITE = Prepared(sa.insert(_TABLE).values(id=sa.bindparam("new_id"), data=sa.bindparam("new_data")))
_NEXT = Prepared(sa.update(_TABLE).where(_TABLE.c.id == 1).values(id=_TABLE.c.id + 1).returning(_TABLE.c.id))


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(url, connect_args={"isolation_level": None} if url.startswith("sqlite") else {})


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """With a table of two columns; each statement commits by itself."""
    engine = engine_of(request.getfixturevalue(f"{request.param}_url").replace("/made/on/demand", ""))
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        binary = "BLOB" if request.param == "sqlite" else "BYTEA"
        connection.exec_driver_sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, data {binary})")
    yield alone
    engine.dispose()


@pytest.mark.requirements("CM-C1")
def test_rows_equal_those_of_sqlalchemy(engine: sa.Engine) -> None:
    """Written and read values equal those of SQLAlchemy."""
    with engine.connect() as connection:
        for number in (1, 2, 3):
            _WRITE.run(connection, {"new_id": number, "new_data": bytes([number, 0, 255])})
        found = _READ.rows(connection, {"first": 2})
        assert [(row.id, row.data, row.text) for row in found] == [(2, b"\x02\x00\xff", "x")]
        assert [tuple(row) for row in found] == [
            tuple(row) for row in connection.execute(_READ._statement, {"first": 2})
        ]
        connection.exec_driver_sql("DELETE FROM t WHERE id = 2")
        assert [row.id for row in _NEXT.rows(connection, {})] == [2]
        assert _NEXT.rows(connection, {}) == []


@pytest.mark.requirements("CM-C15")
def test_an_error_of_the_driver_is_raised_as_one_of_sqlalchemy(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        _WRITE.run(connection, {"new_id": 1, "new_data": b""})
        with pytest.raises(sa.exc.IntegrityError):
            _WRITE.run(connection, {"new_id": 1, "new_data": b""})
        connection.exec_driver_sql("DROP TABLE t")
        with pytest.raises((sa.exc.OperationalError, sa.exc.ProgrammingError)):
            _READ.rows(connection, {"first": 0})


@pytest.mark.requirements("CM-C15")
@pytest.mark.postgres
def test_the_first_error_in_a_postgresql_transaction_is_raised(postgres_url: str) -> None:
    """The server refuses further statements, so that a second execution would hide the error."""
    engine = engine_of(postgres_url)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT PRIMARY KEY, data BYTEA)")
        _WRITE.run(connection, {"new_id": 1, "new_data": b""})
        with pytest.raises(sa.exc.IntegrityError, match="duplicate key"):
            _WRITE.run(connection, {"new_id": 1, "new_data": b""})
    engine.dispose()


@pytest.mark.requirements("CM-C15")
@pytest.mark.postgres
@pytest.mark.parametrize("isolation_level", ["AUTOCOMMIT", "READ COMMITTED"])
def test_a_lost_connection_is_marked_as_invalidated(postgres_url: str, isolation_level: str) -> None:
    """The caller may then retry on another connection, which works."""
    engine = engine_of(postgres_url).execution_options(isolation_level=isolation_level)
    with engine.connect() as connection:
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with engine.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({own}, 10000)")
        with pytest.raises(sa.exc.OperationalError) as caught:
            _READ.rows(connection, {"first": 0})
        assert caught.value.connection_invalidated and connection.invalidated
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one() != own
    engine.dispose()


@pytest.mark.postgres
def test_sqlalchemy_ends_a_transaction_of_prepared_statements_alone(postgres_url: str) -> None:
    """It commits what the driver wrote, or rolls it back."""
    engine = engine_of(postgres_url)
    with engine.connect() as connection, engine.connect() as other:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT PRIMARY KEY, data BYTEA)")
        connection.commit()
        _WRITE.run(connection, {"new_id": 1, "new_data": b"kept"})
        connection.commit()
        _WRITE.run(connection, {"new_id": 2, "new_data": b"rolled back"})
        connection.rollback()
        assert [row.data for row in _READ.rows(other, {"first": 0})] == [b"kept"]
    engine.dispose()


@pytest.mark.postgres
def test_a_concurrent_change_in_a_transaction_is_an_error_that_callers_retry(postgres_url: str) -> None:
    """With its SQLSTATE, and without the loss of the connection."""
    engine = engine_of(postgres_url).execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection, engine.connect() as other:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT PRIMARY KEY, data BYTEA)")
        _WRITE.run(connection, {"new_id": 1, "new_data": b""})
        connection.commit()
        assert len(_READ.rows(connection, {"first": 0})) == 1
        _NEXT.run(other, {})
        other.commit()
        with pytest.raises(sa.exc.OperationalError) as caught:
            _NEXT.run(connection, {})
        assert code_of(caught.value) == "40001" and had_no_effect(caught.value)
        assert not connection.invalidated
    engine.dispose()


@pytest.mark.requirements("CM-C15")
def test_an_error_while_rows_are_fetched_does_not_run_the_statement_again(tmp_path: Path) -> None:
    """Decoding errors occur only when the rows are fetched."""
    bad = sa.literal_column("CAST(x'ff' AS TEXT)").label("bad")
    engine = engine_of(f"sqlite:///{tmp_path}/catalog.db")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT, data BLOB)")
        connection.exec_driver_sql("INSERT INTO t VALUES (1, x'00')")
        with pytest.raises(sa.exc.OperationalError, match="decode"):
            Prepared(sa.select(bad).select_from(_TABLE)).rows(connection, {})
        with pytest.raises(sa.exc.OperationalError, match="decode"):
            Prepared(sa.update(_TABLE).values(id=_TABLE.c.id + 1).returning(bad)).rows(connection, {})
        assert connection.exec_driver_sql("SELECT id FROM t").scalar_one() == 2
    engine.dispose()


@pytest.mark.requirements("CM-C1", "CM-C12")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_feed_without_its_counter_refuses_commits(kind: str, request: pytest.FixtureRequest) -> None:
    """Every acknowledged commit is in the feed."""
    with SqlCatalog(request.getfixturevalue(f"{kind}_url"), warehouse="memory://warehouse") as catalog:
        table = create(catalog).table_id
        catalog._database.write(lambda connection: connection.execute(sa.delete(FEED_COUNTER)))
        with pytest.raises(CatalogError, match="lost its counter"):
            catalog.coordinator.commit(table, inline(1))
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0


@pytest.mark.requirements("CM-C1")
def test_a_statement_does_not_run_outside_of_its_rolled_back_transaction(tmp_path: Path) -> None:
    """SQLite rolls the whole transaction back for some errors; later statements must not be committed alone."""
    engine = engine_of(f"sqlite:///{tmp_path}/catalog.db")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT, data BLOB)")
        connection.exec_driver_sql(
            "CREATE TRIGGER gone BEFORE INSERT ON t WHEN new.id = 2 BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END"
        )
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        _WRITE.run(connection, {"new_id": 1, "new_data": b""})
        driver = connection.connection.dbapi_connection
        assert isinstance(driver, sqlite3.Connection) and driver.in_transaction
        with pytest.raises(sa.exc.OperationalError, match="all of it"):
            _WRITE.run(connection, {"new_id": 2, "new_data": b""})
        assert not driver.in_transaction
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one() == 0
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_statements_run_in_order_return_the_rows_of_each(kind: str, request: pytest.FixtureRequest) -> None:
    """Later statements see what earlier ones wrote, and one transaction holds all."""
    engine = engine_of(request.getfixturevalue(f"{kind}_url"))
    with engine.connect() as connection:
        binary = "BLOB" if kind == "sqlite" else "BYTEA"
        connection.exec_driver_sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, data {binary})")
        connection.commit()
        if kind == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        calls = [(_WRITE, {"new_id": 1, "new_data": b"a"}), (_NEXT, {}), (_READ, {"first": 0})]
        nothing, ids, rows = run_in_order(connection, calls)
        assert list(nothing) == [] and [row.id for row in ids] == [2]
        assert [(row.id, row.data) for row in rows] == [(2, b"a")]
        connection.rollback()
        assert run_in_order(connection, [(_READ, {"first": 0})]) == [[]]
    engine.dispose()


@pytest.mark.postgres
def test_the_first_error_of_statements_in_order_is_raised(postgres_url: str, postgres_server: str) -> None:
    """As the error of each alone; a lost connection is invalidated."""
    engine = engine_of(postgres_url)
    calls = [(_WRITE, {"new_id": 1, "new_data": b""}), (_NEXT, {}), (_READ, {"first": 0})]
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id BIGINT PRIMARY KEY, data BYTEA)")
        connection.commit()
        with pytest.raises(sa.exc.IntegrityError, match="duplicate key"):
            run_in_order(connection, [calls[0], calls[0], *calls])
        connection.rollback()
        assert len(run_in_order(connection, calls)[-1]) == 1
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with engine.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({own}, 10000)")
        with pytest.raises(sa.exc.OperationalError) as caught:
            run_in_order(connection, calls)
        assert caught.value.connection_invalidated and connection.invalidated
    engine.dispose()
