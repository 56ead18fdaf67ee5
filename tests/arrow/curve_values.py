"""Values of the columns by which rows are ordered, for both engines: NULL, NaN, both zeros, texts of several scripts, times before
1970, and the ends of the types."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_type
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType

_MOMENTS = [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 2, 29, 12), None]
VALUES: dict[str, tuple[DataType, list[object]]] = {
    "byte": (PrimitiveType("byte"), [-128, 127, 0, None]),
    "short": (PrimitiveType("short"), [-32768, 32767, None, 5]),
    "integer": (PrimitiveType("integer"), [-(2**31), 2**31 - 1, 0, None]),
    "long": (PrimitiveType("long"), [-(2**63), 2**63 - 1, 2**53 + 1, None]),
    "float": (PrimitiveType("float"), [float("nan"), -0.0, 0.0, float("-inf"), float("inf"), None, 1.5]),
    "double": (PrimitiveType("double"), [float("nan"), -0.0, 0.0, float("-inf"), float("inf"), None, 1e300]),
    "string": (PrimitiveType("string"), ["", "z", "Z", "\u00e9", "\uffff", "\U0001f600", None, "ab"]),
    "date": (PrimitiveType("date"), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "timestamp": (
        PrimitiveType("timestamp"),
        [None if moment is None else moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
    ),
    "timestamp_ntz": (PrimitiveType("timestamp_ntz"), list(_MOMENTS)),
    "decimal": (DecimalType(12, 2), [Decimal("-9999999999.99"), Decimal("0.01"), Decimal("0.00"), None]),
    "large_decimal": (DecimalType(38, 10), [Decimal("-1e27"), Decimal("1e27"), None, Decimal("1e-10")]),
}


def rows_of(count: int) -> pa.Table:
    """``count`` rows with a number ``n``, which lies in no order, and a column of each type."""
    columns = {"n": pa.array([number * 7919 % count for number in range(count)], pa.int64())}
    for place, (name, (data_type, values)) in enumerate(VALUES.items()):
        chosen = [values[(number // (place + 1) + place) % len(values)] for number in range(count)]
        columns[name] = pa.array(chosen, to_arrow_type(data_type))
    return pa.table(columns)
