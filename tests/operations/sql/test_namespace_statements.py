"""CREATE, DROP and SHOW of schemas and catalogs; ``tests/api/test_sql_writes.py`` runs them as users do."""

import pytest

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)
from cm_delta_dagster.operations.sql.listings import show
from cm_delta_dagster.operations.sql.statements import Family, read_statement
from cm_delta_dagster.operations.sql.writers import run_writer
from tests.contracts.catalog_bench import create


def run(client: DeltaClient, text: str) -> list[str]:
    """The first column of the answer."""
    statement = read_statement(text)
    if statement.family is Family.SHOW:
        return [row[0] for row in show(client, statement).rows]
    return [row[0] for row in run_writer(ClientSession(client), statement, None).rows]


def test_schemas_and_catalogs_are_created_shown_and_dropped(client: DeltaClient) -> None:
    assert run(client, "SHOW SCHEMAS") == [] == run(client, "SHOW CATALOGS")
    run(client, "CREATE SCHEMA main.sales COMMENT 'it''s sales' WITH DBPROPERTIES ('team' = 'x', a.b = 'y')")
    run(client, "create schema if not exists main.sales comment 'another'")
    run(client, "CREATE DATABASE main.`stock`")
    run(client, "CREATE CATALOG empty COMMENT 'nothing yet';")
    create(client.catalog)
    sales, stock = client.namespaces.list_schemas()
    assert (sales.comment, sales.properties) == ("it's sales", {"team": "x", "a.b": "y"}) and stock.comment == ""
    assert run(client, "SHOW CATALOGS") == ["empty", "main"]
    assert run(client, "SHOW SCHEMAS") == ["main.sales", "main.stock"] == run(client, "SHOW DATABASES IN main")
    assert run(client, "SHOW SCHEMAS IN main LIKE 'SA*'") == ["main.sales"]
    assert run(client, "SHOW SCHEMAS IN empty") == [] == run(client, "SHOW TABLES IN main.stock")
    assert run(client, "SHOW CATALOGS LIKE 'e*|x'") == ["empty"]
    for text in ("DROP SCHEMA main.stock RESTRICT", "DROP SCHEMA IF EXISTS main.stock", "DROP CATALOG empty"):
        run(client, text)
    assert run(client, "SHOW SCHEMAS") == ["main.sales"] and run(client, "SHOW CATALOGS") == ["main"]


def test_a_drop_ignores_case_if_no_schema_has_the_spelling(client: DeltaClient) -> None:
    for name in ("main.raw", "main.Sales", "main.sales"):
        client.namespaces.create_namespace(name)
    run(client, "DROP SCHEMA MAIN.RAW")
    with pytest.raises(InvalidArgumentError, match=r"ambiguous: main\.Sales, main\.sales differ only"):
        run(client, "DROP SCHEMA main.SALES")
    run(client, "DROP SCHEMA main.Sales")
    assert run(client, "SHOW SCHEMAS") == ["main.sales"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("CREATE SCHEMA main.sales", NamespaceAlreadyExistsError, "The schema main.sales exists already"),
        ("CREATE CATALOG main", NamespaceAlreadyExistsError, "The catalog main exists already"),
        ("CREATE SCHEMA sales", InvalidArgumentError, "'sales' is not the name of a schema: write catalog.schema"),
        ("CREATE CATALOG main.sales", InvalidArgumentError, "not the name of a catalog"),
        ("CREATE SCHEMA main.a LOCATION 's3://x'", InvalidArgumentError, "does not support a location of a schema"),
        ("CREATE SCHEMA main.a COMMENT", InvalidArgumentError, "needs the comment as a text"),
        ("CREATE SCHEMA main.a RESTRICT", InvalidArgumentError, "needs COMMENT, WITH DBPROPERTIES or the end"),
        ("CREATE SCHEMA main.`a b`", InvalidArgumentError, "cannot be part of a name"),
        ("DROP SCHEMA main.sales", NamespaceNotEmptyError, r"it has main\.sales\.orders\."),
        ("DROP CATALOG main", NamespaceNotEmptyError, r"it has main\.sales\."),
        (
            "DROP SCHEMA main.sales CASCADE",
            InvalidArgumentError,
            "does not support CASCADE .*Drop the tables of main.sales",
        ),
        ("DROP CATALOG main CASCADE", InvalidArgumentError, "Drop the schemas of main first"),
        ("DROP SCHEMA main.salse", NamespaceNotFoundError, r"no schema main\.salse.*Did you mean main\.sales\?"),
        ("DROP SCHEMA main.sales.orders", InvalidArgumentError, "not the name of a schema"),
        ("SHOW SCHEMAS IN mian", NamespaceNotFoundError, r"no catalog mian.*Did you mean main\?"),
        ("SHOW SCHEMAS IN main.sales", InvalidArgumentError, "write catalog"),
    ],
)
def test_a_statement_that_cannot_run_says_why_and_changes_nothing(
    client: DeltaClient, text: str, kind: type[CmDeltaError], message: str
) -> None:
    create(client.catalog)
    before = client.namespaces.list_catalogs(), client.namespaces.list_schemas()
    with pytest.raises(kind, match=f"(?s){message}"):
        run(client, text)
    assert (client.namespaces.list_catalogs(), client.namespaces.list_schemas()) == before
