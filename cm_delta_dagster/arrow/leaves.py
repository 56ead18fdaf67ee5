"""Values of one Parquet column as the table's type (protocol heading "Type Widening").

All physical types and all type changes that the protocol allows are supported; any other conversion, and one that would change a
value, is refused. :mod:`~cm_delta_dagster.arrow.columns` handles nested types.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from cm_delta_dagster.arrow.calendar import LegacyCalendar, modern_dates, modern_moments
from cm_delta_dagster.protocol.schema.interval_types import DAY_TIME_NAMES, YEAR_MONTH_NAMES
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType

Conversion = Callable[[pa.Array], pa.Array]

_MICROS = pa.timestamp("us")
_DIGITS: Mapping[pa.DataType, int] = {
    pa.int8(): 3,
    pa.int16(): 5,
    pa.int32(): 10,
    pa.int64(): 19,
    pa.uint8(): 3,
    pa.uint16(): 5,
    pa.uint32(): 10,
    pa.uint64(): 20,
}
_PER_MICRO: Mapping[str, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}


def leaf_conversion(
    stored: pa.DataType, data_type: DataType, target: pa.DataType, *, calendar: LegacyCalendar, is_int96: bool
) -> Conversion | None:
    """The conversion of an array of ``stored`` to ``target``, the Arrow type of ``data_type``; None if there is none.

    Args:
        calendar: of the file; used for dates and timestamps with a zone.
        is_int96: whether a timestamp is stored as INT96.
    """
    if pat.is_dictionary(stored):
        inner = leaf_conversion(stored.value_type, data_type, target, calendar=calendar, is_int96=is_int96)
        return None if inner is None else lambda array: inner(array.dictionary_decode())
    if pat.is_run_end_encoded(stored):
        of_run = leaf_conversion(stored.value_type, data_type, target, calendar=calendar, is_int96=is_int96)
        return None if of_run is None else lambda array: of_run(pc.run_end_decode(array))
    if pat.is_null(stored):
        return lambda array: pa.nulls(len(array), target)
    if isinstance(data_type, DecimalType):
        return _to_decimal(stored, target)
    name = getattr(data_type, "name", "")
    if name == "date":
        return _to_date(stored, calendar)
    if name == "timestamp":
        return _to_timestamp(stored, target, calendar, is_int96) if pat.is_timestamp(stored) else None
    if name == "timestamp_ntz":
        return _to_timestamp_ntz(stored, calendar)
    if name in DAY_TIME_NAMES:
        return (lambda array: array.view(target)) if stored in (pa.int64(), target) else None
    if name in YEAR_MONTH_NAMES:
        return _months if stored == pa.int32() else None
    if not any(is_kind(stored) for is_kind in _ACCEPTED.get(name, ())):
        return None
    return _same if stored == target else lambda array: array.cast(target)


def _is_int32(stored: pa.DataType) -> bool:
    """Whether it is stored as INT32. Narrow types differ by annotation only, so narrowing checks the values."""
    return bool(pat.is_integer(stored)) and stored not in (pa.int64(), pa.uint64(), pa.uint32())


def _is_text(stored: pa.DataType) -> bool:
    return bool(pat.is_string(stored) or pat.is_large_string(stored) or pat.is_string_view(stored))


def _is_bytes(stored: pa.DataType) -> bool:
    kinds = (pat.is_binary, pat.is_large_binary, pat.is_fixed_size_binary, pat.is_binary_view)
    return any(is_kind(stored) for is_kind in kinds)


_ACCEPTED: Mapping[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pat.is_boolean,),
    "byte": (_is_int32,),
    "short": (_is_int32,),
    "integer": (_is_int32,),
    "long": (pat.is_integer,),
    "float": (pat.is_float16, pat.is_float32),
    "double": (pat.is_floating, _is_int32),
    # Many writers omit the annotation of a text; the conversion refuses bytes that are not UTF-8.
    "string": (_is_text, _is_bytes),
    "binary": (_is_text, _is_bytes),
}


def _months(array: pa.Array) -> pa.Array:
    """Numbers of months as Arrow's intervals of months, days and nanoseconds."""
    parts = np.zeros(len(array), dtype=[("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    parts["months"] = array.fill_null(0).to_numpy()
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(array), [validity, pa.py_buffer(parts)])


def _same(array: pa.Array) -> pa.Array:
    return array


def _to_decimal(stored: pa.DataType, target: pa.DataType) -> Conversion | None:
    if stored == target:
        return _same
    whole_digits = target.precision - target.scale
    if pat.is_decimal(stored) and target.scale >= stored.scale:
        return lambda array: array.cast(target)
    if pat.is_integer(stored) and whole_digits >= _DIGITS[stored]:
        return lambda array: array.cast(pa.decimal128(20, 0)).cast(target)
    return None


def _days(array: pa.Array) -> pa.Array:
    return array.view(pa.date32())


def _to_date(stored: pa.DataType, calendar: LegacyCalendar) -> Conversion | None:
    if stored == pa.int32():
        read: Conversion = _days
    elif pat.is_date(stored):
        read = _same if stored == pa.date32() else lambda array: array.cast(pa.date32())
    else:
        return None
    return (lambda array: modern_dates(read(array))) if calendar.datetimes else read


def _to_timestamp(
    stored: pa.TimestampType, target: pa.DataType, calendar: LegacyCalendar, is_int96: bool
) -> Conversion:
    if calendar.int96 if is_int96 else calendar.datetimes:
        return lambda array: modern_moments(_micros(array), calendar.zone).view(target)
    return _same if stored == target else lambda array: _micros(array).view(target)


def _to_timestamp_ntz(stored: pa.DataType, calendar: LegacyCalendar) -> Conversion | None:
    if pat.is_timestamp(stored):
        return _same if stored == _MICROS else lambda array: _micros(array).view(_MICROS)
    days = _to_date(stored, calendar) if pat.is_date(stored) else None
    return None if days is None else lambda array: days(array).cast(_MICROS)


def _micros(array: pa.Array) -> pa.Array:
    """A timestamp of any unit as int64 microseconds; nanoseconds are rounded down, as Spark does."""
    ticks = array.view(pa.int64())
    factor = _PER_MICRO.get(array.type.unit)
    if factor is not None:
        return ticks if factor == 1 else pc.multiply_checked(ticks, factor)
    micros = pc.divide(ticks, 1000)
    too_high = pc.greater(pc.multiply(micros, 1000), ticks)
    return pc.subtract(micros, too_high.cast(pa.int64()))
