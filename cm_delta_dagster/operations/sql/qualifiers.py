"""Names of columns with the name or the alias of their table before them."""

from collections.abc import Mapping, Sequence

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.sql.rewriting import Replacement, column_replacements, qualifier_length
from cm_delta_dagster.operations.sql.table_references import ColumnReference, find_references
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.schema.types import StructType

_BEFORE = "SELECT "


class TableQualifiers:
    """The ways in which a statement may name the one table whose columns it uses.

    Args:
        alias: the alias that the statement gives it; its name is then not used.
    """

    def __init__(self, identifier: TableIdentifier, alias: str | None, schema: StructType) -> None:
        self._name = (identifier.catalog, identifier.schema, identifier.table)
        self._alias = alias
        self._schema = schema

    @property
    def alias(self) -> str:
        """The alias, or the last part of the name."""
        return self._alias or self._name[2]

    def column(self, parts: Sequence[str]) -> str:
        """A column or field without the name of the table, even if the table lacks the column."""
        length = self._length(parts)
        if not length and self._schema.field(parts[0]) is None:
            length = max((length for length in self._lengths(parts) if length < len(parts)), default=0)
        return path_text(parts[length:])

    def expression(self, text: str) -> str:
        """An expression whose columns have no table before them."""
        replaced = []
        for column in _columns(text):
            length = self._length(column.parts)
            if length:
                end = text.index(".", column.ends[length - 1] - len(_BEFORE)) + 1
                replaced.append(Replacement(start=column.start - len(_BEFORE), end=end))
        return _with(text, replaced)

    def _length(self, parts: Sequence[str]) -> int:
        """How many parts before a column of the table name the table."""
        lengths = (length for length in self._lengths(parts) if length < len(parts))
        return max((length for length in lengths if self._schema.field(parts[length]) is not None), default=0)

    def _lengths(self, parts: Sequence[str]) -> list[int]:
        lengths = [1] if parts[0].lower() == self.alias.lower() else []
        if self._alias is None:
            lengths.append(qualifier_length(ColumnReference(parts=tuple(parts), start=0, ends=()), self._name))
        return lengths


def with_aliases(text: str, aliases: Mapping[tuple[str, str, str], str]) -> str:
    """An expression with the alias in place of ``catalog.schema.table`` and ``schema.table`` before columns."""
    replacements = column_replacements(_columns(text), aliases)
    return _with(
        text,
        [
            Replacement(
                start=replacement.start - len(_BEFORE), end=replacement.end - len(_BEFORE), before=replacement.before
            )
            for replacement in replacements
        ],
    )


def _columns(text: str) -> Sequence[ColumnReference]:
    return find_references(_BEFORE + text).columns


def _with(text: str, replacements: Sequence[Replacement]) -> str:
    written: list[str] = []
    done = 0
    for replacement in sorted(replacements, key=lambda replacement: replacement.start):
        written += (text[done : replacement.start], replacement.before)
        done = replacement.end
    return "".join((*written, text[done:]))
