"""Values of parameters as literals in the text of a statement that writes, whose parts Spark sees one by one."""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.sql_lexer import Kind, Lexeme, lexemes, place
from cm_delta_dagster.protocol.predicates.sql_strings import literal_text


def with_values(text: str, args: Mapping[str, Any] | Sequence[Any] | None) -> str:
    """``text`` with a literal in place of each parameter.

    Args:
        args: a mapping for ``:name``, a sequence for ``?``.

    Raises:
        InvalidArgumentError: a parameter has no value, or one that is not a literal of SQL; or ``args`` has a value for which
            the text has no parameter.
    """
    if args is None:
        return text
    if isinstance(args, str) or not isinstance(args, Mapping | Sequence):
        raise InvalidArgumentError(
            f"args is of type {type(args).__name__}; give a dict for parameters such as :name, or a list for ?."
        )
    all_lexemes = lexemes(text)
    written: list[str] = []
    done = used = 0
    names: set[str] = set()
    for position, lexeme in enumerate(all_lexemes):
        if isinstance(args, Mapping):
            name = _name(all_lexemes, position)
            if name is None:
                continue
            value, end = _named(args, name, text, lexeme), all_lexemes[position + 1].end
            names.add(name)
        elif lexeme.symbol == "?":
            value, end = _next(args, used, text, lexeme), lexeme.end
            used += 1
        else:
            continue
        written += (text[done : lexeme.start], literal(value))
        done = end
    _check_all_used(args, used, names)
    return "".join((*written, text[done:]))


def _name(all_lexemes: Sequence[Lexeme], position: int) -> str | None:
    """The name of the parameter whose colon is at ``position``; None if there is none."""
    if all_lexemes[position].symbol != ":" or position + 1 == len(all_lexemes):
        return None
    following = all_lexemes[position + 1]
    before = all_lexemes[position - 1] if position else None
    # In a type such as struct<a:int>, a name comes before the colon.
    is_field = before is not None and before.name is not None and before.end == all_lexemes[position].start
    if is_field or following.kind is not Kind.WORD or following.start != all_lexemes[position].end:
        return None
    return following.source


def _named(args: Mapping[str, Any], name: str, text: str, lexeme: Lexeme) -> Any:
    if name not in args:
        raise InvalidArgumentError(f"The parameter :{name} at {place(text, lexeme.start)} has no value in args.")
    return args[name]


def _next(args: Sequence[Any], used: int, text: str, lexeme: Lexeme) -> Any:
    if used == len(args):
        raise InvalidArgumentError(
            f"The parameter ? at {place(text, lexeme.start)} has no value: args has {len(args)} values."
        )
    return args[used]


def _check_all_used(args: Mapping[str, Any] | Sequence[Any], used: int, names: Set[str]) -> None:
    if not isinstance(args, Mapping):
        if used < len(args):
            raise InvalidArgumentError(
                f"args has {len(args)} values for {used} parameters ? of the statement. Nothing was changed. Give one value for "
                "each parameter."
            )
        return
    unused = [str(name) for name in args if name not in names]
    if unused:
        raise InvalidArgumentError(
            f"The statement has no parameter {', '.join(f':{name}' for name in unused)}, which args has a value for. Nothing was "
            "changed. Correct the name, or leave the value out."
        )


def literal(value: Any) -> str:
    """The text of a value in SQL. Raises InvalidArgumentError for a value of another type."""
    for kind, write in _LITERALS.items():
        if isinstance(value, kind):
            return write(value)
    raise InvalidArgumentError(
        f"A parameter has a value of type {type(value).__name__}. Give a text, a number, a Boolean, a date, a datetime, bytes, "
        "None, or a list or dict of these."
    )


def _float(value: float) -> str:
    if math.isfinite(value):
        return _signed(f"{value!r}D")
    return f"double('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}')"


def _int(value: int) -> str:
    return _signed(
        f"{value}" if -(2**31) < value < 2**31 else f"{value}L" if -(2**63) < value < 2**63 else f"{value}BD"
    )


def _decimal(value: Decimal) -> str:
    return _signed(f"{value:f}BD")


def _signed(text: str) -> str:
    """In brackets if it is negative: two minus signs would begin a comment."""
    return f"({text})" if text.startswith("-") else text


def _moment(value: datetime) -> str:
    return f"TIMESTAMP '{value.isoformat(sep=' ')}'"


def _entries(value: Mapping[Any, Any]) -> str:
    return f"map({', '.join(f'{literal(key)}, {literal(item)}' for key, item in value.items())})"


_LITERALS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda value: "NULL",
    bool: lambda value: str(value).upper(),
    int: _int,
    float: _float,
    str: literal_text,
    Decimal: _decimal,
    datetime: _moment,
    date: lambda value: f"DATE '{value.isoformat()}'",
    bytes: lambda value: f"X'{value.hex()}'",
    list: lambda value: f"array({', '.join(map(literal, value))})",
    tuple: lambda value: f"array({', '.join(map(literal, value))})",
    dict: _entries,
}
"""How values of each type are written; the first type that fits counts."""
