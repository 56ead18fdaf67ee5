"""Results of statements that read only the catalog and the log: named columns with types of Spark's DDL, and rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rows of a statement. ``columns`` gives the type of each column as DDL text; rows have the same order."""

    columns: Mapping[str, str]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def ddl(self) -> str:
        """The columns as DDL text."""
        return ", ".join(f"`{name}` {type_text}" for name, type_text in self.columns.items())


NOTHING = Answer(columns={}, rows=())
"""The answer of a statement that returns no rows."""
