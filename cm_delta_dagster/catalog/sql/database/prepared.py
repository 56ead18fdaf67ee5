"""Statements on the commit path, compiled once and passed to the driver directly.

SQLAlchemy's execution takes longer than the database does. If the driver raises an error outside of a PostgreSQL transaction,
the statement had no effect; SQLAlchemy runs it again and maps the error. A statement outside of a transaction must therefore
have no effect when it runs a second time after an unknown outcome. In a PostgreSQL transaction, which the error aborts, the error
of the driver is mapped as SQLAlchemy maps it.
"""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.postgres_session import is_pooled

_IDLE = 0
"""Status of a connection to PostgreSQL that is in no transaction."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """``order`` has the names of positional parameters, ``constants`` the values that are part of the statement."""

    text: str
    order: Sequence[str] | None
    constants: Mapping[str, Any]


class Prepared:
    """One statement, for connections to any database.

    Args:
        statement: without expanding parameters (``IN``). Parameters and results are numbers, strings and bytes only.
    """

    def __init__(self, statement: sa.Select[Any] | sa.Insert | sa.Update) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}
        names = [str(column.key) for column in statement.exported_columns]
        self._row: Any = namedtuple("Row", names)  # type: ignore[misc]  # Mypy wants literal names.

    def rows(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """Run it and return the rows; the columns are attributes of a row."""
        return self._rows_of(connection, self._run(connection, parameters))

    def _rows_of(self, connection: sa.Connection, cursor: Any) -> Sequence[Any]:
        """The rows of a cursor, or of a result of SQLAlchemy; none if the statement returns none."""
        if isinstance(cursor, sa.CursorResult):
            return cursor.all() if cursor.returns_rows else []
        try:
            return [] if cursor.description is None else [self._row._make(row) for row in cursor.fetchall()]
        except connection.dialect.loaded_dbapi.Error as error:
            # The statement may have taken effect: do not run it again.
            raise sa.exc.OperationalError(str(self._statement), None, error) from error

    def run(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> None:
        """Run a statement that returns no rows."""
        self._run(connection, parameters)

    def _run(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> Any:
        driver: Any = connection.connection.dbapi_connection
        is_sqlite = connection.dialect.name == "sqlite"
        in_transaction = driver.in_transaction if is_sqlite else _has_transaction(driver)
        if in_transaction and not connection.in_transaction():
            connection.begin()  # The driver has begun, or begins, the transaction; SQLAlchemy is to end it.
        text, values = self._for_driver(connection.dialect, parameters)
        try:
            return driver.execute(text, values)
        except connection.dialect.loaded_dbapi.Error as error:
            if in_transaction and not is_sqlite:
                raise _mapped(connection, text, error) from error
            if in_transaction and not driver.in_transaction:
                # SQLite has rolled the transaction back: the statement must not run alone.
                raise sa.exc.OperationalError(text, None, error) from error
            return connection.execute(self._statement, parameters)

    def _for_driver(self, dialect: sa.Dialect, parameters: Mapping[str, Any]) -> tuple[str, Any]:
        """The text of the statement and its parameters, as the driver takes them."""
        compiled = self._compiled.get(dialect.name) or self._compile(dialect)
        values, order = {**compiled.constants, **parameters}, compiled.order
        return compiled.text, values if order is None else [values[name] for name in order]

    def _compile(self, dialect: sa.Dialect) -> _Compiled:
        made: Any = self._statement.compile(dialect=dialect)
        required = [name for name, parameter in made.binds.items() if parameter.required]
        constants = made.construct_params(dict.fromkeys(required))
        compiled = _Compiled(made.string, made.positiontup if made.positional else None, constants)
        self._compiled[dialect.name] = compiled
        return compiled


Call: TypeAlias = tuple[Prepared, Mapping[str, Any]]
"""A statement with its parameters."""


def run_in_order(connection: sa.Connection, calls: Sequence[Call]) -> list[Sequence[Any]]:
    """Run statements of which none needs the answer of another, one after the other, and return the rows of each.

    In a PostgreSQL transaction they are one round trip (pipeline mode), except through a connection pooler, which may not support
    it. The server begins each statement after the one before has ended.
    """
    driver: Any = connection.connection.dbapi_connection
    if not has_pipeline(connection) or not _has_transaction(driver):
        return [statement.rows(connection, parameters) for statement, parameters in calls]
    return _in_one_round_trip(connection, calls)


def run_and_commit(connection: sa.Connection, calls: Sequence[Call]) -> list[Sequence[Any]]:
    """:func:`run_in_order` in a PostgreSQL transaction, which it commits; the COMMIT takes no round trip of its own.

    SQLAlchemy is left to end its own transaction, which sends nothing. If a statement fails, nothing is committed. If the
    connection is lost, the transaction may be committed.
    """
    if has_pipeline(connection):
        return _in_one_round_trip(connection, calls, then=["COMMIT"])
    return run_in_order(connection, calls)


def _in_one_round_trip(
    connection: sa.Connection, calls: Sequence[Call], *, then: Sequence[str] = ()
) -> list[Sequence[Any]]:
    driver: Any = connection.connection.dbapi_connection
    if not connection.in_transaction():
        connection.begin()
    first = []
    if driver.info.transaction_status == _IDLE:
        # The driver would wait for the answer to its own BEGIN. BEGIN and COMMIT are statements until the pool takes it back.
        driver.autocommit, first = True, ["BEGIN"]
    texts = [statement._for_driver(connection.dialect, parameters) for statement, parameters in calls]
    try:
        with driver.pipeline():
            for text in first:
                driver.execute(text)
            cursors = [driver.execute(text, values) for text, values in texts]
            for text in then:
                driver.execute(text)
    except connection.dialect.loaded_dbapi.Error as error:
        # The first error of all statements: the answers are received at the end of the block.
        raise _mapped(connection, ";\n".join([*(text for text, _ in texts), *then]), error) from error
    return [statement._rows_of(connection, cursor) for (statement, _), cursor in zip(calls, cursors, strict=True)]


def _has_transaction(driver: Any) -> bool:
    """Whether a connection to PostgreSQL is in a transaction, or begins one with its next statement."""
    return not driver.autocommit or driver.info.transaction_status != _IDLE


def has_pipeline(connection: sa.Connection) -> bool:
    """Whether :func:`run_in_order` takes one round trip in a transaction."""
    if connection.dialect.name == "sqlite":
        return False
    driver: Any = connection.dialect.loaded_dbapi
    return bool(driver.Pipeline.is_supported()) and not is_pooled(connection)


def _mapped(connection: sa.Connection, text: str, error: Exception) -> sa.exc.StatementError:
    """SQLAlchemy's error for one of the driver in a transaction. A lost connection is invalidated, with the others of its pool."""
    dialect = connection.dialect
    is_lost: bool = dialect.is_disconnect(error, connection.connection, None)  # type: ignore[arg-type]  # psycopg's dialect needs no cursor.
    if is_lost:
        with suppress(sa.exc.DBAPIError):
            connection.exec_driver_sql("SELECT 1")  # It fails, and SQLAlchemy invalidates what must be.
    base: Any = dialect.loaded_dbapi.Error
    return sa.exc.DBAPIError.instance(
        text, None, error, base, hide_parameters=True, connection_invalidated=is_lost, dialect=dialect
    )
