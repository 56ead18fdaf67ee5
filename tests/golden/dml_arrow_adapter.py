"""Replays the recorded sequences with rows of Arrow, which are written without Spark where nothing needs it.

If the environment variable ``CM_DELTA_DML_ENGINES`` names a file, it gets a line for each act that changes rows: the act, and
``arrow`` or why Spark carried it out.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tests.golden.dml_adapter as dml_adapter
from cm_delta_dagster import InvalidArgumentError

_WITHOUT_ARROW = ("variant", "interval", "void")
"""Types in the columns of frames that Spark does not hand over."""
_ROW_ACTS = ("append", "write_stream", "overwrite", "update", "delete", "merge")


def classify(error: Exception) -> str:
    return dml_adapter.classify(error)


def open(root: str) -> "ArrowSession":
    return ArrowSession(dml_adapter.open(root).lake)


class ArrowSession(dml_adapter.Session):
    """Appends, overwrites, merges and creations get the rows as Arrow data."""

    def apply(self, name: str, act: Mapping[str, Any]) -> None:
        if act["act"] not in _ROW_ACTS or act.get("via") == "insert":
            super().apply(name, act)
            return
        self.engine, reason = "arrow", "arrow"
        try:
            super().apply(name, act)
        except InvalidArgumentError as error:
            if "Arrow was chosen" not in str(error):
                raise
            reason = str(error)
            self.engine = None
            super().apply(name, act)
        finally:
            self.engine = None
        listed = os.environ.get("CM_DELTA_DML_ENGINES")
        if listed:
            with Path(listed).open("a") as file:
                file.write(f"{act['act']}\t{reason}\n")

    def _rows(self, act: Mapping[str, Any]) -> Any:
        frame = self._frame(act)
        kinds = frame.schema.simpleString()
        return frame if any(kind in kinds for kind in _WITHOUT_ARROW) else frame.toArrow()
