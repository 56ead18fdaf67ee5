"""The words of remedies: how a user of Python, of SQL or of the command line does what a remedy says.

Each entry point has a table of words. :func:`advice` makes the sentence of them, e.g. ``Put back what has an intact copy: `cm-delta
doctor main.sales.orders --repair```. A remedy without words in the table of SQL is said in those of the process.

The tables are in the layers of the entry points; the package registers them when it is imported.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeAlias

from cm_delta_dagster.remedies import Remedy


class EntryPoint(StrEnum):
    """Where a user called the package."""

    PYTHON = "python"
    SQL = "sql"
    SHELL = "shell"


RemedyWords: TypeAlias = Mapping[type[Remedy], Callable[[Any], tuple[str, ...]]]
"""The calls, statements or commands for each kind of remedy."""

_tables: dict[EntryPoint, Callable[[], RemedyWords]] = {}
_process = EntryPoint.PYTHON


def register_words(entry_point: EntryPoint, words: Callable[[], RemedyWords]) -> None:
    """Set the words of an entry point; ``words`` is called when they are needed."""
    _tables[entry_point] = words


@contextmanager
def process_entry_point(entry_point: EntryPoint) -> Iterator[None]:
    """Within the block, errors and log records of all threads have the words of ``entry_point``."""
    global _process
    before, _process = _process, entry_point
    try:
        yield
    finally:
        _process = before


def calls(remedy: Remedy, entry_point: EntryPoint) -> tuple[str, ...]:
    """How a user of ``entry_point`` does what ``remedy`` says; empty if that is not possible there."""
    words = _tables[entry_point]().get(type(remedy))
    return () if words is None else words(remedy)


def advice(remedy: Remedy, entry_point: EntryPoint | None = None) -> str:
    """The sentence that says what to do, and how.

    Args:
        entry_point: whose words to use first; those of the process if it has none.
    """
    for language in (entry_point, _process, EntryPoint.PYTHON):
        chosen = () if language is None else calls(remedy, language)
        if not chosen:
            continue
        marked = [f"`{call}`" for call in chosen] if language is EntryPoint.SHELL else chosen
        elsewhere = ", in Python" if language is EntryPoint.PYTHON and _process is EntryPoint.SHELL else ""
        return f"{remedy.purpose}{elsewhere}: {remedy.joint.join(marked)}."
    return f"{remedy.purpose}."
