"""Errors of temporary local files as errors of this package."""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import IO

from cm_delta_dagster.errors import EngineError


@contextlib.contextmanager
def temporary_space() -> Iterator[None]:
    """Writes to a temporary file.

    Raises:
        EngineError: the directory for temporary files is full, or cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"Rows that do not fit into memory could not be written to a temporary file in {tempfile.gettempdir()}: "
            f"{error.strerror or error}. Nothing was committed. Free space there, or set TMPDIR to a directory with more."
        ) from error


def temporary_file() -> IO[bytes]:
    """A new temporary file without a name. Raises EngineError."""
    with temporary_space():
        return tempfile.TemporaryFile()


def drop_file(file: IO[bytes]) -> None:
    """Close a temporary file whose content is not needed any more, also one that could not be written to its end."""
    with contextlib.suppress(OSError):
        file.close()
