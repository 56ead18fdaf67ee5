"""Statements that DuckDB runs in place of Spark, for the command line: queries in DuckDB's dialect, DESCRIBE and SHOW."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.duckdb.connection import DuckDBConnection
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.descriptions import describe, read_description
from cm_delta_dagster.operations.sql.listings import show
from cm_delta_dagster.operations.sql.names import Name, readable_versions, resolve_readable, unknown_name
from cm_delta_dagster.operations.sql.remedy_words import errors_in_sql
from cm_delta_dagster.operations.sql.statements import Family, Statement, read_statement
from cm_delta_dagster.operations.sql.table_references import find_references
from cm_delta_dagster.remedies import RepeatWithOption


def duckdb_rows(client: DeltaClient, statement: str, *, limit: int) -> pa.Table:
    """At most ``limit`` rows of the statement. DuckDB runs queries; DESCRIBE and SHOW read only the catalog and the log.

    Raises:
        TableNotFoundError: a name that neither the catalog nor DuckDB has; the message has similar names.
        InvalidArgumentError: DuckDB cannot run the text, or it is a statement that writes.
        EngineError: DuckDB is not installed.
    """
    read = read_statement(statement)
    run = _RUNNERS.get(read.family)
    if run is None:
        raise InvalidArgumentError(
            "DuckDB runs only statements that read. Nothing was changed. Run the statement with Spark."
        )
    with errors_in_sql():
        return run(client, read, limit)


def _query(client: DeltaClient, statement: Statement, limit: int) -> pa.Table:
    library = import_engine("duckdb")
    with DuckDBConnection(None, partial(readable_versions, client)) as connection:
        # Otherwise a name that DuckDB does not know is taken for a variable of this program.
        connection.execute("SET python_enable_replacements = false")
        try:
            if len(connection.extract_statements(statement.text)) > 1:
                raise InvalidArgumentError("The SQL text has more than one statement. Run the statements one by one.")
            rows = connection.sql(statement.text)
            return pa.table({}) if rows is None else rows.limit(limit).to_arrow_table()
        except library.Error as error:
            missing = (
                _missing(client, statement.text, str(error)) if isinstance(error, library.CatalogException) else None
            )
            if missing is not None:
                raise unknown_name(client, missing, engine="DuckDB") from error
            raise InvalidArgumentError(
                f"DuckDB cannot run the statement: {error} The dialect of Spark has VERSION AS OF."
            ).with_remedy(RepeatWithOption(option="engine", value="spark")) from error


def _missing(client: DeltaClient, text: str, message: str) -> Name | None:
    """The name in the statement that DuckDB's message is about, if it is one of a table that the catalog does not have."""
    if "Table with name" not in message:
        return None
    names: list[Name] = []
    with suppress(InvalidArgumentError):  # Spark's rules differ from DuckDB's in details.
        names = [table.parts for table in find_references(text).tables if not table.is_shadowed]
    tables = resolve_readable(client, names)
    # DuckDB names the table, with or without its schema.
    return next((name for name in names if name not in tables and name[-1] in message), None)


def _describe(client: DeltaClient, statement: Statement, limit: int) -> pa.Table:
    description = read_description(statement)
    answer = None if description is None else describe(client, description)
    if answer is None:
        raise InvalidArgumentError("The catalog has no such table. Spark can describe a view or a query.").with_remedy(
            RepeatWithOption(option="engine", value="spark")
        )
    return _table(answer, limit)


def _show(client: DeltaClient, statement: Statement, limit: int) -> pa.Table:
    return _table(show(client, statement), limit)


def _table(answer: Answer, limit: int) -> pa.Table:
    rows = answer.rows[:limit]
    return pa.table(
        {
            name: _column([row[at] for row in rows], type_text)
            for at, (name, type_text) in enumerate(answer.columns.items())
        }
    )


def _column(values: list[Any], type_text: str) -> pa.Array:
    """The values of a column with this DDL type. Arrow would take dicts for values of a struct."""
    if type_text != "map<string,string>":
        return pa.array(values)
    return pa.array(
        [None if value is None else list(value.items()) for value in values], pa.map_(pa.string(), pa.string())
    )


_RUNNERS: Mapping[Family, Callable[[DeltaClient, Statement, int], pa.Table]] = {
    Family.QUERY: _query,
    Family.DESCRIBE: _describe,
    Family.SHOW: _show,
}
"""How the statements of each family run."""
