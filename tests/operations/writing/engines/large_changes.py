"""Changes that Spark carries out without help, and sources that Arrow keeps in files, however small they are."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cm_delta_dagster.arrow import spilled_keys
from cm_delta_dagster.operations.writing.engines import arrow_source, small_changes


@contextmanager
def every_change_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No change counts as small, so that Spark finds and reads all rows of a change that it carries out."""
    with monkeypatch.context() as patch:
        patch.setattr(small_changes, "_MOST_FILES", 0)
        yield


@contextmanager
def every_source_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sources of two rows and more are in temporary files, in chunks of about two rows, and their keys in parts."""
    with monkeypatch.context() as patch:
        patch.setattr(arrow_source, "_MOST_BYTES", 0)
        patch.setattr(arrow_source, "_CHUNK_ROWS", 2)
        patch.setattr(spilled_keys, "_PART_BYTES", 16)
        yield
