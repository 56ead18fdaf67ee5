"""Syntax trees of Python sources, also while other threads log exceptions.

In CPython 3.11 all threads count the depth of a parse in one place, and the text of a traceback is made with ``ast.parse``: a
thread that logs an exception while another parses makes one of them raise ``SystemError``. The interpreter changes threads inside
a parse only where a garbage collection runs Python code.
"""

import ast
import gc
from pathlib import Path
from threading import Lock

_LOCK = Lock()


def parse(source: str, filename: str | Path = "<unknown>") -> ast.Module:
    """``ast.parse(source)``, without garbage collection meanwhile."""
    with _LOCK:
        collects = gc.isenabled()
        gc.disable()
        try:
            return ast.parse(source, str(filename))
        finally:
            if collects:
                gc.enable()
