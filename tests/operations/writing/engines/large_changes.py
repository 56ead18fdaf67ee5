"""Changes that Spark carries out without help."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cm_delta_dagster.operations.writing.engines import small_changes


@contextmanager
def every_change_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No change counts as small, so that Spark finds and reads all rows of a change that it carries out."""
    with monkeypatch.context() as patch:
        patch.setattr(small_changes, "_MOST_FILES", 0)
        yield
