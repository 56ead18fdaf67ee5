"""The runner of the SQL statements of a connection."""

from collections.abc import Callable, Mapping

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.descriptions import describe, read_description
from cm_delta_dagster.operations.sql.listings import show
from cm_delta_dagster.operations.sql.queries import StatementArguments, run_query
from cm_delta_dagster.operations.sql.remedy_words import errors_in_sql
from cm_delta_dagster.operations.sql.statements import Family, Statement, read_statement
from cm_delta_dagster.operations.sql.writers import WRITERS, run_writer
from cm_delta_dagster.spark.library import DataFrame, T


def run_sql(session: ClientSession, statement: str, args: StatementArguments) -> DataFrame:
    """The rows of one statement. Raises as :meth:`~cm_delta_dagster.api.connection.connection.Connection.sql`."""
    with errors_in_sql():
        read = read_statement(statement)
        return _RUNNERS[read.family](session, read, args)


def _query(session: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    return run_query(session.client, statement.text, spark=session.spark, args=args)


def _describe(session: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    description = read_description(statement)
    if description is None:
        return _query(session, statement, args)
    answer = describe(session.client, description)
    if answer is not None:
        return _frame(session, answer)
    return run_query(session.client, statement.text, spark=session.spark, args=args, described=description.name)


def _show(session: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    return _frame(session, show(session.client, statement))


def _frame(session: ClientSession, answer: Answer) -> DataFrame:
    if not answer.columns:
        return session.spark.createDataFrame([], T.StructType([]))
    return session.spark.createDataFrame(list(answer.rows), answer.ddl)


def _write(session: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    return _frame(session, run_writer(session, statement, args))


_RUNNERS: Mapping[Family, Callable[[ClientSession, Statement, StatementArguments], DataFrame]] = {
    Family.QUERY: _query,
    Family.DESCRIBE: _describe,
    Family.SHOW: _show,
    **dict.fromkeys(WRITERS, _write),
}
"""How the statements of each family run."""
