"""Changes of the definition of columns whose values in the files of the table stay (protocol heading "Type Widening").

A file has the type that its column had when it was written. A commit that gives the column another type makes the file unreadable,
unless type widening is on and records a change that readers know, or the commit removes all files of the table. A RESTORE may take
a recorded change back: the files that stay are from before it. Only ``commitInfo`` says that a commit is one; it sets ``metaData``,
which requires the privilege ``alter`` while grants are enforced.

The values of partition columns are in the log, those of other columns in the files. A commit that changes which columns are
partition columns makes all their values NULL in the files that stay. In these files a new column is NULL, too, so that it must be
nullable. A RESTORE may do both: its files are those of the version whose definition it sets.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.commits.proposal_checks.partitions import partition_types
from cm_delta_dagster.protocol.features.column_mapping import (
    ColumnMappingMode,
    column_mapping_mode,
    field_id,
    physical_name,
)
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.type_widening import ENABLED, can_read_as, records_change
from cm_delta_dagster.protocol.schema.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
)

_RESTORE = "RESTORE"
_FEATURES = ("typeWidening", "typeWidening-preview")
_REMOVE_ALL = "Remove all files of the table in the same commit"

_FieldKey: TypeAlias = Callable[[StructField], object]
"""What identifies a field within its struct."""
_FieldPair: TypeAlias = tuple[StructField, StructField]
"""A field of a struct before and after the commit."""
_Field: TypeAlias = tuple[tuple[str, ...], StructField | None, StructField]
"""The path of a field after the commit, the field before it if there was one, and the field after it."""
_ChangedType: TypeAlias = tuple[tuple[str, ...], DataType, DataType, _FieldPair]
"""The path of a type, the type before and after, and the fields that contain it."""


def flaw_of_changed_types(
    before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol], *, operation: str | None
) -> CommitFlaw | None:
    """The first column whose values cannot be read any more; None if there is none, or if ``before`` is damaged.

    Args:
        before, after: of the table before and after the commit.
        operation: of commitInfo.
    """
    is_restore = operation == _RESTORE
    try:
        flaw = _flaw_of_types(before, after, is_restore=is_restore)
        if flaw is not None or is_restore:
            return flaw
        return _flaw_of_partition_columns(before, after) or _flaw_of_new_columns(before, after)
    except CmDeltaError:
        return None


def _flaw_of_types(
    before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol], *, is_restore: bool
) -> CommitFlaw | None:
    metadata, protocol = after
    is_on = any(supports(protocol, name) for name in _FEATURES) and metadata.configuration.get(ENABLED, "") == "true"
    for change in _changes_between(before, after):
        if _is_readable(change, is_on=is_on) or (is_restore and _is_taken_back(change)):
            continue
        path, old, new, _ = change
        why = (
            f"changes the type of column {'.'.join(path)} from {data_type_text(old)} to {data_type_text(new)}, while files with "
            f"the former type stay. {_REMOVE_ALL}, or only widen the type, with type widening"
        )
        return CommitFlaw(action="metaData", field="schemaString", why=why)
    return None


def _flaw_of_partition_columns(
    before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol]
) -> CommitFlaw | None:
    """Their order does not matter: files have their values by physical names, which are compared exactly."""
    old, new = ([name for name, _ in partition_types(*definition)] for definition in (before, after))
    if set(old) == set(new):
        return None
    why = (
        f"changes the partition columns from ({', '.join(old)}) to ({', '.join(new)}), while files with values of the former ones "
        f"stay. {_REMOVE_ALL}"
    )
    return CommitFlaw(action="metaData", field="partitionColumns", why=why)


def _flaw_of_new_columns(before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol]) -> CommitFlaw | None:
    for path, old, item in _fields_between(before, after):
        if old is None and not item.nullable:
            why = (
                f"adds the column {'.'.join(path)}, which must not be NULL, while files without it stay. Make the column nullable, "
                f"or {_REMOVE_ALL[0].lower()}{_REMOVE_ALL[1:]}"
            )
            return CommitFlaw(action="metaData", field="schemaString", why=why)
    return None


def _is_readable(change: _ChangedType, *, is_on: bool) -> bool:
    """Whether readers get the values: a ``void`` column has none, and they know recorded changes."""
    _, old, new, (_, field) = change
    return old == VOID or (is_on and can_read_as(old, new) and records_change(field, old, new))


def _is_taken_back(change: _ChangedType) -> bool:
    """Whether the column has the type before that this change records."""
    _, old, new, (field, _) = change
    return new == VOID or (can_read_as(new, old) and records_change(field, new, old))


def _changes_between(before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol]) -> Iterator[_ChangedType]:
    for path, old, item in _fields_between(before, after):
        if old is not None:
            yield from _changes(old.type, item.type, path, (old, item))


def _changes(before: DataType, after: DataType, path: tuple[str, ...], fields: _FieldPair) -> Iterator[_ChangedType]:
    """The changed types of one field, without those of the fields within it."""
    match before, after:
        case StructType(), StructType():
            return
        case ArrayType(), ArrayType():
            yield from _changes(before.element_type, after.element_type, (*path, "element"), fields)
        case MapType(), MapType():
            yield from _changes(before.key_type, after.key_type, (*path, "key"), fields)
            yield from _changes(before.value_type, after.value_type, (*path, "value"), fields)
        case _ if before != after:
            yield path, before, after, fields


def _fields_between(before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol]) -> Iterator[_Field]:
    """The fields after the commit, at every level within fields that were there before it."""
    keys = [_key_of(column_mapping_mode(protocol, metadata)) for metadata, protocol in (before, after)]
    schemas = [parse_schema(metadata.schema_string) for metadata, _ in (before, after)]
    yield from _fields_within(schemas[0], schemas[1], (), (keys[0], keys[1]))


def _key_of(mode: ColumnMappingMode) -> _FieldKey:
    if mode is ColumnMappingMode.ID:
        return field_id
    return lambda item: physical_name(item, mode).lower()


def _fields_within(
    before: DataType, after: DataType, path: tuple[str, ...], keys: tuple[_FieldKey, _FieldKey]
) -> Iterator[_Field]:
    match before, after:
        case StructType(), StructType():
            old_fields = {keys[0](item): item for item in before.fields}
            for item in after.fields:
                old, here = old_fields.get(keys[1](item)), (*path, item.name)
                yield here, old, item
                if old is not None:
                    yield from _fields_within(old.type, item.type, here, keys)
        case ArrayType(), ArrayType():
            yield from _fields_within(before.element_type, after.element_type, (*path, "element"), keys)
        case MapType(), MapType():
            yield from _fields_within(before.key_type, after.key_type, (*path, "key"), keys)
            yield from _fields_within(before.value_type, after.value_type, (*path, "value"), keys)
