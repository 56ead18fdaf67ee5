"""DROP TABLE and UNDROP TABLE."""

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.operations.sql.answers import NOTHING, Answer
from cm_delta_dagster.operations.sql.names import resolve
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.targets import SqlSession, identifier_of, no_target
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.undrop import undrop_table


def drop(session: SqlSession, statement: Statement) -> Answer:
    """``DROP TABLE [IF EXISTS] name``. The files stay until a purge.

    Raises:
        TableNotFoundError: the catalog has no such table, and there is no IF EXISTS.
    """
    words = Words(statement, after=2)
    if_exists = words.takes("IF EXISTS")
    name = words.table()
    if words.peek() == "PURGE":
        raise words.refusal("PURGE", "Drop the table; a purge of dropped tables deletes its files later.")
    words.done()
    identifier_of(name)
    tables = resolve(session.client, (name,))
    if name in tables:
        table = tables[name].table
        drop_table(session.client, identifier=table.identifier, table_id=table.table_id)
    elif not if_exists:
        raise no_target(session, name)
    return NOTHING


def undrop(session: SqlSession, statement: Statement) -> Answer:
    """``UNDROP TABLE name``, or ``UNDROP TABLE WITH ID 'id'``.

    Raises:
        TableNotFoundError, TableAlreadyExistsError, InvalidArgumentError: as
            :func:`~cm_delta_dagster.operations.tables.undrop.undrop_table`.
    """
    words = Words(statement, after=1)
    words.expect("TABLE")
    if words.takes("WITH ID"):
        table_id = words.string("the id of the table as a text in quotes")
        words.done()
        undrop_table(session.client, identifier=_dropped_name(session.client, table_id), table_id=table_id)
        return NOTHING
    name = identifier_of(words.table())
    words.done()
    undrop_table(session.client, identifier=name)
    return NOTHING


def _dropped_name(client: DeltaClient, table_id: str) -> str:
    for table in client.registry.inactive_tables(""):
        if table.table_id == table_id:
            return str(table.identifier)
    raise TableNotFoundError(f"No dropped table has the id {table_id}: it was never dropped, or it was purged.")
