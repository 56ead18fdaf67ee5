"""What the demo prints: progress with the time since the start, and tables."""

import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any, TextIO

COLUMNS = 120
_STARTED = time.monotonic()
_lock = threading.Lock()


def say(text: str) -> None:
    """Print progress with the time since the start; long text is folded and indented."""
    clock = f"[{time.monotonic() - _STARTED:6.1f} s] "
    with _lock:
        for line in folded(text, width=COLUMNS - len(clock)):
            print(clock + line, flush=True)
            clock = " " * len(clock)


def folded(text: str, *, width: int = COLUMNS) -> list[str]:
    """``text`` in lines of at most ``width`` columns, all but the first indented; words are not split."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(text, width=width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


@contextmanager
def step(title: str, *, spent: str = "done in") -> Iterator[None]:
    """Print ``title`` before the block and its duration, after the words ``spent``, at its end."""
    started = time.monotonic()
    say(f"{title} ...")
    yield
    say(f"    {spent} {time.monotonic() - started:.1f} s")


@contextmanager
def errors_to(log: TextIO) -> Iterator[None]:
    """Within the block, write to ``log`` what this process and those that it starts write to standard error."""
    sys.stderr.flush()
    descriptor = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        with redirect_stderr(log):
            yield
    finally:
        os.dup2(descriptor, 2)
        os.close(descriptor)


def clock_at(timestamp: float) -> float:
    """Seconds between the start of the demo and ``timestamp``, in seconds since the epoch."""
    return timestamp - time.time() + time.monotonic() - _STARTED


def text_table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    """A text table; numbers are aligned to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    numeric = [isinstance(rows[0][index], int) if rows else False for index in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * width for width in widths), *(line(row) for row in cells[1:])])
