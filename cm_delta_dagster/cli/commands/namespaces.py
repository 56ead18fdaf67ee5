"""Commands of ``cm-delta`` for schemas, and of ``cm-delta settings`` for catalogs."""

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.printer import output, show, show_records
from cm_delta_dagster.operations.tables.namespaces import create_namespace, drop_namespace, schemas_of

_comment = click.option("--comment", default="", help="Description.")
_if_not_exists = click.option("--if-not-exists", is_flag=True, help="Do nothing if it exists.")
_if_exists = click.option("--if-exists", is_flag=True, help="Do nothing if it does not exist.")
_namespaces = output("an array with the attributes of each Namespace")
_name = output("an object: name")
_COLUMNS = "name created_ms created_by comment"


@click.command("list-catalogs")
@_namespaces
def list_catalogs() -> None:
    """List the catalogs."""
    with open_client() as client:
        show_records(client.namespaces.list_catalogs(), _COLUMNS, empty="There is no catalog.")


@click.command("create-catalog")
@click.argument("name")
@_comment
@_if_not_exists
@_name
def create_catalog(name: str, comment: str, if_not_exists: bool) -> None:
    """Create the catalog NAME, without schemas."""
    with open_client() as client:
        create_namespace(client, name, levels=1, comment=comment, if_not_exists=if_not_exists)
    show({"name": name}, f"The catalog {name} exists.")


@click.command("drop-catalog")
@click.argument("name")
@_if_exists
@_name
def drop_catalog(name: str, if_exists: bool) -> None:
    """Drop the catalog NAME, which must have no schemas."""
    with open_client() as client:
        drop_namespace(client, name, levels=1, if_exists=if_exists)
    show({"name": name}, f"The catalog {name} does not exist any more.")


@click.group(invoke_without_command=True)
@click.option("--in", "catalog", default="", metavar="CATALOG", help="Only the schemas of this catalog.")
@_namespaces
@click.pass_context
def schemas(context: click.Context, catalog: str) -> None:
    """List the schemas, or create and drop them."""
    if context.invoked_subcommand is None:
        with open_client() as client:
            show_records(schemas_of(client, catalog), _COLUMNS, empty="There is no schema.")


@schemas.command("create")
@click.argument("name")
@_comment
@_if_not_exists
@_name
def create_schema(name: str, comment: str, if_not_exists: bool) -> None:
    """Create the schema NAME (catalog.schema), without tables; a missing catalog is created."""
    with open_client() as client:
        create_namespace(client, name, levels=2, comment=comment, if_not_exists=if_not_exists)
    show({"name": name}, f"The schema {name} exists.")


@schemas.command("drop")
@click.argument("name")
@_if_exists
@_name
def drop_schema(name: str, if_exists: bool) -> None:
    """Drop the schema NAME (catalog.schema), which must have no tables. Its dropped tables can still be restored."""
    with open_client() as client:
        drop_namespace(client, name, levels=2, if_exists=if_exists)
    show({"name": name}, f"The schema {name} does not exist any more.")
