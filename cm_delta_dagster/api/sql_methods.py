"""The method of a connection that runs SQL statements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.descriptions import describe, read_description
from cm_delta_dagster.operations.sql.listings import show
from cm_delta_dagster.operations.sql.queries import StatementArguments, run_query
from cm_delta_dagster.operations.sql.remedy_words import errors_in_sql
from cm_delta_dagster.operations.sql.statements import Family, Statement, read_statement
from cm_delta_dagster.operations.sql.writers import WRITERS, run_writer


class SqlMethods(ClientSession):
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`."""

    def sql(self, statement: str, args: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """Run a statement of Spark SQL in which tables of the catalog have three-part names.

        Queries, EXPLAIN, DESCRIBE and SHOW read. INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, ALTER TABLE, DROP TABLE, OPTIMIZE,
        VACUUM, RESTORE and others write; they run at this call, by the operation of the method of that name, and return the rows
        that delta-spark returns.

        All tables of a statement are read at versions that were the latest ones at one moment, unless the statement names a
        version or time. Other names are those of tables and views of the Spark session; a name that both have is the catalog's.

        Args:
            statement: one statement, e.g. ``SELECT * FROM main.sales.orders VERSION AS OF 3 WHERE amount > :least``.
            args: values of parameters, as in ``SparkSession.sql``: a mapping for ``:name``, a sequence for ``?``.

        Raises:
            TableNotFoundError: neither the catalog nor the session has the name; the message has similar names.
            VersionNotFoundError: the table has no such version, or none at that time.
            InvalidArgumentError: the text cannot be parsed or resolved, or the statement is not supported; the message has the
                place, or what to use.
            CmDeltaError: a statement that writes raises what the method raises.
        """
        with errors_in_sql():
            read = read_statement(statement)
            return _RUNNERS[read.family](self, read, args)


def _query(lake: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    return run_query(lake.client, statement.text, spark=lake.spark, args=args)


def _describe(lake: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    description = read_description(statement)
    if description is None:
        return _query(lake, statement, args)
    answer = describe(lake.client, description)
    if answer is not None:
        return _frame(lake, answer)
    return run_query(lake.client, statement.text, spark=lake.spark, args=args, described=description.name)


def _show(lake: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    return _frame(lake, show(lake.client, statement))


def _frame(lake: ClientSession, answer: Answer) -> DataFrame:
    if not answer.columns:
        return lake.spark.createDataFrame([], T.StructType([]))
    return lake.spark.createDataFrame(list(answer.rows), answer.ddl)


def _write(lake: ClientSession, statement: Statement, args: StatementArguments) -> DataFrame:
    return _frame(lake, run_writer(lake, statement, args))


_RUNNERS: Mapping[Family, Callable[[ClientSession, Statement, StatementArguments], DataFrame]] = {
    Family.QUERY: _query,
    Family.DESCRIBE: _describe,
    Family.SHOW: _show,
    **dict.fromkeys(WRITERS, _write),
}
"""How the statements of each family run."""
