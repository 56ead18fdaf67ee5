"""Conditions of a merge with clauses compare the values of the source as the table will store them.

Spark compares ``t.price = s.price`` in a type that holds both values. If the merge stores ``s.price`` rounded in ``price``, the
next merge of the same row would not find it and insert it again. Therefore a value that a clause stores in the column with which
it is compared is converted as it will be stored. Any text that is compared with a ``char(n)`` column is filled with blanks, as
Spark does with a literal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction
from cm_delta_dagster.protocol.predicates.predicates import column_path
from cm_delta_dagster.protocol.predicates.references import (
    ComparedValue,
    Side,
    bare_column,
    compared_values,
    qualified,
)
from cm_delta_dagster.protocol.schema.char_types import CharWidths, char_width, char_widths
from cm_delta_dagster.protocol.schema.evolution import fits
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    INTEGERS,
    STRING,
    DataType,
    StructField,
)
from cm_delta_dagster.spark.expressions.conditions import column_text
from cm_delta_dagster.spark.expressions.partition_text import stored_sql
from cm_delta_dagster.spark.expressions.schema import sql_type


@dataclass(frozen=True, slots=True)
class StoredComparisons:
    """Rewrites conditions of ``change`` over the columns of ``target`` and ``source``."""

    change: RowChange
    target: Side
    source: Side
    partition_columns: Sequence[str]

    def condition(self, text: str) -> str:
        """``text``, with the values of the source as they will be stored; unchanged if they stay as they are."""
        try:
            values = compared_values(text, target=self.target, source=self.source)
        except InvalidArgumentError:
            return text  # Only Spark understands it.
        for value in sorted(values, key=lambda compared: compared.start, reverse=True):
            written = self._as_stored(value)
            if written != value.text:
                text = f"{text[: value.start]}{written}{text[value.end :]}"
        return text

    def _as_stored(self, value: ComparedValue) -> str:
        item = self.target.schema.field(value.target[0])
        if item is None:
            return value.text
        have = None if value.column is None else self.source.schema.field(value.column)
        text = value.text
        is_stored = len(value.target) == 1 and any(self._stores(clause, item, value) for clause in self.change.clauses)
        if is_stored:
            text = _converted(text, None if have is None else have.type, item.type)
        width = _width(char_widths(item), value.target[1:])
        if width and (have is None or (have.type == STRING and char_width(have) <= width)):
            text = text if have is not None else f"CAST({text} AS STRING)"
            text = f"CASE WHEN char_length({text}) < {width} THEN rpad({text}, {width}, ' ') ELSE {text} END"
        if is_stored and item.name in stored_as_null(self.target.schema, self.partition_columns):
            text = stored_sql(text, item.type)
        return text if text == value.text else f"({text})"

    def _stores(self, clause: RowClause, item: StructField, value: ComparedValue) -> bool:
        """Whether the clause stores ``value`` in the column ``item``."""
        if clause.action is ClauseAction.DELETE:
            return False
        if clause.assignments is None:
            return value.column is not None and item.name.lower() == value.column.lower()
        assigned = [text for name, text in clause.assignments.items() if self._is_column(name, item)]
        texts = [text if isinstance(text, str) else column_text(text) for text in assigned]
        return any(self._is_value(text, value, clause.action) for text in texts if text is not None)

    def _is_column(self, name: str, item: StructField) -> bool:
        path = column_path(name)
        path = path[1:] if len(path) > 1 and path[0].lower() == self.target.alias.lower() else path
        return [part.lower() for part in path] == [item.name.lower()]

    def _is_value(self, text: str, value: ComparedValue, action: ClauseAction) -> bool:
        if value.column is None:
            return text.split() == value.text.split()
        # The values of an insert need no alias.
        text = qualified(text, self.source) if action is ClauseAction.INSERT else text
        return bare_column(text, self.target, self.source) == value.column


def _converted(text: str, have: DataType | None, want: DataType) -> str:
    """The value as the column stores it, NULL if it cannot; unchanged where Spark's comparison of both types is equal to that.

    Args:
        have: type of the value; None if it is not known.
    """
    if want in (STRING, BINARY) or have == want:
        return text
    if have is not None and (fits(have, want) or (have in INTEGERS and want in INTEGERS)):
        return text
    cast = "CAST" if have == STRING else "TRY_CAST"  # Spark refuses a malformed text that is compared with a number.
    return f"{cast}({text} AS {sql_type(want)})"


def _width(widths: CharWidths | None, inner: Sequence[str]) -> int:
    for name in inner:
        widths = None if widths is None else widths.of(name)
    return 0 if widths is None else widths.width
