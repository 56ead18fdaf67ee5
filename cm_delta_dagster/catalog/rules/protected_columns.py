"""Rule ``protected_columns``: columns that no commit drops, renames, replaces, or gives another type."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, names_of
from cm_delta_dagster.catalog.rules.rule_kind import Absent, GuardedCommit, RuleArguments, RuleKind, texts
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME
from cm_delta_dagster.protocol.predicates.predicates import column_path
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
)


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    columns = names_of(stated, "columns", kind=CommitRuleKind.PROTECTED_COLUMNS)
    for column in columns:
        try:
            column_path(column)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{column!r} cannot be a protected column: {error}") from error
    return {"columns": columns}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    if commit.actions.metadata is None:
        return None
    if commit.before is None:
        return "changes the metadata of a table whose columns the catalog does not have"
    if commit.before.schema_string == commit.actions.metadata.schema_string:
        return None
    before, after = parse_schema(commit.before.schema_string), parse_schema(commit.actions.metadata.schema_string)
    changes = (_change(column, before, after) for column in texts(arguments["columns"]))
    return next((change for change in changes if change is not None), None)


def _absent(arguments: RuleArguments, metadata: Metadata) -> list[Absent]:
    schema = parse_schema(metadata.schema_string)
    absent = []
    for column in texts(arguments["columns"]):
        path = column_path(column)
        if _field(schema, path) is not None:
            continue
        parent = _parent(schema, path)
        before = [*path[:-1]] if isinstance(parent, StructType) else []
        inside = parent if isinstance(parent, StructType) else schema
        known = tuple(path_text((*before, item.name)) for item in inside.fields)
        absent.append(Absent(what="column", name=column, known=known))
    return absent


def _change(column: str, before: StructType, after: StructType) -> str | None:
    """What becomes of one column, as a clause; None if it stays, or was not there."""
    path = column_path(column)
    old, new = _field(before, path), _field(after, path)
    if old is None:
        return None
    if new is None:
        renamed = _same_column(old, _parent(after, path))
        return f"drops the column {column}" if renamed is None else f"renames the column {column} to {renamed.name}"
    if _physical_name(old) != _physical_name(new):
        return f"replaces the column {column} by another one of its name"
    if not _keeps(old.type, new.type):
        return f"changes the type of the column {column} from {data_type_text(old.type)} to {data_type_text(new.type)}"
    return None


def _field(schema: StructType, path: tuple[str, ...]) -> StructField | None:
    return _inner(_parent(schema, path), path[-1])


def _parent(schema: StructType, path: tuple[str, ...]) -> DataType | None:
    """The type that has, or had, the last part of ``path``."""
    data_type: DataType | None = schema
    for name in path[:-1]:
        item = _inner(data_type, name)
        data_type = None if item is None else item.type
    return data_type


def _inner(of: DataType | None, name: str) -> StructField | None:
    """The field of a struct; also ``element`` of an array, ``key`` and ``value`` of a map."""
    if isinstance(of, StructType):
        return of.field(name)
    parts: dict[str, DataType] = {}
    if isinstance(of, ArrayType):
        parts = {"element": of.element_type}
    elif isinstance(of, MapType):
        parts = {"key": of.key_type, "value": of.value_type}
    part = parts.get(name.lower())
    return None if part is None else StructField(name, part)


def _physical_name(item: StructField) -> str:
    """The name in data files; in lower case, because the case of a name may change without column mapping."""
    return str(item.metadata.get(PHYSICAL_NAME, item.name)).lower()


def _same_column(old: StructField, among: DataType | None) -> StructField | None:
    if PHYSICAL_NAME not in old.metadata or not isinstance(among, StructType):
        return None
    return next((item for item in among.fields if _physical_name(item) == _physical_name(old)), None)


def _keeps(old: DataType, new: DataType) -> bool:
    """Whether values of ``new`` have all that values of ``old`` have; a struct may get more fields."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        pairs = ((item, new.field(item.name)) for item in old.fields)
        return all(
            later is not None and _physical_name(later) == _physical_name(item) and _keeps(item.type, later.type)
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
    absent=_absent,
    summary="columns that no commit drops, renames, replaces, or gives another type",
)
