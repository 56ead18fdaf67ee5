"""The statements that write, and the function that runs each."""

from collections.abc import Callable, Mapping

from cm_delta_dagster.operations.sql.alter_statements import alter, comment
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.catalog_statements import drop, undrop
from cm_delta_dagster.operations.sql.create_statements import create
from cm_delta_dagster.operations.sql.insert_statements import insert
from cm_delta_dagster.operations.sql.maintenance_statements import optimize, reorg, restore, vacuum
from cm_delta_dagster.operations.sql.merge_statements import merge
from cm_delta_dagster.operations.sql.namespace_statements import create_namespace_of, drop_namespace_of
from cm_delta_dagster.operations.sql.parameters import with_values
from cm_delta_dagster.operations.sql.queries import StatementArguments
from cm_delta_dagster.operations.sql.row_statements import delete, truncate, update
from cm_delta_dagster.operations.sql.statements import Family, Statement, read_statement
from cm_delta_dagster.operations.sql.targets import SqlSession

WRITERS: Mapping[Family, Callable[[SqlSession, Statement], Answer]] = {
    Family.INSERT: insert,
    Family.UPDATE: update,
    Family.DELETE: delete,
    Family.MERGE: merge,
    Family.TRUNCATE: truncate,
    Family.CREATE: create,
    Family.ALTER: alter,
    Family.COMMENT: comment,
    Family.DROP: drop,
    Family.CREATE_NAMESPACE: create_namespace_of,
    Family.DROP_NAMESPACE: drop_namespace_of,
    Family.UNDROP: undrop,
    Family.OPTIMIZE: optimize,
    Family.REORG: reorg,
    Family.VACUUM: vacuum,
    Family.RESTORE: restore,
}


def run_writer(session: SqlSession, statement: Statement, args: StatementArguments) -> Answer:
    """Run a statement that writes, with a literal in place of each parameter.

    Raises:
        InvalidArgumentError: the statement is malformed, or a parameter has no value.
        CmDeltaError: as the operation that runs the statement.
    """
    written = statement if args is None else read_statement(with_values(statement.text, args))
    return WRITERS[written.family](session, written)
