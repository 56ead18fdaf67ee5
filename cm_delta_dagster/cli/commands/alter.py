"""The commands ``cm-delta alter``, which change the columns, the properties and the features of a table."""

import importlib

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import PROPERTY
from cm_delta_dagster.cli.printer import output, show
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    DropColumns,
    DropFeature,
    EnableFeature,
    NewColumn,
    RenameColumn,
    SetComment,
    SetProperties,
    UnsetProperties,
    position_of,
)

_ENGINES = "cm_delta_dagster.api.command_engines"
_REWRITING = (DropFeature, SetProperties, UnsetProperties)
"""Alterations that may rewrite data files."""
_output = output("an object: name, table_id, version, versions")
_first = click.option("--first", is_flag=True, help="Before the other columns of its level.")
_after = click.option("--after", default=None, metavar="COLUMN", help="After this column of its level.")


@click.group()
def alter() -> None:
    """Change the columns, the properties or the features of a table, by one commit.

    A COLUMN is a name, or a path such as a.b, items.element.x or pairs.value.y.
    """


@alter.command("add-column")
@click.argument("name")
@click.argument("column")
@click.argument("type_text", metavar="TYPE")
@click.option("--comment", default=None, help="What the column holds.")
@_first
@_after
@_output
def add_column(
    name: str,
    column: str,
    type_text: str,
    comment: str | None,
    first: bool,
    after: str | None,
) -> None:
    """Add COLUMN with the SQL type TYPE to the table NAME."""
    _alter(name, AddColumns([NewColumn(column, type_text, comment=comment, first=first, after=after)]))


@alter.command("rename-column")
@click.argument("name")
@click.argument("column")
@click.argument("to")
@_output
def rename_column(name: str, column: str, to: str) -> None:
    """Rename COLUMN of the table NAME to TO."""
    _alter(name, RenameColumn(column, to))


@alter.command("drop-column")
@click.argument("name")
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN...")
@_output
def drop_column(name: str, columns: tuple[str, ...]) -> None:
    """Drop columns of the table NAME; their values stay in the files until these are rewritten."""
    _alter(name, DropColumns(columns))


@alter.command("change-column")
@click.argument("name")
@click.argument("column")
@click.option("--type", "type_text", default=None, help="A wider type.")
@click.option("--comment", default=None, help="What the column holds.")
@click.option("--not-null/--null", "not_null", default=None, help="Forbid or allow NULL.")
@_first
@_after
@_output
def change_column(
    name: str,
    column: str,
    type_text: str | None,
    comment: str | None,
    not_null: bool | None,
    first: bool,
    after: str | None,
) -> None:
    """Change the type, the comment, the place or the nullability of COLUMN of the table NAME."""
    if first and after is not None:
        raise click.UsageError("Give one of --first and --after.")
    change = ChangeColumn(
        column=column,
        type=type_text,
        position=position_of(first=first, after=after),
        comment=comment,
        nullable=None if not_null is None else not not_null,
    )
    _alter(name, change)


@alter.command("set-property")
@click.argument("name")
@click.argument("pairs", nargs=-1, required=True, type=PROPERTY, metavar="KEY=VALUE...")
@click.option("--force", is_flag=True, help="Accept keys that begin with 'delta.' and are not known.")
@_output
def set_property(name: str, pairs: tuple[tuple[str, str], ...], force: bool) -> None:
    """Set properties of the table NAME, and enable the features that they need."""
    _alter(name, SetProperties(properties=dict(pairs), force=force))


@alter.command("unset-property")
@click.argument("name")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_output
def unset_property(name: str, keys: tuple[str, ...]) -> None:
    """Remove properties of the table NAME."""
    _alter(name, UnsetProperties(names=keys))


@alter.command("comment")
@click.argument("name")
@click.argument("text")
@_output
def comment_table(name: str, text: str) -> None:
    """Set the description of the table NAME; an empty TEXT removes it."""
    _alter(name, SetComment(text or None))


@alter.command("enable-feature")
@click.argument("name")
@click.argument("feature")
@_output
def enable_feature(name: str, feature: str) -> None:
    """Add a table feature to the protocol of the table NAME."""
    _alter(name, EnableFeature(feature))


@alter.command("drop-feature")
@click.argument("name")
@click.argument("feature")
@_output
def drop_feature(name: str, feature: str) -> None:
    """Drop a table feature of the table NAME. Files that need it are rewritten before."""
    _alter(name, DropFeature(feature))


def _alter(name: str, alteration: Alteration) -> None:
    with open_client() as client:
        if isinstance(alteration, _REWRITING):
            # Imported here: other commands start faster without it.
            result = importlib.import_module(_ENGINES).altered(client, name, alteration)
        else:
            result = alter_table(client.table(name), alteration)
    commits = counted(len(result.versions), "commit")
    done = f"{name} is changed by {commits}, the last is version {result.version}."
    value = {"name": name, "table_id": result.table_id, "version": result.version, "versions": result.versions}
    show(value, done if result.versions else f"{name} is already so; nothing was committed.", *result.shut_out)
