"""Classification of the errors of SQLAlchemy and the drivers."""

import re

import sqlalchemy as sa

_TRANSIENT_SQLSTATES = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock not available
_PERMISSION_SQLSTATES = frozenset({"42501", "25006"})  # insufficient privilege, read-only transaction
_PROGRAM_LIMIT_EXCEEDED = "54000"  # A value of an index that is too long.
_NO_FREE_CONNECTION = re.compile(r"too many (?:clients|connections)|remaining connection slots")  # No SQLSTATE.
_UNAVAILABLE_SQLSTATE_CLASSES = ("08", "53", "57")  # connection, resources, operator intervention


def code_of(error: BaseException) -> str:
    """SQLSTATE of a PostgreSQL error, ``sqlite_errorname`` of a SQLite error, or the empty string."""
    original = getattr(error, "orig", None)
    return str(getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None) or "")


def is_busy(error: BaseException) -> bool:
    """Whether a lock or a concurrent change of another transaction caused the error."""
    return code_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or code_of(error) in _TRANSIENT_SQLSTATES


def had_no_effect(error: BaseException) -> bool:
    """Whether a retry is safe: the database was busy or had no free connection, or the connection was lost before the commit."""
    if is_busy(error) or (isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated):
        return True
    return isinstance(error, sa.exc.OperationalError) and _NO_FREE_CONNECTION.search(str(error.orig)) is not None


def is_denied(error: BaseException) -> bool:
    """Whether a missing permission caused the error."""
    return code_of(error) in _PERMISSION_SQLSTATES or code_of(error).startswith(("SQLITE_READONLY", "SQLITE_PERM"))


def is_unstorable(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether a value of the statement is one that the database cannot have, such as a text with U+0000."""
    return isinstance(error, sa.exc.DataError) or code_of(error) == _PROGRAM_LIMIT_EXCEEDED


def is_unavailable(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether the database could not be reached or lacks resources."""
    if isinstance(error, sa.exc.TimeoutError | sa.exc.InterfaceError):
        return True
    if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
        return True
    code = code_of(error)
    if code.startswith("SQLITE_"):
        return code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN"))
    return code.startswith(_UNAVAILABLE_SQLSTATE_CLASSES) or (isinstance(error, sa.exc.OperationalError) and not code)


def detail_of(error: sa.exc.SQLAlchemyError) -> str:
    """The message of the driver on one line."""
    original = getattr(error, "orig", None)
    return " ".join(str(original or error).split())
