"""The commands ``cm-delta alter``, which change the columns, the properties and the features of a table."""

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.results import echo_result, json_option
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
@json_option
@click.pass_context
def add_column(
    context: click.Context,
    name: str,
    column: str,
    type_text: str,
    comment: str | None,
    first: bool,
    after: str | None,
) -> None:
    """Add COLUMN with the SQL type TYPE to the table NAME."""
    _alter(context, name, AddColumns([NewColumn(column, type_text, comment=comment, first=first, after=after)]))


@alter.command("rename-column")
@click.argument("name")
@click.argument("column")
@click.argument("to")
@json_option
@click.pass_context
def rename_column(context: click.Context, name: str, column: str, to: str) -> None:
    """Rename COLUMN of the table NAME to TO."""
    _alter(context, name, RenameColumn(column, to))


@alter.command("drop-column")
@click.argument("name")
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN...")
@json_option
@click.pass_context
def drop_column(context: click.Context, name: str, columns: tuple[str, ...]) -> None:
    """Drop columns of the table NAME; their values stay in the files until these are rewritten."""
    _alter(context, name, DropColumns(columns))


@alter.command("change-column")
@click.argument("name")
@click.argument("column")
@click.option("--type", "type_text", default=None, help="A wider type.")
@click.option("--comment", default=None, help="What the column holds.")
@click.option("--not-null/--null", "not_null", default=None, help="Forbid or allow NULL.")
@_first
@_after
@json_option
@click.pass_context
def change_column(
    context: click.Context,
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
    _alter(context, name, change)


@alter.command("set-property")
@click.argument("name")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--any-name", is_flag=True, help="Accept keys that begin with 'delta.' and are not known.")
@json_option
@click.pass_context
def set_property(context: click.Context, name: str, pairs: tuple[str, ...], any_name: bool) -> None:
    """Set properties of the table NAME, and enable the features that they need."""
    split = [pair.partition("=") for pair in pairs]
    if not all(key and mark for key, mark, _ in split):
        raise click.UsageError("Write each property as KEY=VALUE.")
    _alter(context, name, SetProperties(properties={key: value for key, _, value in split}, any_name=any_name))


@alter.command("unset-property")
@click.argument("name")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@json_option
@click.pass_context
def unset_property(context: click.Context, name: str, keys: tuple[str, ...]) -> None:
    """Remove properties of the table NAME."""
    _alter(context, name, UnsetProperties(names=keys))


@alter.command("comment")
@click.argument("name")
@click.argument("text")
@json_option
@click.pass_context
def comment_table(context: click.Context, name: str, text: str) -> None:
    """Set the description of the table NAME; an empty TEXT removes it."""
    _alter(context, name, SetComment(text or None))


@alter.command("enable-feature")
@click.argument("name")
@click.argument("feature")
@json_option
@click.pass_context
def enable_feature(context: click.Context, name: str, feature: str) -> None:
    """Add a table feature to the protocol of the table NAME."""
    _alter(context, name, EnableFeature(feature))


@alter.command("drop-feature")
@click.argument("name")
@click.argument("feature")
@json_option
@click.pass_context
def drop_feature(context: click.Context, name: str, feature: str) -> None:
    """Drop a table feature that the table NAME does not use any more."""
    _alter(context, name, DropFeature(feature))


def _alter(context: click.Context, name: str, alteration: Alteration) -> None:
    with open_client(context) as client:
        result = alter_table(client.table(name), alteration)
    value = {"name": name, "table_id": result.table_id, "version": result.version, "versions": list(result.versions)}
    if not result.versions:
        echo_result(value, [f"{name} is already so; nothing was committed."])
        return
    commits = counted(len(result.versions), "commit")
    echo_result(value, [f"{name} is changed by {commits}, the last is version {result.version}."])
