"""Rule ``protected_columns``: columns that no commit drops, renames, replaces, or gives another type."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, names_of
from cm_delta_dagster.catalog.rules.rule_kind import Arguments, GuardedCommit, RuleKind, texts
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME
from cm_delta_dagster.protocol.predicates.predicates import column_path
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
)


def _arguments(given: Mapping[str, object]) -> Arguments:
    columns = names_of(given, "columns", kind=CommitRuleKind.PROTECTED_COLUMNS)
    for column in columns:
        try:
            column_path(column)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{column!r} cannot be a protected column: {error}") from error
    return {"columns": columns}


def _violation(arguments: Arguments, commit: GuardedCommit) -> str | None:
    if commit.actions.metadata is None:
        return None
    if commit.before is None:
        return "changes the metadata of a table whose columns the catalog does not have"
    if commit.before.schema_string == commit.actions.metadata.schema_string:
        return None
    before, after = parse_schema(commit.before.schema_string), parse_schema(commit.actions.metadata.schema_string)
    found = (_change(column, before, after) for column in texts(arguments["columns"]))
    return next((change for change in found if change is not None), None)


def _change(column: str, before: StructType, after: StructType) -> str | None:
    """What becomes of one column, as a clause; None if it stays, or was not there."""
    path = column_path(column)
    old, new = _field(before, path), _field(after, path)
    if old is None:
        return None
    if new is None:
        renamed = _same_column(old, _siblings(after, path))
        return f"drops the column {column}" if renamed is None else f"renames the column {column} to {renamed.name}"
    if old.metadata.get(PHYSICAL_NAME) != new.metadata.get(PHYSICAL_NAME) and PHYSICAL_NAME in old.metadata:
        return f"replaces the column {column} by another one of its name"
    if not _keeps(old.type, new.type):
        return f"changes the type of the column {column} from {data_type_text(old.type)} to {data_type_text(new.type)}"
    return None


def _field(schema: StructType, path: tuple[str, ...]) -> StructField | None:
    parent = _siblings(schema, path)
    return None if parent is None else parent.field(path[-1])


def _siblings(schema: StructType, path: tuple[str, ...]) -> StructType | None:
    """The struct that has, or had, the last part of ``path``."""
    found: DataType = schema
    for name in path[:-1]:
        item = found.field(name) if isinstance(found, StructType) else None
        if item is None:
            return None
        found = item.type
    return found if isinstance(found, StructType) else None


def _same_column(old: StructField, among: StructType | None) -> StructField | None:
    physical = old.metadata.get(PHYSICAL_NAME)
    if physical is None or among is None:
        return None
    return next((item for item in among.fields if item.metadata.get(PHYSICAL_NAME) == physical), None)


def _keeps(old: DataType, new: DataType) -> bool:
    """Whether values of ``new`` have all that values of ``old`` have; a struct may get more fields."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        pairs = ((item, new.field(item.name)) for item in old.fields)
        return all(
            later is not None
            and later.metadata.get(PHYSICAL_NAME) == item.metadata.get(PHYSICAL_NAME)
            and _keeps(item.type, later.type)
            for item, later in pairs
        )
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _keeps(old.element_type, new.element_type)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return _keeps(old.key_type, new.key_type) and _keeps(old.value_type, new.value_type)
    return old == new


PROTECTED_COLUMNS = RuleKind(
    kind=CommitRuleKind.PROTECTED_COLUMNS,
    takes=("columns",),
    arguments=_arguments,
    violation=_violation,
    summary="columns that no commit drops, renames, replaces, or gives another type",
)
