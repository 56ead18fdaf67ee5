"""Which columns an SQL expression refers to, and of which side of a join they are.

Serves conditions and values of row changes, which name columns of the target and of the source by their aliases. What is found here
only qualifies names and selects files; the engine resolves and evaluates the expressions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.boolean_structure import Operand, boolean_structure
from cm_delta_dagster.protocol.predicates.predicates import Opaque, Predicate, conjuncts, quote_column, to_sql
from cm_delta_dagster.protocol.predicates.sql_lexer import Token, source_of, tokens_of
from cm_delta_dagster.protocol.schema.types import StructType

_COMPARISONS = frozenset(
    (
        TokenType.EQ,
        TokenType.NULLSAFE_EQ,
        TokenType.NEQ,
        TokenType.LT,
        TokenType.LTE,
        TokenType.GT,
        TokenType.GTE,
    )
)
_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a join: its alias and its columns."""

    alias: str
    schema: StructType

    def has(self, name: str) -> bool:
        return self.schema.field(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """``target = source``, top-level columns as their schemas spell them, joined by AND with the rest of the condition.

    Attributes:
        has_nulls: the operator is ``<=>``, for which NULL equals NULL.
        text: of the comparison.
    """

    target: str
    source: str
    has_nulls: bool = False
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCondition:
    """What follows from the condition of a join for the rows of the target that have a partner.

    Attributes:
        keys: columns that are equal by ``=``.
        null_safe_keys: columns that are equal by ``<=>``.
        on_target: texts of conditions on columns of the target alone, without its alias.
        others: texts of the parts that say something else than that two columns are equal.
    """

    keys: tuple[KeyPair, ...] = ()
    null_safe_keys: tuple[KeyPair, ...] = ()
    on_target: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedValue:
    """A value of the source that a condition compares with a column of the target, at ``start`` to ``end`` of the text.

    Attributes:
        target: path of the column or field, as the condition spells it.
        text: of the value.
        column: name of the top-level column that the value is, as the schema spells it; None for another expression.
    """

    target: tuple[str, ...]
    text: str
    column: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _ColumnOccurrence:
    """A column in a text: its names, and the places where they start; None where the parser does not report them."""

    names: tuple[str, ...]
    starts: tuple[int | None, ...]


def qualified(text: str, side: Side) -> str:
    """The text with the alias of ``side`` before each of its columns that has no alias."""
    written = text
    references = _references(text) or ()
    for reference in sorted(references, key=lambda item: item.starts[0] or 0, reverse=True):
        name, start = reference.names[0], reference.starts[0]
        is_alias = len(reference.names) > 1 and name.lower() == side.alias.lower()
        if start is not None and side.has(name) and not is_alias:
            written = f"{written[:start]}{quote_column((side.alias,))}.{written[start:]}"
    return written


def join_condition(text: str, *, target: Side, source: Side) -> JoinCondition:
    """Analyse the condition of a join. Parts that are not understood are left out.

    Raises:
        InvalidArgumentError: an operand or a bracket is missing, or the text cannot be split into tokens.
    """
    tokens = tokens_of(text)

    def leaf(part: Operand, negated: bool) -> Predicate:
        return Opaque(source_of(part.tokens, text))

    keys: list[KeyPair] = []
    on_target: list[str] = []
    others: list[str] = []
    for part in conjuncts(boolean_structure(tokens, text, leaf)):
        written = to_sql(part)
        pair = _key_pair(written, target, source)
        if pair is not None:
            keys.append(pair)
            continue
        others.append(written)
        stripped = own_text(written, target, source)
        if stripped is not None:
            on_target.append(stripped)
    return JoinCondition(
        keys=tuple(pair for pair in keys if not pair.has_nulls),
        null_safe_keys=tuple(pair for pair in keys if pair.has_nulls),
        on_target=tuple(on_target),
        others=tuple(others),
    )


def compared_values(text: str, *, target: Side, source: Side) -> tuple[ComparedValue, ...]:
    """The values of the source in comparisons ``target column = value``, also with other operators and in other order, in order.

    Raises:
        InvalidArgumentError: as :func:`join_condition`.
    """
    tokens = tokens_of(text)
    values: list[ComparedValue] = []

    def leaf(part: Operand, negated: bool) -> Predicate:
        sides = _compared_sides(part.tokens)
        for column, value in (sides, sides[::-1]) if sides else ():
            path = _target_path(source_of(column, text), target, source)
            pair = None if path is None else _source_value(source_of(value, text), target, source)
            if path is not None and pair is not None:
                written, name = pair
                values.append(
                    ComparedValue(target=path, text=written, column=name, start=value[0].start, end=value[-1].end + 1)
                )
        return Opaque(source_of(part.tokens, text))

    boolean_structure(tokens, text, leaf)
    return tuple(values)


def bare_column(text: str, target: Side, source: Side) -> str | None:
    """The name of the top-level column of the source that ``text`` is, as the schema spells it; None for another expression."""
    column = _column(_without_brackets(_parsed(text)), target, source)
    return None if column is None or column[0] != "source" else column[1]


def _compared_sides(tokens: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token]] | None:
    """What stands on both sides of the only comparison of an operand; None without one."""
    depth, places = 0, []
    for place, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if not depth and token.token_type in _COMPARISONS:
            places.append(place)
    if len(places) != 1 or places[0] in (0, len(tokens) - 1):
        return None
    return tokens[: places[0]], tokens[places[0] + 1 :]


def _target_path(text: str, target: Side, source: Side) -> tuple[str, ...] | None:
    node = _without_brackets(_parsed(text))
    if not isinstance(node, exp.Column):
        return None
    side, path = resolved_side(tuple(part.name for part in node.parts), target, source)
    return path if side == "target" else None


def _source_value(text: str, target: Side, source: Side) -> tuple[str, str | None] | None:
    """The text of an expression over the source, and the name of its column if it is one; None for another expression."""
    node = _parsed(text)
    if node is None or node.find(exp.Query, exp.Lambda) is not None:
        return None
    references = tuple(_occurrences(node))
    if not references or any(resolved_side(reference.names, target, source)[0] != "source" for reference in references):
        return None
    column = _column(_without_brackets(node), target, source)
    return text, None if column is None else column[1]


def _without_brackets(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _key_pair(text: str, target: Side, source: Side) -> KeyPair | None:
    node = _without_brackets(_parsed(text))
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return None
    ends = [_column(end, target, source) for end in (node.this, node.expression)]
    names_by_side = dict(end for end in ends if end is not None)
    if len(names_by_side) < len(ends):
        return None
    has_nulls = isinstance(node, exp.NullSafeEQ)
    return KeyPair(target=names_by_side["target"], source=names_by_side["source"], has_nulls=has_nulls, text=text)


def _column(node: Any, target: Side, source: Side) -> tuple[str, str] | None:
    """The side of a bare top-level column, and its name as the schema spells it."""
    if not isinstance(node, exp.Column):
        return None
    names = tuple(part.name for part in node.parts)
    side, path = resolved_side(names, target, source)
    item = None if side is None or len(path) != 1 else (target if side == "target" else source).schema.field(path[0])
    return None if side is None or item is None else (side, item.name)


def resolved_side(names: tuple[str, ...], target: Side, source: Side) -> tuple[str | None, tuple[str, ...]]:
    """The side that a column belongs to and its path without alias; None if it is unknown or ambiguous."""
    first = names[0].lower()
    if len(names) > 1 and first in (target.alias.lower(), source.alias.lower()):
        return ("target" if first == target.alias.lower() else "source"), names[1:]
    sides = [name for name, side in (("target", target), ("source", source)) if side.has(names[0])]
    return (sides[0] if len(sides) == 1 else None), names


def own_text(text: str, target: Side, source: Side) -> str | None:
    """The text without the alias of the target; None unless all its columns are known to be of the target."""
    references = _references(text)
    if references is None:
        return None
    cuts: list[tuple[int, int]] = []
    for reference in references:
        side, path = resolved_side(reference.names, target, source)
        if side != "target":
            return None
        if len(path) < len(reference.names):
            start, end = reference.starts[0], reference.starts[1]
            if start is None or end is None:
                return None
            cuts.append((start, end))
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return text


def columns_named(text: str) -> Sequence[tuple[str, ...]]:
    """The parts of the names of the columns in a text; none if the text is not understood."""
    return [reference.names for reference in _references(text) or ()]


def _references(text: str) -> Sequence[_ColumnOccurrence] | None:
    """The columns of a text; None if the text is not understood."""
    node = _parsed(text)
    return None if node is None else tuple(_occurrences(node))


def _occurrences(node: Any) -> Iterator[_ColumnOccurrence]:
    for column in node.find_all(exp.Column):
        parts = column.parts
        while isinstance(column.parent, exp.Dot) and column is column.parent.this:
            column = column.parent  # Names beyond the fourth.
        yield _ColumnOccurrence(
            names=tuple(part.name for part in parts), starts=tuple(part.meta.get("start") for part in parts)
        )


def _parsed(text: str) -> Any:
    try:
        statements = Dialect.get_or_raise("spark").parser().parse(tokens_of(text), text)
    except (SqlglotError, InvalidArgumentError, RecursionError):
        return None
    return statements[0] if len(statements) == 1 else None
