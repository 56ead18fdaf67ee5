"""The keyword DEFAULT as a value in the VALUES or the SELECT list of an INSERT."""

from collections.abc import Sequence

from cm_delta_dagster.operations.sql.rewriting import Replacement
from cm_delta_dagster.operations.sql.words import Span
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.expressions import checked_text
from cm_delta_dagster.protocol.features.generated_columns import check_no_default
from cm_delta_dagster.protocol.predicates.sql_lexer import Lexeme
from cm_delta_dagster.protocol.schema.types import StructField, StructType, data_type_text

_AFTER_LIST = frozenset(
    ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT", "UNION", "EXCEPT", "MINUS", "INTERSECT", "LATERAL")
)


def without_default(query: Span, fields: Sequence[StructField], schema: StructType) -> str:
    """The query with the default of the column, or NULL, in place of each DEFAULT.

    An identity column has no default: NULL stands for DEFAULT, as in delta-spark, so that a column that is always generated is
    refused like any other value given for it.

    Args:
        fields: the columns that get the values, in order.

    Raises:
        InvalidArgumentError: DEFAULT for a generated column.
    """
    if not any(lexeme.word == "DEFAULT" for lexeme in query.lexemes):
        return query.text
    replaced: list[Replacement] = []
    for row in _rows(query.lexemes):
        for field, item in zip(fields, row, strict=False):
            if [lexeme.word for lexeme in item] != ["DEFAULT"]:
                continue
            check_no_default(schema, field.name)
            start = item[0].start - query.start
            replaced.append(Replacement(start=start, end=start + len("DEFAULT"), before=_text(field)))
    return _with(query.text, replaced)


def _text(field: StructField) -> str:
    default = default_of(field)
    if default is None:
        return "NULL"
    declared = data_type_text(field.type)
    text = f"({checked_text(default)})"
    return text if declared.startswith(("struct", "array", "map", "variant")) else f"CAST({text} AS {declared})"


def _rows(lexemes: Sequence[Lexeme]) -> list[list[list[Lexeme]]]:
    """The values of each row of VALUES, or of the list of SELECT: one row. Empty for other queries."""
    match lexemes[0].word:
        case "VALUES":
            rows = [_unwrapped(row) for row in _items(lexemes[1:])]
            return [_items(row[1:-1]) if row and row[0].symbol == "(" else [row] for row in rows]
        case "SELECT":
            return [_items(lexemes[1:])]
        case _:
            return []


def _unwrapped(row: list[Lexeme]) -> list[Lexeme]:
    """A row without what follows its closing bracket, such as the alias of the whole list."""
    depth = 0
    for position, lexeme in enumerate(row):
        depth += (lexeme.symbol == "(") - (lexeme.symbol == ")")
        if depth == 0 and lexeme.symbol == ")" and row[0].symbol == "(":
            return row[: position + 1]
    return row


def _items(lexemes: Sequence[Lexeme]) -> list[list[Lexeme]]:
    """The parts between commas outside of brackets, up to the clause after a list."""
    items: list[list[Lexeme]] = [[]]
    depth = 0
    for lexeme in lexemes:
        if depth == 0 and lexeme.word in _AFTER_LIST:
            break
        depth += (lexeme.symbol in ("(", "[")) - (lexeme.symbol in (")", "]"))
        if lexeme.symbol == "," and depth == 0:
            items.append([])
        else:
            items[-1].append(lexeme)
    return items


def _with(text: str, replacements: Sequence[Replacement]) -> str:
    for replacement in sorted(replacements, key=lambda replacement: -replacement.start):
        text = text[: replacement.start] + replacement.before + text[replacement.end :]
    return text
