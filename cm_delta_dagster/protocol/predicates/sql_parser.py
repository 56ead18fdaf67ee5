"""Predicates from SQL text: what a user writes as a condition.

The text is split at AND, OR and NOT here; :mod:`~cm_delta_dagster.protocol.predicates.sql_expressions` translates each operand.
Data skipping uses what is understood; the engine evaluates the rest.
"""

import re
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.boolean_structure import Operand, boolean_structure
from cm_delta_dagster.protocol.predicates.normal_forms import flattened
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.sql_checks import Clock, at_moment, calls_clock, check_closed_text
from cm_delta_dagster.protocol.predicates.sql_expressions import ExpressionReader, Node
from cm_delta_dagster.protocol.predicates.sql_lexer import Token, invalid_sql, shown, source_of, tokens_of
from cm_delta_dagster.protocol.predicates.sql_strings import with_joined_strings
from cm_delta_dagster.protocol.schema.types import StructType


def parse_predicate(
    text: str, schema: StructType, *, clock: Callable[[], Clock] | None = None, zone: tzinfo | None = None
) -> Predicate:
    """The predicate of a condition in Spark SQL over a table of this schema.

    Literals get the type of the column they are compared with. A comparison that is not understood becomes ``Opaque``, joined by
    AND with every predicate that follows from it under all settings of the engine.

    Args:
        text: the condition, without WHERE.
        schema: schema of the table.
        clock: gives the time of ``current_timestamp()`` and similar functions; without it the engine evaluates them.
        zone: time zone of literals that name none; without it the engine evaluates comparisons with them.

    Raises:
        InvalidArgumentError: the text is not an SQL condition, names a column that the table lacks, contains a query, calls
            a function that is not built into Spark, or has too many comparisons.
    """
    tokens = tokens_of(text)
    check_closed_text(tokens, text)
    names = frozenset(name.lower() for name in schema.names)
    if clock is not None and calls_clock(tokens, text, names):
        text = at_moment(text, clock(), names)
        tokens = tokens_of(text)
    parser = Dialect.get_or_raise("spark").parser()

    def leaf(part: Operand, negated: bool) -> Predicate:
        joined = with_joined_strings(part.tokens, text)
        node = _parsed(parser, part.tokens if joined is None else joined, text)
        reader = ExpressionReader(schema=schema, knows_strings=joined is not None, zone=zone)
        return reader.leaf(node, source_of(part.tokens, text), negated=negated)

    try:
        return flattened(boolean_structure(tokens, text, leaf))
    except RecursionError as error:
        raise invalid_sql(text, "an expression in it is nested too deeply.") from error


_NODE_CLASS = re.compile(r" (for|into) <class '[^']*'>")
"""Internal class names in the messages of sqlglot."""


def _parsed(parser: Any, tokens: Sequence[Token], text: str) -> Node:
    written = source_of(tokens, text)
    try:
        statements = parser.parse_into(exp.Condition, list(tokens), text)
    except SqlglotError as error:
        faults = [str(item.get("description") or "") for item in getattr(error, "errors", [])]
        fault = _NODE_CLASS.sub("", next(filter(None, faults), str(error).splitlines()[0])).rstrip(".")
        raise invalid_sql(text, f"{fault} at {shown(written)}.") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Condition):
        raise InvalidArgumentError(
            f"The predicate {shown(text)} is not a single SQL condition. "
            "Write only what would follow WHERE, such as `x > 1`."
        )
    return statements[0]
