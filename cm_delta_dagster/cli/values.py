"""Values as JSON and as cells of a table."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

from cm_delta_dagster.catalog.durations import duration_text
from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.operations.recovery.display_text import printable
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

if TYPE_CHECKING:
    from cm_delta_dagster.catalog import tables
else:  # The help shows no values.
    tables = DeferredModule("cm_delta_dagster.catalog.tables")

_MAX_DATA_CELL = 80
"""Longer values of data are cut in the aligned table; JSON and CSV have the whole value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Named columns and rows of data. Column names may repeat; None is NULL."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def first(self, limit: int) -> "Rows":
        """At most ``limit`` rows."""
        return Rows(columns=self.columns, rows=self.rows[:limit])


def plain(value: Any) -> Any:
    """The value in the types of JSON: dataclasses and maps as objects, names of tables, times, durations and decimals as texts."""
    match value:
        case None | bool() | int():
            return value
        case Enum():
            return value.value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return duration_text(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, tables.TableIdentifier):
            names = (field.name for field in fields(value) if not field.name.startswith("_"))
            return {name: plain(getattr(value, name)) for name in names}
        case tuple() | list() if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(plain(key)): plain(item) for key, item in value}  # A map.
        case frozenset():
            return sorted(plain(item) for item in value)
        case tuple() | list() | range():
            return [plain(item) for item in value]
        case _:
            return str(value)


def field_of(name: str) -> Callable[[Any], Any]:
    """What returns the field of a mapping or an object."""
    return lambda record: record[name] if isinstance(record, Mapping) else getattr(record, name)


def heading(name: str) -> str:
    """The head of a column of records: times are shown as texts, without their unit."""
    return name.removesuffix("_ms")


def cell(name: str, value: Any) -> str:
    """The value of a field of a record in a table for people."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if name.endswith("_ms"):
            return utc_second(value)
        case Mapping():
            return ", ".join(f"{printable(str(key))}={cell('', item)}" for key, item in value.items()) or "-"
        case tuple():
            return ", ".join(cell("", item) for item in value) or "-"
        case _:
            return printable(str(value))


def utc_second(epoch_ms: int) -> str:
    """``2026-01-31T12:00:00Z``; the number of milliseconds if the calendar does not have that time."""
    text = utc_text(epoch_ms)
    return f"{text[:-5]}Z" if text.endswith("Z") else text


def data_cell(value: object) -> str:
    """A value of data in a table for people."""
    text = "NULL" if value is None else printable(data_text(value))
    return text if len(text) <= _MAX_DATA_CELL else text[: _MAX_DATA_CELL - 3] + "..."


def data_text(value: object) -> str:
    """A value of data as a text; nested values as JSON."""
    simple = plain(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def is_number(value: object) -> bool:
    """Whether it is shown at the right of its column."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
