"""Predicates as JSON text, for what is stored of a transaction that is committed later.

:func:`decode_predicate` returns what :func:`encode_predicate` was given, except that the ``expression`` of an ``Opaque``, which
belongs to the engine, is lost: such a condition can still be compared with commits, and not be evaluated.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)


def encode_predicate(predicate: Predicate) -> dict[str, Any]:
    """The predicate as a JSON object."""
    match predicate:
        case And(parts) | Or(parts):
            return {"kind": type(predicate).__name__, "parts": [encode_predicate(part) for part in parts]}
        case Not(part):
            return {"kind": "Not", "part": encode_predicate(part)}
        case Comparison(column, operator, value):
            return {"kind": "Comparison", "column": column, "operator": operator.value, "value": _encoded(value)}
        case In(column, values):
            return {"kind": "In", "column": column, "values": [_encoded(value) for value in values]}
        case StartsWith(column, prefix):
            return {"kind": "StartsWith", "column": column, "prefix": prefix}
        case IsNull(column) | IsNotNull(column):
            return {"kind": type(predicate).__name__, "column": column}
        case Opaque():
            columns = None if predicate.columns is None else sorted(predicate.columns)
            return {"kind": "Opaque", "sql": predicate.sql, "columns": columns}
        case AlwaysTrue():
            return {"kind": "AlwaysTrue"}


def decode_predicate(value: Any) -> Predicate:
    """The predicate of a JSON object. Raises InvalidArgumentError if it is not one that :func:`encode_predicate` returns."""
    try:
        return _DECODERS[value["kind"]](value)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InvalidArgumentError(f"A stored condition cannot be read: {error!r}.") from error


def _opaque(value: Mapping[str, Any]) -> Predicate:
    columns = value["columns"]
    return Opaque(str(value["sql"]), None if columns is None else frozenset(map(str, columns)))


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Predicate]] = {
    "And": lambda value: And(tuple(map(decode_predicate, value["parts"]))),
    "Or": lambda value: Or(tuple(map(decode_predicate, value["parts"]))),
    "Not": lambda value: Not(decode_predicate(value["part"])),
    "Comparison": lambda value: Comparison(
        value["column"], ComparisonOperator(value["operator"]), _decoded(value["value"])
    ),
    "In": lambda value: In(value["column"], tuple(map(_decoded, value["values"]))),
    "StartsWith": lambda value: StartsWith(value["column"], value["prefix"]),
    "IsNull": lambda value: IsNull(value["column"]),
    "IsNotNull": lambda value: IsNotNull(value["column"]),
    "Opaque": _opaque,
    "AlwaysTrue": lambda value: AlwaysTrue(),
}

_VALUES: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime, lambda value: value.isoformat(), datetime.fromisoformat),
    "date": (date, lambda value: value.isoformat(), date.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "float": (float, repr, float),
}
"""Types that JSON does not have, or not exactly; a datetime is a date too, and comes first."""


def _encoded(value: Any) -> Any:
    for name, (kind, encode, _) in _VALUES.items():
        if isinstance(value, kind):
            return {name: encode(value)}
    return value


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((name, text),) = value.items()
    return _VALUES[name][2](text)
