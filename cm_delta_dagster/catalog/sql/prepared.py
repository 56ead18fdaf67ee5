"""Statements of every commit, compiled once and handed to the driver.

SQLAlchemy writes them and says what went wrong with them; between the two it takes longer than the database does. A statement
that the driver refuses had no effect, and is run once more by SQLAlchemy, which knows the error for what it is; one that stands
for itself has to be without effect when its first answer was only lost.
"""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa


@dataclass(frozen=True, slots=True)
class _Compiled:
    """``order`` has the names of the parameters if the text has none, ``constants`` the values that never change."""

    text: str
    order: Sequence[str] | None
    constants: Mapping[str, Any]


class Prepared:
    """One statement, for any connection of any of the databases.

    Args:
        statement: without lists (``IN``); its parameters and results need no conversion: they are numbers, texts, bytes.
    """

    def __init__(self, statement: sa.Select[Any] | sa.Insert | sa.Update) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}
        names = [str(column.key) for column in statement.exported_columns]
        self._row: Any = namedtuple("Row", names)  # type: ignore[misc]  # Mypy wants literal names.

    def rows(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """What it selects or returns: the columns are attributes of the rows."""
        cursor = self._run(connection, parameters)
        if isinstance(cursor, sa.CursorResult):
            return cursor.all()
        try:
            return [self._row._make(row) for row in cursor.fetchall()]
        except connection.dialect.loaded_dbapi.Error as error:
            # It has had its effect, if it has one: it is not run again.
            raise sa.exc.OperationalError(str(self._statement), None, error) from error

    def run(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> None:
        """For a statement that answers nothing."""
        self._run(connection, parameters)

    def _run(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> Any:
        driver: Any = connection.connection.dbapi_connection
        is_sqlite = connection.dialect.name == "sqlite"
        if not is_sqlite and not driver.autocommit:
            return connection.execute(self._statement, parameters)  # An error would be the end of the transaction.
        in_transaction = is_sqlite and driver.in_transaction
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        values = {**compiled.constants, **parameters}
        try:
            order = compiled.order
            return driver.execute(compiled.text, values if order is None else [values[name] for name in order])
        except connection.dialect.loaded_dbapi.Error as error:
            if in_transaction and not driver.in_transaction:
                # SQLite has taken back all of it: alone this statement must not be run.
                raise sa.exc.OperationalError(compiled.text, None, error) from error
            return connection.execute(self._statement, parameters)

    def _compile(self, dialect: sa.Dialect) -> _Compiled:
        made: Any = self._statement.compile(dialect=dialect)
        given = [name for name, parameter in made.binds.items() if parameter.required]
        constants = made.construct_params(dict.fromkeys(given))
        compiled = _Compiled(made.string, made.positiontup if made.positional else None, constants)
        self._compiled[dialect.name] = compiled
        return compiled
