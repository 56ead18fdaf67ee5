"""UPDATE, DELETE and TRUNCATE TABLE."""

from collections.abc import Sequence

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.answers import NOTHING, Answer
from cm_delta_dagster.operations.sql.names import Name
from cm_delta_dagster.operations.sql.qualifiers import TableQualifiers
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.subqueries import ScalarQueries, refuse_queries
from cm_delta_dagster.operations.sql.targets import PinnedTable, SqlSession, open_table, open_together
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.operations.writing.delete import delete as delete_rows
from cm_delta_dagster.operations.writing.update import update as update_rows
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult

_AFFECTED = {"num_affected_rows": "bigint"}


def update(session: SqlSession, statement: Statement) -> Answer:
    """``UPDATE name [alias] SET column = value, ... [WHERE condition]``.

    Raises:
        CmDeltaError: as :func:`cm_delta_dagster.operations.writing.update.update`.
    """
    words = Words(statement, after=1)
    name = words.table()
    alias = words.alias("SET")
    words.expect("SET")
    assignments = read_assignments(words, "WHERE")
    where = words.rest("the condition").text if words.takes("WHERE") else None
    words.done()
    refuse_queries(where, what="The condition of UPDATE")
    queries = ScalarQueries.of([text for _, text in assignments])
    table, texts = _opened(session, name, queries)
    names = TableQualifiers(table.identifier, alias, table.snapshot().schema)
    columns = [names.column(parts) for parts, _ in assignments]
    values = unique_values([*zip(columns, map(names.expression, texts), strict=True)])
    condition = None if where is None else names.expression(where)
    result = update_rows(table, spark=lambda: session.spark, assignments=values, where=condition)
    return Answer(columns=_AFFECTED, rows=((counted(result, "numUpdatedRows"),),))


def _opened(session: SqlSession, name: Name, queries: ScalarQueries) -> tuple[Table | PinnedTable, Sequence[str]]:
    """The table, and the values without queries."""
    if queries.query is None:
        return open_table(session, name), queries.texts
    table, tables = open_together(session, name, queries.query)
    return table, queries.values(session, tables)


def delete(session: SqlSession, statement: Statement) -> Answer:
    """``DELETE FROM name [alias] [WHERE condition]``.

    Raises:
        CmDeltaError: as :func:`cm_delta_dagster.operations.writing.delete.delete`.
    """
    words = Words(statement, after=1)
    words.expect("FROM")
    name = words.table()
    alias = words.alias("WHERE")
    where = words.rest("the condition").text if words.takes("WHERE") else "TRUE"
    words.done()
    refuse_queries(where, what="The condition of DELETE")
    table = open_table(session, name)
    condition = TableQualifiers(table.identifier, alias, table.snapshot().schema).expression(where)
    result = delete_rows(table, spark=lambda: session.spark, where=condition)
    return Answer(columns=_AFFECTED, rows=((counted(result, "numDeletedRows"),),))


def truncate(session: SqlSession, statement: Statement) -> Answer:
    """``TRUNCATE TABLE name``: delete all rows."""
    words = Words(statement, after=2)
    name = words.table()
    if words.peek() == "PARTITION":
        raise words.refusal("TRUNCATE TABLE of a partition", "Write DELETE FROM name WHERE condition.")
    words.done()
    delete_rows(open_table(session, name), spark=lambda: session.spark, where="TRUE")
    return NOTHING


def read_assignments(words: Words, *ends: str) -> list[tuple[tuple[str, ...], str]]:
    """``column = value, ...`` as names and texts.

    Args:
        ends: words that come after the values.
    """
    return words.listed(lambda: _assignment(words, ends), brackets=False)


def _assignment(words: Words, ends: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    name = words.name()
    words.bracket("=")
    return name, words.until(",", *ends, what="a value").text


def unique_values(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Values by column. Raises InvalidArgumentError for a column that has two."""
    values: dict[str, str] = {}
    for column, value in pairs:
        if any(column.lower() == other.lower() for other in values):
            raise InvalidArgumentError(
                f"Two values are assigned to {column!r}. Nothing was written. Assign each column once."
            )
        values[column] = value
    return values


def counted(result: WriteResult, metric: str) -> int:
    """A number of rows of a write; -1 if it is not known, because files were removed whole."""
    if result.outcome is WriteOutcome.NOTHING_TO_DO:
        return 0
    return int(result.metrics.get(metric, -1))
