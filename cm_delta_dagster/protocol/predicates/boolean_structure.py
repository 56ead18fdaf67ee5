"""How AND, OR, NOT and brackets combine the operands of a condition's text.

The precedence is that of SQL: NOT before AND before OR. Nothing here recurses, so a text may have ten thousand operands in any
nesting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import TokenType

from cm_delta_dagster.protocol.predicates.normal_forms import MAX_COMPARISONS, too_large
from cm_delta_dagster.protocol.predicates.predicates import And, Not, Or, Predicate
from cm_delta_dagster.protocol.predicates.sql_lexer import Token, closing_positions, invalid_sql

_PRECEDENCE = {TokenType.OR: 1, TokenType.AND: 2, TokenType.NOT: 3}


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: tokens without AND, OR and NOT of the outer structure."""

    tokens: Sequence[Token]


@dataclass(frozen=True, slots=True)
class _Pending:
    """An operator or an opening bracket whose operands are not complete; ``negated``: it is inside of a NOT."""

    kind: TokenType
    negated: bool


class _Structure:
    """Parses one text from left to right with a stack of operators and a stack of operands."""

    def __init__(self, tokens: Sequence[Token], text: str, leaf: Callable[[Operand, bool], Predicate]) -> None:
        self.tokens = tokens
        self.text = text
        self.leaf = leaf
        self.closing = closing_positions(tokens, text)
        self.operators: list[_Pending] = []
        self.operands: list[Predicate] = []
        self.groups: set[int] = set()
        self.num_operands = 0

    def read(self) -> Predicate:
        position = 0
        while position < len(self.tokens):
            position = self._operand(position)
            position = self._after_operand(position)
        self._reduce(0)
        if len(self.operands) != 1:
            raise invalid_sql(self.text, "an operand is missing.")
        return self.operands[0]

    def _negated(self) -> bool:
        return bool(self.operators) and self.operators[-1].negated

    def _operand(self, position: int) -> int:
        """Parse NOTs, opening brackets and one operand; the position after it."""
        while position < len(self.tokens):
            kind = self.tokens[position].token_type
            if kind == TokenType.NOT:
                self.operators.append(_Pending(kind, True))
            elif kind == TokenType.L_PAREN and self._is_group(position):
                self.operators.append(_Pending(kind, self._negated()))
                self.groups.add(self.closing[position])
            else:
                end = self._operand_end(position)
                if end == position:
                    break
                self.num_operands += 1
                if self.num_operands > MAX_COMPARISONS:
                    raise too_large(sum(item.token_type in (TokenType.AND, TokenType.OR) for item in self.tokens) + 1)
                self.operands.append(self.leaf(Operand(self.tokens[position:end]), self._negated()))
                return end
            position += 1
        raise invalid_sql(self.text, "an operand is missing.")

    def _after_operand(self, position: int) -> int:
        """Parse closing brackets and the next AND or OR; the position after it."""
        while position < len(self.tokens):
            kind = self.tokens[position].token_type
            if kind == TokenType.R_PAREN:
                self._reduce(0)
                if not self.operators or self.operators.pop().kind != TokenType.L_PAREN:
                    raise invalid_sql(self.text, "a closing bracket has no opening bracket.")
                position += 1
                continue
            if kind not in (TokenType.AND, TokenType.OR):
                raise invalid_sql(self.text, f"{self.tokens[position].text!r} is not expected there.")
            self._reduce(_PRECEDENCE[kind])
            self.operators.append(_Pending(kind, self._negated()))
            if position + 1 == len(self.tokens):
                raise invalid_sql(self.text, "an operand is missing.")
            return position + 1
        return position

    def _reduce(self, precedence: int) -> None:
        """Apply the operators since the last opening bracket whose precedence is at least ``precedence``."""
        while self.operators and self.operators[-1].kind != TokenType.L_PAREN:
            kind = self.operators[-1].kind
            if _PRECEDENCE[kind] < precedence:
                return
            self.operators.pop()
            if kind == TokenType.NOT:
                self.operands[-1] = Not(self.operands[-1])
                continue
            right = self.operands.pop()
            self.operands[-1] = (And if kind == TokenType.AND else Or)((self.operands[-1], right))

    def _is_group(self, position: int) -> bool:
        """Whether a bracket at the start of an operand encloses a condition, rather than a value or a list."""
        end = self.closing[position]
        following = self.tokens[end + 1].token_type if end + 1 < len(self.tokens) else None
        closes_group = following == TokenType.R_PAREN and end + 1 in self.groups
        if end == position + 1 or not (following in (None, TokenType.AND, TokenType.OR) or closes_group):
            return False
        return not self._begins_list(position + 1, end)

    def _begins_list(self, start: int, end: int) -> bool:
        """Whether a comma comes before the first bracket between two positions."""
        for position in range(start, end):
            if self.tokens[position].token_type == TokenType.COMMA:
                return True
            if position in self.closing:
                return False
        return False

    def _operand_end(self, start: int) -> int:
        cases, betweens, position = 0, 0, start
        while position < len(self.tokens):
            kind = self.tokens[position].token_type
            if position in self.closing:
                position = self.closing[position] + 1
                continue
            if kind == TokenType.CASE:
                cases += 1
            elif kind == TokenType.END and cases:
                cases -= 1
            elif kind == TokenType.BETWEEN and position > start and not cases:
                betweens += 1
            elif kind == TokenType.AND and betweens and not cases:
                betweens -= 1
            elif not cases and kind in (TokenType.AND, TokenType.OR, TokenType.R_PAREN):
                return position
            position += 1
        return position


def boolean_structure(tokens: Sequence[Token], text: str, leaf: Callable[[Operand, bool], Predicate]) -> Predicate:
    """The predicate of a condition that is split into tokens.

    Args:
        tokens: the tokens of ``text``.
        text: the condition, for messages.
        leaf: gives the predicate of an operand; its second argument says whether the operand is inside of a NOT.

    Raises:
        InvalidArgumentError: a bracket or an operand is missing, or there are more than ``MAX_COMPARISONS`` operands.
    """
    return _Structure(tokens, text, leaf).read()
