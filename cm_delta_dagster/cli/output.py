"""What commands print. No other module of the command line writes to the terminal.

Texts of other users reach a terminal only as :func:`~cm_delta_dagster.operations.recovery.display_text.printable` shows them.
"""

import json
import logging
import sys
from typing import Any

import click

from cm_delta_dagster.operations.recovery.display_text import printable, printable_json


def say(text: str, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(printable(text), err=err)
    (sys.stderr if err else sys.stdout).flush()


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON."""
    write(printable_json(json.dumps(value, indent=indent, ensure_ascii=False)) + "\n")


def write(text: str) -> None:
    """Print a text that is printable already, and has its line ends."""
    click.echo(text, nl=False)


def is_terminal() -> bool:
    """Whether a person reads what the command prints, and not a file or another program."""
    return sys.stdout.isatty()


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(record.getMessage())
        if not record.exc_info:
            return message
        return "\n".join([message, *map(printable, self.formatException(record.exc_info).split("\n"))])


def make_warnings_printable() -> None:
    """Print log records, where the process has not configured logging, as :func:`say` prints lines."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
