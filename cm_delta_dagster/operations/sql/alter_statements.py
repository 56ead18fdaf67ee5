"""ALTER TABLE and COMMENT ON TABLE."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.sql.answers import NOTHING, Answer
from cm_delta_dagster.operations.sql.column_definitions import (
    column_options,
    columns_in_brackets,
    properties,
    property_keys,
)
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.targets import SqlSession, identifier_of, open_table
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alter_with_rewrite import alter_with_rewrite
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    ColumnDefault,
    DropColumns,
    DropFeature,
    NewColumn,
    RenameColumn,
    SetComment,
    SetProperties,
    UnsetProperties,
    position_of,
)
from cm_delta_dagster.operations.tables.clustering import cluster_by
from cm_delta_dagster.operations.tables.computed_columns import change_columns, sync_identity
from cm_delta_dagster.operations.tables.constraints import add_constraint, drop_constraint
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.protocol.schema.alterations import find_column
from cm_delta_dagster.protocol.schema.column_paths import column_path, path_text

_Change: TypeAlias = Callable[[SqlSession, Table], object]
"""A change that has been read and not made."""


def alter(session: SqlSession, statement: Statement) -> Answer:
    """Run an ALTER TABLE statement.

    Raises:
        InvalidArgumentError: the statement is malformed, or the change cannot be made.
        CmDeltaError: as :func:`~cm_delta_dagster.operations.tables.alter.alter_table` and the other operations.
    """
    words = Words(statement, after=2)
    name = words.table()
    for phrase, read in _CHANGES.items():
        if words.takes(phrase):
            change = read(words)
            words.done()
            change(session, open_table(session, name))
            return NOTHING
    raise words.fault(f"one of {', '.join(dict.fromkeys(_CHANGES))}")


def comment(session: SqlSession, statement: Statement) -> Answer:
    """``COMMENT ON TABLE name IS 'text'``, or ``IS NULL``."""
    words = Words(statement, after=3)
    name = words.table()
    words.expect("IS")
    text = None if words.takes("NULL") else words.string("a text in quotes or NULL")
    words.done()
    alter_table(open_table(session, name), SetComment(text))
    return NOTHING


def _altering(alteration: Alteration) -> _Change:
    return lambda session, table: alter_with_rewrite(table, alteration, spark=lambda: session.spark)


# --- columns ----------------------------------------------------------------------------------------------------------


def _add_columns(words: Words) -> _Change:
    columns = words.listed(lambda: _new_column(words), brackets=words.peek() == "(")
    return _altering(AddColumns(columns))


def _new_column(words: Words) -> NewColumn:
    name = path_text(words.name())
    defined = column_options(words, name, words.type())
    computed = {"DEFAULT": defined.default, "GENERATED ALWAYS AS": defined.generated, "IDENTITY": defined.identity}
    for word, value in computed.items():
        if value is not None:
            raise words.refusal(
                f"{word} for a column that is added to a table",
                "Add the column, then give it a default with ALTER COLUMN name SET DEFAULT value. Only a new table can have "
                "generated and identity columns.",
            )
    first, after = _place(words)
    return NewColumn(
        name,
        defined.type,
        comment=defined.comment,
        nullable=defined.nullable,
        first=first,
        after=after,
    )


def _place(words: Words) -> tuple[bool, str | None]:
    """FIRST or AFTER column, if it comes next."""
    if words.takes("FIRST"):
        return True, None
    return False, words.part() if words.takes("AFTER") else None


def _rename_column(words: Words) -> _Change:
    column = path_text(words.name())
    words.expect("TO")
    return _altering(RenameColumn(column, words.part()))


def _drop_columns(words: Words) -> _Change:
    if_exists = words.takes("IF EXISTS")
    columns = words.listed(lambda: path_text(words.name()), brackets=words.peek() == "(")
    return lambda session, table: _drop(table, columns, if_exists=if_exists)


def _drop(table: Table, columns: list[str], *, if_exists: bool) -> None:
    if if_exists:
        schema = table.snapshot().schema
        columns = [column for column in columns if schema.field(column_path(column)[0]) is not None]
    if columns:
        alter_table(table, DropColumns(columns))


def _alter_columns(words: Words) -> _Change:
    if "SYNC IDENTITY" in words.upcoming():
        return _sync_identity(words)
    changes = words.listed(lambda: _column_change(words), brackets=False)
    return lambda session, table: change_columns(table, changes, spark=lambda: session.spark)


def _column_change(words: Words) -> ChangeColumn:
    column = path_text(words.name())
    for phrase, change in _COLUMN_CHANGES.items():
        if words.takes(phrase):
            return change(words, column)
    words.takes("TYPE")
    changed = ChangeColumn(column=column)
    if not _begins_change(words):
        changed = _typed(words, column)
    changed = _with_comment(words, changed)
    first, after = _place(words)
    changed = _with_comment(words, replace(changed, position=position_of(first=first, after=after)))
    if changed == ChangeColumn(column=column):
        raise words.fault(f"TYPE, COMMENT, FIRST, AFTER, SYNC IDENTITY, {', '.join(_COLUMN_CHANGES)}")
    return changed


def _begins_change(words: Words) -> bool:
    return words.peek() in ("COMMENT", "FIRST", "AFTER", ",") or words.is_done()


def _typed(words: Words, column: str) -> ChangeColumn:
    """A new type, with the column's name before it in the old form ``CHANGE COLUMN a a bigint``."""
    start = words.at
    first = words.type()
    own = column_path(column)[-1].lower()
    if first.split()[0].strip("`").lower() == own and len(first.split()) > 1:
        words.at = start
        words.part()
        first = words.type()
    options = column_options(words, column, first)
    if (options.default, options.generated, options.identity) != (None, None, None):
        raise words.refusal(
            "a default or a computed value with a new type", "Write ALTER COLUMN name SET DEFAULT value."
        )
    return ChangeColumn(
        column=column, type=first, comment=options.comment, nullable=None if options.nullable else False
    )


def _with_comment(words: Words, changed: ChangeColumn) -> ChangeColumn:
    if not words.takes("COMMENT"):
        return changed
    return replace(changed, comment=words.string("the comment as a text in quotes"))


def _set_default(words: Words, column: str) -> ChangeColumn:
    return ChangeColumn(column=column, default=ColumnDefault(words.until(",", what="the default").text))


def _sync_identity(words: Words) -> _Change:
    column = path_text(words.name())
    words.expect("SYNC IDENTITY")
    return lambda session, table: sync_identity(table, spark=session.spark, column=_stored_name(table, column))


def _stored_name(table: Table, column: str) -> str:
    """The name of a column, not of a field, as the table spells it."""
    path = find_column(table.snapshot().schema, column_path(column)).path
    return path[0] if len(path) == 1 else column


_COLUMN_CHANGES: Mapping[str, Callable[[Words, str], ChangeColumn]] = {
    "SET NOT NULL": lambda words, column: ChangeColumn(column=column, nullable=False),
    "DROP NOT NULL": lambda words, column: ChangeColumn(column=column, nullable=True),
    "SET DEFAULT": _set_default,
    "DROP DEFAULT": lambda words, column: ChangeColumn(column=column, default=ColumnDefault(None)),
}
"""What comes after the name of the column."""

# --- table ------------------------------------------------------------------------------------------------------------


def _rename(words: Words) -> _Change:
    to = identifier_of(words.table())
    return lambda session, table: rename_table(
        session.client, identifier=table.identifier, to=to, table_id=table.table_id
    )


def _set_properties(words: Words) -> _Change:
    return _altering(SetProperties(properties=properties(words)))


def _unset_properties(words: Words) -> _Change:
    words.takes("IF EXISTS")
    return _altering(UnsetProperties(names=property_keys(words)))


def _add_constraint(words: Words) -> _Change:
    name = words.part()
    words.expect("CHECK")
    check = words.in_brackets("the condition").text
    return lambda session, table: add_constraint(table, spark=session.spark, name=name, check=check)


def _drop_constraint(words: Words) -> _Change:
    if_exists = words.takes("IF EXISTS")
    name = words.part()
    return lambda session, table: drop_constraint(table, name=name, if_exists=if_exists)


def _cluster_by(words: Words) -> _Change:
    columns = [] if words.takes("NONE") else columns_in_brackets(words)
    return lambda session, table: cluster_by(table, columns=columns)


def _drop_feature(words: Words) -> _Change:
    feature = words.literal() or words.part()
    if words.peek() == "TRUNCATE":
        raise words.refusal("TRUNCATE HISTORY", "Leave it out: checkpoints keep the older versions readable.")
    return _altering(DropFeature(feature))


def _refused(instead: str) -> Callable[[Words], _Change]:
    def refuse(words: Words) -> _Change:
        raise words.refusal("this form of ALTER TABLE", instead)

    return refuse


_PARTITIONS = "Partitions of a Delta table come and go with their rows: write INSERT or DELETE."
_CHANGES: Mapping[str, Callable[[Words], _Change]] = {
    "ADD CONSTRAINT": _add_constraint,
    "DROP CONSTRAINT": _drop_constraint,
    "ADD PARTITION": _refused(_PARTITIONS),
    "DROP PARTITION": _refused(_PARTITIONS),
    "ADD COLUMNS": _add_columns,
    "ADD COLUMN": _add_columns,
    "RENAME COLUMN": _rename_column,
    "RENAME TO": _rename,
    "DROP COLUMNS": _drop_columns,
    "DROP COLUMN": _drop_columns,
    "DROP FEATURE": _drop_feature,
    "ALTER COLUMN": _alter_columns,
    "CHANGE COLUMN": _alter_columns,
    "ALTER": _alter_columns,
    "CHANGE": _alter_columns,
    "SET TBLPROPERTIES": _set_properties,
    "UNSET TBLPROPERTIES": _unset_properties,
    "SET LOCATION": _refused("The location of tables that were moved is recorded for all of a warehouse."),
    "REPLACE COLUMNS": _refused("Write ADD COLUMNS and DROP COLUMN, or overwrite the table with another schema."),
    "CLUSTER BY": _cluster_by,
}
"""What comes after the name of the table; the first phrase that fits counts."""
