"""The printer of ``cm-delta``: commands give it values, and it prints them as text, JSON or CSV.

No other module of the command line writes to the terminal. Texts of other users reach a terminal only as
:func:`~cm_delta_dagster.operations.recovery.display_text.printable` shows them. Without ``--json`` and ``--csv`` a command prints
lines for people, which can change in any release; programs read JSON.
"""

import csv
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any

import click

from cm_delta_dagster.cli.values import Rows, cell, data_cell, data_text, field_of, heading, is_number, plain
from cm_delta_dagster.operations.recovery.display_text import printable, printable_json

_FORM = "cm_delta_dagster.form"


class Form(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def output(content: str, *, with_csv: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the option ``--json``, and optionally ``--csv``, which the functions of this module obey.

    Args:
        content: what the JSON is, for the help and the documentation.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        if with_csv:
            command = _form_option(Form.CSV, "Print CSV with a header.")(command)
        return _form_option(Form.JSON, f"Print JSON: {content}.")(command)

    return decorate


def _form_option(form: Form, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def choose(context: click.Context, parameter: click.Parameter, is_chosen: bool) -> None:
        if is_chosen and context.meta.setdefault(_FORM, form) is not form:
            raise click.UsageError("Give --json or --csv, not both.")

    return click.option(f"--{form}", is_flag=True, expose_value=False, callback=choose, help=text)


def chosen_form() -> Form:
    """The form in which the running command prints."""
    context = click.get_current_context(silent=True)
    return Form.TEXT if context is None else context.meta.get(_FORM, Form.TEXT)


def show(value: Any, *lines: str) -> None:
    """Print a result: the lines, or as JSON the value, which is a mapping, a dataclass, or a list of them."""
    if chosen_form() is Form.JSON:
        _write(_json(plain(value)))
        return
    say(*lines)


def show_records(records: Sequence[Any], columns: str, *, empty: str = "", **computed: Callable[[Any], Any]) -> None:
    """Print records, which are mappings or dataclasses, as an aligned table, or as JSON with all their fields.

    Args:
        columns: names of the fields to show, separated by spaces.
        empty: the line to print for no records.
        computed: columns that are no fields.
    """
    show(records, *(aligned(records, columns, **computed) if records else [empty] if empty else []))


def aligned(records: Sequence[Any], columns: str, **computed: Callable[[Any], Any]) -> list[str]:
    """The lines of :func:`show_records`."""
    names = columns.split()
    values = [[computed.get(name, field_of(name))(record) for name in names] for record in records]
    cells = [[cell(name, value) for name, value in zip(names, row, strict=True)] for row in values]
    return _align(
        [heading(name) for name in names], cells, [_is_numeric(column) for column in zip(*values, strict=True)]
    )


def show_rows(rows: Rows, *, limit: int) -> None:
    """Print at most ``limit`` rows of a table; if there are more, a note says so."""
    shown = rows.first(limit)
    match chosen_form():
        case Form.JSON:
            _write(_json([dict(zip(shown.columns, map(plain, row), strict=True)) for row in shown.rows]))
        case Form.CSV:
            _write(csv_text(shown))
        case Form.TEXT:
            cells = [[data_cell(value) for value in row] for row in shown.rows]
            columns = [[row[at] for row in shown.rows] for at in range(len(shown.columns))]
            say(*_align([data_cell(name) for name in shown.columns], cells, list(map(_is_numeric, columns))))
    if len(rows.rows) > limit:
        note(f"Only the first {limit} rows are shown; --limit shows more.")


def say(*lines: str) -> None:
    """Print lines for people; in another form nothing."""
    if chosen_form() is Form.TEXT:
        _write("".join(f"{printable(line)}\n" for line in lines))


def note(text: str) -> None:
    """Print a line to standard error, in each form."""
    click.echo(printable(text), err=True)
    sys.stderr.flush()


def warn(text: str) -> None:
    """Print a warning to standard error."""
    note(f"Warning: {text}")


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback that shows how many of how many are done on standard error; None if the result is for programs."""
    with ExitStack() as stack:
        bars: list[Any] = []

        def advance(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(click.progressbar(length=total, label=label, file=sys.stderr)))
            bars[0].update(done - bars[0].pos)

        yield advance if chosen_form() is Form.TEXT else None


def _write(text: str) -> None:
    """Print a text that is printable already, and has its line ends."""
    click.echo(text, nl=False)
    sys.stdout.flush()


def _json(value: Any) -> str:
    """JSON in which each element of an array has a line."""
    if isinstance(value, list):
        return "[" + ",\n ".join(_json(element).rstrip("\n") for element in value) + "]\n"
    return printable_json(json.dumps(value, ensure_ascii=False)) + "\n"


def csv_text(rows: Rows) -> str:
    """CSV. It has no way to write control characters: a terminal gets them escaped, a file or program as they are."""
    shown = printable if is_terminal() else str
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([shown(name) for name in rows.columns])
    writer.writerows(["" if value is None else shown(data_text(value)) for value in row] for row in rows.rows)
    return target.getvalue()


def is_terminal() -> bool:
    """Whether a person reads what the command prints, and not a file or another program."""
    return sys.stdout.isatty()


def _is_numeric(column: Sequence[Any]) -> bool:
    return any(map(is_number, column)) and all(value is None or is_number(value) for value in column)


def _align(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Lines with columns as wide as their longest cell; numbers are at the right of theirs."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in (heads, ["-" * width for width in widths], *rows)
    ]


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(record.getMessage())
        if not record.exc_info:
            return message
        return "\n".join([message, *map(printable, self.formatException(record.exc_info).split("\n"))])


def make_warnings_printable() -> None:
    """Print log records, where the process has not configured logging, as :func:`note` prints lines."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
