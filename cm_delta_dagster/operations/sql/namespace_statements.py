"""CREATE and DROP of schemas and catalogs."""

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.answers import NOTHING, Answer
from cm_delta_dagster.operations.sql.column_definitions import properties as properties_of
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.targets import SqlSession
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.operations.tables.namespaces import create_namespace, drop_namespace, names_of

_CATALOG = "CATALOG"


def create_namespace_of(session: SqlSession, statement: Statement) -> Answer:
    """``CREATE SCHEMA [IF NOT EXISTS] catalog.schema [COMMENT 'text'] [WITH DBPROPERTIES (...)]``, the same for a CATALOG.

    Raises:
        NamespaceAlreadyExistsError: it exists, and there is no IF NOT EXISTS.
        InvalidArgumentError: the statement is malformed; the message has the place.
    """
    words = Words(statement, after=1)
    levels = 1 if words.part().upper() == _CATALOG else 2
    if_not_exists = words.takes("IF NOT EXISTS")
    name = ".".join(words.name())
    comment, properties = "", dict[str, str]()
    while not words.is_done():
        if words.take("LOCATION", "MANAGED"):
            raise words.refusal("a location of a schema", "Connect with the warehouse in which its tables are to be.")
        if words.takes("COMMENT"):
            comment = words.string("the comment as a text in quotes")
        elif words.takes("WITH DBPROPERTIES"):
            properties = properties_of(words)
        else:
            raise words.fault("COMMENT, WITH DBPROPERTIES or the end of the statement")
    create_namespace(
        session.client, name, levels=levels, comment=comment, properties=properties, if_not_exists=if_not_exists
    )
    return NOTHING


def drop_namespace_of(session: SqlSession, statement: Statement) -> Answer:
    """``DROP SCHEMA [IF EXISTS] catalog.schema [RESTRICT]``, the same for a CATALOG. It must be empty.

    Raises:
        NamespaceNotFoundError: it does not exist, and there is no IF EXISTS.
        NamespaceNotEmptyError: it has tables or schemas.
        InvalidArgumentError: the statement is malformed, or has CASCADE; the message has the place.
    """
    words = Words(statement, after=1)
    levels = 1 if words.part().upper() == _CATALOG else 2
    if_exists = words.takes("IF EXISTS")
    name = ".".join(words.name())
    if words.peek() == "CASCADE":
        raise words.refusal("CASCADE", f"Drop the {'schemas' if levels == 1 else 'tables'} of {name} first.")
    words.take("RESTRICT")
    words.done()
    drop_namespace(session.client, _spelled(session.client, name, levels), levels=levels, if_exists=if_exists)
    return NOTHING


def _spelled(client: DeltaClient, name: str, levels: int) -> str:
    """``name`` as it was created: ignoring case if no catalog or schema has the spelling."""
    names = names_of(client, levels=levels)
    same = [known for known in names if known.lower() == name.lower()]
    if name in names or not same:
        return name
    if len(same) > 1:
        raise InvalidArgumentError(
            f"The name {name} is ambiguous: {', '.join(same)} differ only in upper and lower case. Nothing was changed. Write the "
            "name exactly."
        )
    return same[0]
