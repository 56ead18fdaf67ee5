"""Parts of the catalog: each method of a part is one operation, which runs on one connection for one caller.

A method is written as a function of the connection and of the arguments of the operation. The decorator opens the connection or
the transaction; :mod:`~cm_delta_dagster.catalog.sql.database.callers` reads from the connection who calls, and when.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Part:
    """A part of the catalog for the calls of one principal. Thread-safe."""

    def __init__(self, database: CallerDatabase) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.shared.shown_url!r})"


_PartT = TypeVar("_PartT", bound=Part)


def reads(
    operation: Callable[Concatenate[_PartT, sa.Connection, _P], _T],
) -> Callable[Concatenate[_PartT, _P], _T]:
    """Run an operation without a transaction; see :meth:`Database.read`. It runs again if the connection is lost."""

    @wraps(operation)
    def run(part: _PartT, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return part._database.read(lambda connection: operation(part, connection, *arguments, **named))

    return run


def writes(
    operation: Callable[Concatenate[_PartT, sa.Connection, _P], _T],
) -> Callable[Concatenate[_PartT, _P], _T]:
    """Run an operation in a write transaction; see :meth:`Database.write`. It runs again if nothing of it was committed."""

    @wraps(operation)
    def run(part: _PartT, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return part._database.write(lambda connection: operation(part, connection, *arguments, **named))

    return run
