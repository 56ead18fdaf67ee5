"""Comparisons that are operands of comparisons in SQL texts (protocol heading "CHECK Constraints")."""

from collections.abc import Sequence
from itertools import pairwise

from sqlglot import TokenType

from cm_delta_dagster.protocol.predicates.sql_lexer import Token

_OPERATORS = frozenset(
    (
        *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.NULLSAFE_EQ),
        *(TokenType.IN, TokenType.BETWEEN, TokenType.IS, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE),
    )
)
"""Operators that Spark and the parser do not bind alike if one is an operand of another without brackets."""
_OPENING = (TokenType.L_PAREN, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.END)
_SEPARATORS = (TokenType.OR, TokenType.COMMA, TokenType.WHEN, TokenType.THEN, TokenType.ELSE)


def has_chain(tokens: Sequence[Token]) -> bool:
    """Whether a comparison is an operand of another one without brackets, as in ``a = b < c`` and ``a = NOT b``."""
    counts, open_betweens = [0], [0]
    for before, token in pairwise([None, *tokens]):
        kind = token.token_type
        if kind in _OPENING:
            counts.append(0)
            open_betweens.append(0)
        elif kind in _CLOSING and len(counts) > 1:
            counts.pop()
            open_betweens.pop()
        elif kind is TokenType.AND and open_betweens[-1]:
            open_betweens[-1] -= 1
        elif kind is TokenType.AND or kind in _SEPARATORS:
            counts[-1] = 0
        elif kind is TokenType.NOT and before is not None and before.token_type in _OPERATORS - {TokenType.IS}:
            return True
        elif kind in _OPERATORS:
            counts[-1] += 1
            open_betweens[-1] += kind is TokenType.BETWEEN
            if counts[-1] > 1:
                return True
    return False
