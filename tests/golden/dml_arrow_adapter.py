"""Replays the recorded sequences with rows of Arrow, which are written without Spark where no rule of the table needs it."""

from collections.abc import Mapping
from typing import Any

import tests.golden.dml_adapter as dml_adapter

_WITHOUT_ARROW = ("variant", "interval", "void")
"""Types in the columns of frames that Spark does not hand over."""


def classify(error: Exception) -> str:
    return dml_adapter.classify(error)


def open(root: str) -> "ArrowSession":
    return ArrowSession(dml_adapter.open(root).lake)


class ArrowSession(dml_adapter.Session):
    """Appends, overwrites and creations get the rows as Arrow data."""

    def _rows(self, act: Mapping[str, Any]) -> Any:
        frame = self._frame(act)
        kinds = frame.schema.simpleString()
        return frame if any(kind in kinds for kind in _WITHOUT_ARROW) else frame.toArrow()
