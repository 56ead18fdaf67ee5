"""The keyword DEFAULT as a value in the VALUES or the SELECT list of an INSERT."""

from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.lexemes import Lexeme
from cm_delta_dagster.operations.sql.rewriting import Replacement
from cm_delta_dagster.operations.sql.words import Span
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.expressions import checked_text
from cm_delta_dagster.protocol.features.generated_columns import check_no_default
from cm_delta_dagster.protocol.features.identity_columns import identity_columns
from cm_delta_dagster.protocol.schema.types import StructField, StructType, data_type_text

_AFTER_LIST = frozenset(
    ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT", "UNION", "EXCEPT", "MINUS", "INTERSECT", "LATERAL")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutDefault:
    """A query in which no value is DEFAULT.

    Attributes:
        text: of the query.
        computed: positions of identity columns, which the table computes for every row; the query has NULL there.
    """

    text: str
    computed: frozenset[int] = frozenset()


def without_default(query: Span, fields: Sequence[StructField], schema: StructType) -> WithoutDefault:
    """The query with the default of the column, or NULL, in place of each DEFAULT.

    Args:
        fields: the columns that get the values, in order.

    Raises:
        InvalidArgumentError: DEFAULT for a generated column, or for an identity column in some of the rows.
    """
    if not any(lexeme.word == "DEFAULT" for lexeme in query.lexemes):
        return WithoutDefault(text=query.text)
    rows = _rows(query.lexemes)
    replaced: list[Replacement] = []
    computed: dict[int, int] = {}
    for row in rows:
        for position, item in enumerate(row[: len(fields)]):
            if [lexeme.word for lexeme in item] != ["DEFAULT"]:
                continue
            field = fields[position]
            check_no_default(schema, field.name)
            if field.name in identity_columns(schema):
                computed[position] = computed.get(position, 0) + 1
            start = item[0].start - query.start
            replaced.append(Replacement(start=start, end=start + len("DEFAULT"), before=_text(field)))
    for position, count in computed.items():
        if count != len(rows):
            raise InvalidArgumentError(
                f"The identity column {fields[position].name!r} is DEFAULT in {count} of {len(rows)} rows. "
                "Nothing was written. Write DEFAULT in every row, or insert the other rows with another statement."
            )
    return WithoutDefault(text=_with(query.text, replaced), computed=frozenset(computed))


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
    for one in sorted(replacements, key=lambda one: -one.start):
        text = text[: one.start] + one.before + text[one.end :]
    return text
