"""Rows as an aligned table, JSON or CSV, for commands that print rows."""

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import click
import pyarrow as pa

from cm_delta_dagster.cli.output import is_terminal, say, write
from cm_delta_dagster.operations.recovery.display_text import printable, printable_json

_MAX_CELL = 80
"""Longer texts are cut in the aligned table; JSON and CSV have the whole text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Named columns and rows. Values are those of ``pyarrow.Table.to_pylist``: None is NULL."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of_arrow(cls, table: pa.Table) -> "Rows":
        """The rows of an Arrow table, whose column names may repeat."""
        columns = [_values(column) for column in table.columns]
        return cls(columns=tuple(table.column_names), rows=tuple(zip(*columns, strict=True)))

    def first(self, limit: int) -> "Rows":
        """At most ``limit`` rows."""
        return Rows(columns=self.columns, rows=self.rows[:limit])


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; maps as dicts."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # Python has no dates and times before the year 1 and after 9999.
        values = column.cast(_with_times_as_text(column.type)).to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values


def _with_times_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_with_times_as_text(kind.key_type), _with_times_as_text(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_with_times_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_with_times_as_text(item.type)) for item in kind])
    return kind


def output_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--json`` and ``--csv``, which a command passes to :func:`echo_rows`."""
    function = click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")(function)
    return click.option("--json", "as_json", is_flag=True, help="Print a JSON array with an object for each row.")(
        function
    )


def limit_option(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--limit``."""
    return click.option(
        "--limit", default=default, show_default=True, type=click.IntRange(min=1), help="How many rows to show."
    )


def echo_rows(found: Rows, *, limit: int, as_json: bool, as_csv: bool) -> None:
    """Print at most ``limit`` rows; if there are more, a note goes to standard error."""
    if as_json and as_csv:
        raise click.UsageError("Give --json or --csv, not both.")
    shown = found.first(limit)
    text_of = _json_text if as_json else _csv_text if as_csv else _aligned_text
    write(text_of(shown))
    if len(found.rows) > limit:
        say(f"Only the first {limit} rows are shown; --limit shows more.", err=True)


def _json_text(found: Rows) -> str:
    objects = [dict(zip(found.columns, map(_json_value, row), strict=True)) for row in found.rows]
    return "[" + ",\n ".join(printable_json(json.dumps(one, ensure_ascii=False)) for one in objects) + "]\n"


def _csv_text(found: Rows) -> str:
    """CSV. It has no way to write control characters: a terminal gets them escaped, a file or program as they are."""
    shown = printable if is_terminal() else str
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([shown(name) for name in found.columns])
    writer.writerows(["" if value is None else shown(_text(value)) for value in row] for row in found.rows)
    return target.getvalue()


def _aligned_text(found: Rows) -> str:
    cells = [[_cell(value) for value in row] for row in found.rows]
    heads = [_cell(name) for name in found.columns]
    numeric = [
        any(_is_number(row[at]) for row in found.rows)
        and all(row[at] is None or _is_number(row[at]) for row in found.rows)
        for at in range(len(heads))
    ]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    return "".join(f"{line}\n" for line in _lines([heads, ["-" * width for width in widths], *cells], widths, numeric))


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool]) -> Iterator[str]:
    for row in rows:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: object) -> str:
    text = "NULL" if value is None else printable(_text(value))
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 3] + "..."


def _text(value: object) -> str:
    plain = _json_value(value)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False)


def _json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal() | timedelta():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(_json_value(key)): _json_value(item) for key, item in value.items()}
        case tuple() | list() if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(_json_value(key)): _json_value(item) for key, item in value}  # A map.
        case tuple() | list():
            return [_json_value(item) for item in value]
        case _:
            return str(value)
