"""SQL expressions in the metadata of a table: CHECK constraints, invariants, generation expressions, defaults.

Spark evaluates them. Here they are checked as far as their text suffices, and the columns that they use are found.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.sql_checks import bare_clock_names, varying_functions, why_not_closed
from cm_delta_dagster.protocol.predicates.sql_functions import CLOCK, OVER_ROWS, SESSION, VARYING
from cm_delta_dagster.protocol.predicates.sql_lexer import Token, source_of, tokens_of
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import StructType


def checked_text(text: str) -> str:
    """The text of an expression without comments and surrounding blanks.

    Raises:
        InvalidArgumentError: the text cannot be split into tokens, contains a query, or calls a function that is not built into
            Spark or that runs code.
    """
    tokens = tokens_of(text)
    reason = why_not_closed(tokens, text)
    if reason is not None:
        raise InvalidArgumentError(
            f"The expression {text!r} {reason}. Nothing was changed. Use an expression of literals, columns of the row and "
            "built-in functions: every client that writes to the table evaluates it."
        )
    return source_of(tokens, text)


def check_deterministic(text: str, *, what: str, allows_clock: bool = False) -> None:
    """Refuse an expression over several rows, or one whose value differs from one evaluation to the next.

    Args:
        what: what the expression defines, for the message.
        allows_clock: it may call functions that return the current time, which Spark evaluates once in a query.

    Raises:
        InvalidArgumentError: names the functions.
    """
    checked_text(text)
    varying = varying_functions(text)
    if allows_clock:
        varying = [name for name in varying if name.lower() not in CLOCK]
    if varying:
        raise InvalidArgumentError(
            f"The expression {text!r} of {what} calls {_calls(varying)}, whose value differs from one evaluation to the next. "
            "Nothing was written. Use an expression that depends on the columns of the row alone."
        )
    over_rows = sorted(name for name in _called(text) if name in OVER_ROWS)
    if over_rows:
        raise InvalidArgumentError(
            f"The expression {text!r} of {what} calls {_calls(over_rows)}, which computes a value from several rows. Nothing was "
            "written. Use an expression of one row."
        )


def check_same_in_every_session(text: str, *, what: str) -> None:
    """Refuse an expression whose value depends on the session that evaluates it, such as ``current_user()``.

    Args:
        what: what the expression defines, for the message.

    Raises:
        InvalidArgumentError: names the functions.
    """
    called = sorted(name for name in _called(text) if name in SESSION)
    if called:
        raise InvalidArgumentError(
            f"The expression {text!r} of {what} calls {_calls(called)}, whose value differs between sessions, so another client "
            "could not check the stored values. Nothing was written. Compute the value before the write and store it in an "
            "ordinary column."
        )


def check_clock_brackets(text: str, *, what: str) -> None:
    """Refuse functions that return the current time without brackets: delta-spark takes the name alone for a column.

    Raises:
        InvalidArgumentError: names the function.
    """
    for name in bare_clock_names(text):
        raise InvalidArgumentError(
            f"The expression {text!r} of {what} names {name} without brackets, which other writers take for a column. Nothing was "
            f"written. Write {name}()."
        )


def check_constant(text: str, *, what: str) -> None:
    """Refuse an expression that Spark does not evaluate when it plans a write, as it does the current time.

    Args:
        what: what the expression defines, for the message.

    Raises:
        InvalidArgumentError: it calls a function over several rows or one whose value varies, or has a lambda function.
    """
    checked_text(text)
    called = sorted(name for name in _called(text) if name in VARYING | OVER_ROWS)
    if called or has_lambda(text):
        reason = f"calls {_calls(called)}" if called else "has a lambda function"
        raise InvalidArgumentError(
            f"The expression {text!r} of {what} {reason}, so it is not a constant. Nothing was written. Use an expression of "
            "literals and built-in functions of them, such as 1 + 1 or current_date()."
        )


def has_lambda(text: str) -> bool:
    """Whether an expression contains a lambda function, such as ``x -> x + 1``; Spark gives ``array_sort`` one of its own."""
    return "array_sort" in _called(text) or any(token.token_type == TokenType.ARROW for token in tokens_of(text))


def columns_of_expression(text: str) -> tuple[ColumnPath, ...]:
    """The columns and nested fields that an expression may use, as paths in the spelling of the text, each once.

    The result may contain names that are not columns, such as the variables of a lambda function, but leaves out no column.
    """
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except (SqlglotError, RecursionError):
        paths = list(_names(text))
    else:
        paths = list(_paths(tree))
    return tuple(dict.fromkeys(paths))


def uses_column(text: str, path: ColumnPath) -> bool:
    """Whether an expression may use the column or nested field at ``path``, something inside of it, or a parent of it."""
    lowered_path = tuple(name.lower() for name in path)
    for used in columns_of_expression(text):
        lowered = tuple(name.lower() for name in used)
        shorter = min(len(lowered_path), len(lowered))
        if lowered[:shorter] == lowered_path[:shorter]:
            return True
    return False


def known_columns(text: str, schema: StructType) -> tuple[ColumnPath, ...]:
    """The paths of :func:`columns_of_expression` that begin with a column of ``schema``, which are spelled as there.

    A path ends where the schema has no struct to follow it.
    """
    paths = (_known(path, schema) for path in columns_of_expression(text))
    return tuple(dict.fromkeys(path for path in paths if path))


def _known(path: ColumnPath, schema: StructType) -> ColumnPath:
    names: list[str] = []
    struct: object = schema
    for name in path:
        item = struct.field(name) if isinstance(struct, StructType) else None
        if item is None:
            break
        names.append(item.name)
        struct = item.type
    return tuple(names)


def _paths(tree: Any) -> Iterator[ColumnPath]:
    for column in tree.find_all(exp.Column):
        names = [part.name for part in column.parts]
        above = column.parent
        while isinstance(above, exp.Dot) and isinstance(above.expression, exp.Identifier):
            names.append(above.expression.name)
            above = above.parent
        yield tuple(names)


def _names(text: str) -> Iterator[ColumnPath]:
    """Every name in a text that cannot be parsed; each may be a column."""
    try:
        tokens = tokens_of(text)
    except InvalidArgumentError:
        return
    for token in tokens:
        if token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text[:1].isidentifier():
            yield (token.text,)


def _called(text: str) -> set[str]:
    tokens: list[Token] = tokens_of(text)
    pairs = pairwise(tokens)
    return {name.text.lower() for name, bracket in pairs if bracket.token_type == TokenType.L_PAREN}


def _calls(names: list[str]) -> str:
    return ", ".join(f"{name}()" for name in names)
