"""Queries in brackets in the conditions and values of UPDATE, DELETE and MERGE.

A condition has none: it is evaluated several times, and conflict detection compares it with the rows of concurrent commits. A
value may be a query that returns one value and names no column of the table; it is computed before the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.consistent_snapshots import ReadableVersion
from cm_delta_dagster.operations.sql.names import Name
from cm_delta_dagster.operations.sql.queries import PreparedQuery, prepare_query
from cm_delta_dagster.operations.sql.targets import SqlSession
from cm_delta_dagster.protocol.predicates.sql_lexer import lexemes
from cm_delta_dagster.protocol.predicates.sql_strings import literal_text
from cm_delta_dagster.spark.library import Column, F, T
from cm_delta_dagster.spark.session.errors import spark_errors

_QUERIES = frozenset(("SELECT", "WITH", "VALUES", "FROM", "TABLE"))
_OF_ROWS = frozenset(("IN", "EXISTS", "ANY", "SOME", "ALL"))
_INSTEAD = (
    "Use MERGE with the query as its source: MERGE INTO name USING (query) s ON name.key = s.key WHEN MATCHED THEN DELETE, or "
    "UPDATE SET column = s.value."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subquery:
    """A query with its brackets, ``end`` exclusive. ``of_rows`` if it follows IN or EXISTS."""

    start: int
    end: int
    of_rows: bool


def _places(text: str) -> list[_Subquery]:
    all_lexemes = lexemes(text)
    places: list[_Subquery] = []
    for position, lexeme in enumerate(all_lexemes[:-1]):
        is_inner = bool(places) and lexeme.start < places[-1].end
        if is_inner or lexeme.symbol != "(" or all_lexemes[position + 1].word not in _QUERIES:
            continue
        if position + 2 < len(all_lexemes) and all_lexemes[position + 2].symbol in (",", ")", ".", "="):
            continue  # A column of that name.
        depth = 0
        for last in all_lexemes[position:]:
            depth += (last.symbol == "(") - (last.symbol == ")")
            if depth == 0:
                break
        before = all_lexemes[position - 1].word if position else ""
        places.append(_Subquery(start=lexeme.start, end=last.end, of_rows=before in _OF_ROWS))
    return places


def refuse_queries(text: str | None, *, what: str) -> None:
    """Refuse a query in a condition.

    Args:
        what: the condition, for the message, such as "The condition of DELETE".

    Raises:
        InvalidArgumentError: the text contains a query in brackets.
    """
    if text is not None and _places(text):
        raise InvalidArgumentError(f"{what} contains a query: {text}. Nothing was changed. {_INSTEAD}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarQueries:
    """The queries in the values of a statement.

    Attributes:
        texts: the values.
        query: returns one row with the value of each query and its form as text; None without queries.
    """

    texts: tuple[str, ...]
    query: PreparedQuery | None

    @classmethod
    def of(cls, texts: Sequence[str]) -> ScalarQueries:
        """Find the queries. Raises InvalidArgumentError for one after IN or EXISTS."""
        queries = [(text, place) for text in texts for place in _places(text)]
        for text, place in queries:
            if place.of_rows:
                raise InvalidArgumentError(
                    f"The value {text} contains a query after IN or EXISTS. Nothing was changed. {_INSTEAD}"
                )
        columns = [f"{text[place.start : place.end]} AS q{number}" for number, (text, place) in enumerate(queries)]
        query = prepare_query(f"SELECT {', '.join(columns)}") if columns else None
        return cls(texts=tuple(texts), query=query)

    def values(self, session: SqlSession, tables: Mapping[Name, ReadableVersion]) -> tuple[str, ...]:
        """:attr:`texts` with a literal in place of each query.

        Raises:
            InvalidArgumentError: a query returns several rows, names a column of the table, or has a nested value.
        """
        if self.query is None:
            return self.texts
        frame = self.query.run(session.client, tables, spark=session.spark)
        for item in frame.schema.fields:
            if isinstance(item.dataType, T.StructType | T.ArrayType | T.MapType | T.VariantType):
                raise InvalidArgumentError(
                    f"A query in a value returns {item.dataType.simpleString()}. Nothing was changed. It can return a number, a "
                    f"text, a time, a Boolean or bytes. {_INSTEAD}"
                )
        with spark_errors("computing the queries in the values"):
            row = frame.select([_as_text(item).alias(item.name) for item in frame.schema.fields]).first()
        assert row is not None
        literals = [_literal(item.dataType, row[item.name]) for item in frame.schema.fields]
        written = []
        for text in self.texts:
            places = _places(text)
            mine, literals = literals[: len(places)], literals[len(places) :]
            for place, value in zip(reversed(places), reversed(mine), strict=True):
                text = text[: place.start] + value + text[place.end :]
            written.append(text)
        return tuple(written)


def _as_text(item: T.StructField) -> Column:
    column = F.col(item.name)
    match item.dataType:
        case T.TimestampType():
            column = F.expr(f"unix_micros({item.name})")
        case T.BinaryType():
            column = F.hex(column)
    return column.cast("string")


def _literal(kind: T.DataType, text: str | None) -> str:
    if text is None:
        return f"CAST(NULL AS {kind.simpleString()})"
    match kind:
        case T.TimestampType():
            return f"timestamp_micros({text})"
        case T.BinaryType():
            return f"X'{text}'"
        case _:
            return f"CAST({literal_text(text)} AS {kind.simpleString()})"
