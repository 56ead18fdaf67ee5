"""Values of columns: how a table stores them, how SQL compares and writes them, and a form in which readers can be compared."""

import math
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

Value = Any
"""None, bool, int, float, Decimal, str, bytes, date or datetime; a datetime with a time zone belongs to ``timestamp``."""

nan = math.nan
inf = math.inf
"""Names that the text of a step uses."""

INTEGERS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_NULL_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__", b"")
_EPOCH = datetime(1970, 1, 1)


def base_type(kind: str) -> str:
    """The name of a type without its arguments."""
    return kind.partition("(")[0]


def arguments(kind: str) -> tuple[int, ...]:
    """The arguments of a type: of ``decimal(10,2)`` 10 and 2."""
    inner = kind.partition("(")[2].rstrip(")")
    return tuple(int(part) for part in inner.split(",")) if inner else ()


class DoesNotFitError(Exception):
    """A column cannot hold the value."""


def stored(value: Value, kind: str, *, in_partition: bool = False) -> Value:
    """The value as a column of that type stores it, or DoesNotFitError."""
    if value is None or (in_partition and value in _NULL_PARTITIONS):
        return None
    name = base_type(kind)
    if name in INTEGERS:
        limit = 2 ** (INTEGERS[name] - 1)
        if not -limit <= value < limit:
            raise DoesNotFitError(f"{value} is not a {kind}")
        return int(value)
    if name == "float":
        return struct.unpack("f", struct.pack("f", value))[0]
    if name == "double":
        return float(value)
    if name == "decimal":
        return _decimal(value, *arguments(kind))
    if name in ("varchar", "char"):
        length = arguments(kind)[0]
        if len(value) > length:
            raise DoesNotFitError(f"{value!r} is longer than {kind}")
        return value.ljust(length) if name == "char" else value
    if name == "timestamp_ntz" and not isinstance(value, datetime):
        return datetime.combine(value, time())
    return value


def _decimal(value: Value, precision: int, scale: int) -> Decimal:
    exact = Decimal(value).quantize(Decimal(1).scaleb(-scale))
    if len(exact.as_tuple().digits) > precision:
        raise DoesNotFitError(f"{value} is not a decimal({precision},{scale})")
    return exact


def comparable(value: Value) -> str | None:
    """A text that two equal values of a column share, whichever reader returned them. -0.0 and 0.0 differ, NaN equals NaN."""
    match value:
        case None:
            return None
        case bool():
            return f"b{value}"
        case int():
            return f"i{value}"
        case float():
            return f"f{value!r}"
        case Decimal():
            return f"d{value.normalize():f}" if value else "d0"
        case datetime() if value.tzinfo is not None:
            return f"t{value.astimezone(UTC).isoformat()}"
        case datetime():
            return f"n{value.isoformat()}"
        case date():
            return f"y{value.isoformat()}"
        case bytes():
            return f"x{value.hex()}"
        case str():
            return f"s{value}"
    raise TypeError(f"{value!r} is no value of a column")


def rank(value: Value) -> Any:
    """A sort key in the order of SQL: NaN is the greatest number, -0.0 equals 0.0, a date is its midnight."""
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return (False, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())  # A column of dates may be compared with times after it was widened.
    return value.encode() if isinstance(value, str) else value


def group_key(value: Value) -> Any:
    """What equal keys of a merge share: -0.0 and 0.0 are one key, and so are all NaN."""
    return None if value is None else rank(value)


def literal(value: Value, kind: str) -> str:
    """The value as SQL text."""
    if value is None:
        return "NULL"
    match base_type(kind):
        case "double" | "float" as name:
            return f"CAST('{_number_text(value)}' AS {name.upper()})"
        case "decimal":
            return f"{value:f}BD"
        case "string" | "varchar" | "char":
            text = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{text}'"
        case "date":
            return f"DATE '{value.isoformat()}'"
        case "timestamp":
            return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"
        case "timestamp_ntz":
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case "binary":
            return f"X'{value.hex()}'"
        case "boolean":
            return str(value).lower()
        case "bigint":
            return f"{value}L" if value > -(2**63) else "(-9223372036854775807L - 1L)"
    return str(value)


def _number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
