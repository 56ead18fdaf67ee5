"""Plans the files from which the row changes of some versions are read (protocol headings "Change Data Files", "Add CDC File").

Plans from decoded commits; scans read the rows. For a file whose deletion vector changed, :func:`resolve_vector_changes` builds a
deletion vector that leaves only the changed rows, so that scans do not handle changes. Does not write change data files.
"""

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.protocol.actions.actions import AddCdcFile, CommitInfo, DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, DELETION_VECTOR_TYPE, with_data_change
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.changes.schema_breaks import DefinitionStep, SchemaBreak, up_to_break
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.features import change_feed_columns
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME, ColumnMappingMode
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.features.table_features import check_readable, is_active
from cm_delta_dagster.protocol.schema.types import LONG, STRING, TIMESTAMP, StructField, StructType
from cm_delta_dagster.remedies import SetTableProperty

FEATURE = "changeDataFeed"

CHANGE_TYPE = change_feed_columns.CHANGE_TYPE
COMMIT_VERSION = change_feed_columns.COMMIT_VERSION
COMMIT_TIMESTAMP = change_feed_columns.COMMIT_TIMESTAMP
CHANGE_COLUMNS = change_feed_columns.CHANGE_COLUMNS
"""Columns of a change feed, after those of the table."""
COMMIT_FIELDS = (StructField(COMMIT_VERSION, LONG), StructField(COMMIT_TIMESTAMP, TIMESTAMP))
"""The columns of a change feed that no file stores."""


class ChangeType(StrEnum):
    """Values of ``_change_type``."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"


_ADD_STRUCT = pa.struct(list(ADD_SCHEMA))


class Commit(typing.Protocol):
    """The actions and the time of a version: in-commit timestamp if enabled, else file time; epoch milliseconds."""

    @property
    def version(self) -> int: ...
    @property
    def actions(self) -> CommitActions: ...
    @property
    def timestamp_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePart:
    """Files of one version whose rows are changes of one type.

    Attributes:
        change_type: None for change data files, which have a column ``_change_type``.
        files: columns of ``ADD_SCHEMA``; rows marked in deletion vectors are not changes.
        stored_partitions: the partition columns of the files, by the names in their partition values; None for those of the
            definition with which the changes are read.
    """

    version: int
    timestamp_ms: int
    change_type: ChangeType | None
    files: pa.Table
    stored_partitions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorChange:
    """Files that a commit removed and added with another deletion vector.

    ``before`` and ``after`` have the columns of ``ADD_SCHEMA`` and the same files in the same order.
    """

    version: int
    timestamp_ms: int
    before: pa.Table
    after: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """The files to read for the changes of a range of versions, oldest first, and the definition to read them with.

    Attributes:
        stopped_before: the version before which the plan ends, although the range goes on; None if it has the whole range.
    """

    definition: VersionDefinition
    parts: tuple[ChangePart | VectorChange, ...]
    stopped_before: SchemaBreak | None = None


def plan_changes(
    commits: Iterable[Commit],
    *,
    start: VersionDefinition,
    latest: VersionDefinition,
    location: str,
    table: str,
    before: VersionDefinition | None = None,
) -> ChangePlan:
    """Plan the changes of ``commits``.

    Rows are mapped to the schema of the last commit or, if the table does not use column mapping, to that of its latest version,
    as in delta-spark. Unlike there, columns may be renamed, widened or dropped within the range. A plan ends before the first
    version whose schema cannot represent the rows before it.

    Args:
        commits: successive versions from ``start.version`` on.
        start: definition at the first of the versions, after its own actions.
        latest: definition at the table's latest version.
        location: absolute URI of the table root.
        table: name of the table in messages.
        before: definition at the version before the first one, if the first commit :func:`replaces_rows`.

    Raises:
        InvalidArgumentError: change data feed was not active at one of the versions.
        SchemaMismatchError: the first commit removes rows that its own schema cannot represent, or a column of the table has the
            name of a column of the change feed.
        UnsupportedFeatureError: one of the versions requires an unsupported reader feature.
        CorruptLogError: the actions of a commit contradict each other.
    """
    parts: list[ChangePart | VectorChange] = []
    steps = [DefinitionStep(definition=start, removed_from=before)]
    remaining = iter(commits)
    for commit in remaining:
        previous = steps[-1].definition
        current = start if commit.version == start.version else previous.after(commit.actions)
        if current is start or commit.actions.metadata is not None or commit.actions.protocol is not None:
            if not _records_changes(current):
                raise _not_recorded(current, remaining, start=start, latest=latest, table=table)
            check_readable(current.protocol, f"{table} at version {current.version}")
            if current is not start:
                removed_from = previous if replaces_rows(commit.actions) else None
                steps.append(DefinitionStep(definition=current, removed_from=removed_from))
        parts += _changes_of(commit, current, location, table)
    readable, stopped_before = up_to_break(steps, table)
    if stopped_before is not None:
        parts = [part for part in parts if part.version < stopped_before.version]
    definition = _read_definition(readable, latest)
    _check_reserved_names(definition, table)
    return ChangePlan(definition=definition, parts=tuple(parts), stopped_before=stopped_before)


def replaces_rows(actions: CommitActions) -> bool:
    """Whether a commit changes the metadata and removes files, whose rows were stored under the previous metadata."""
    return actions.metadata is not None and not actions.cdc and with_data_change(actions.removes).num_rows > 0


def change_schema(schema: StructType) -> StructType:
    """The columns of a change feed: those of the table and :data:`CHANGE_COLUMNS`."""
    return StructType((*schema.fields, StructField(CHANGE_TYPE, STRING), *COMMIT_FIELDS))


def change_file_schema(schema: StructType) -> StructType:
    """The columns of change data files. The physical name of ``_change_type`` is its name, also with column mapping."""
    return StructType((*schema.fields, StructField(CHANGE_TYPE, STRING, metadata={PHYSICAL_NAME: CHANGE_TYPE})))


def is_change_type(item: StructField) -> bool:
    """Whether ``item`` is the ``_change_type`` of :func:`change_file_schema`, which has no column id, not a column of the table."""
    return item.name == CHANGE_TYPE and COLUMN_ID not in item.metadata


def _read_definition(steps: Sequence[DefinitionStep], latest: VersionDefinition) -> VersionDefinition:
    """The latest definition adds columns that came after the range, if column mapping is not used; else the last of the range."""
    first, last = steps[0].definition, steps[-1].definition
    is_mapped = any(item.mapping is not ColumnMappingMode.NONE for item in (first, last, latest))
    return last if is_mapped or any(step.conflict(latest) is not None for step in steps) else latest


# --- one commit -------------------------------------------------------------------------------------------------------


def _changes_of(
    commit: Commit, definition: VersionDefinition, location: str, table: str
) -> Iterator[ChangePart | VectorChange]:
    if commit.actions.cdc:
        yield _part(commit, None, _change_files(commit.actions.cdc))
        return
    if _changed_no_row(commit.actions.commit_info):
        return
    added = with_data_change(commit.actions.adds)
    removed = with_data_change(commit.actions.removes)
    if not removed.num_rows:
        yield _part(commit, ChangeType.INSERT, added)
        return
    removed = _removes_as_adds(removed, commit, definition, table)
    add_keys, remove_keys = file_keys(location, added["path"]), file_keys(location, removed["path"])
    in_both = pc.is_in(remove_keys, value_set=add_keys)
    if not pc.any(in_both).as_py():
        yield replace(_part(commit, ChangeType.DELETE, removed), stored_partitions=_partitions_before(commit, removed))
        yield _part(commit, ChangeType.INSERT, added)
        return
    _check_each_once(added, add_keys, commit, table)
    _check_each_once(removed, remove_keys, commit, table)
    again = pc.is_in(add_keys, value_set=remove_keys)
    yield _part(commit, ChangeType.DELETE, removed.filter(pc.invert(in_both)))
    yield _part(commit, ChangeType.INSERT, added.filter(pc.invert(again)))
    before, before_keys = removed.filter(in_both), remove_keys.filter(in_both)
    after = added.take(pc.index_in(before_keys, value_set=add_keys))
    yield VectorChange(version=commit.version, timestamp_ms=commit.timestamp_ms, before=before, after=after)


def _partitions_before(commit: Commit, removed: pa.Table) -> tuple[str, ...] | None:
    """The partition columns before a commit that may replace them; None if it does not."""
    if commit.actions.metadata is None or not removed.num_rows:
        return None
    values = removed["partitionValues"][0].as_py()
    return None if values is None else tuple(name for name, _ in values)


def _part(commit: Commit, change_type: ChangeType | None, files: pa.Table) -> ChangePart:
    return ChangePart(version=commit.version, timestamp_ms=commit.timestamp_ms, change_type=change_type, files=files)


def _changed_no_row(info: CommitInfo | None) -> bool:
    """Whether a MERGE reports that it only copied rows; some versions of delta-spark write dataChange true then."""
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.operation_metrics or {}
    counted = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return all(str(metrics.get(name)) == "0" for name in counted)


def _change_files(files: Sequence[AddCdcFile]) -> pa.Table:
    rows = [
        {"path": file.path, "partitionValues": list(file.partition_values.items()), "size": file.size} for file in files
    ]
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, _ADD_STRUCT))], ADD_SCHEMA)


def _removes_as_adds(files: pa.Table, commit: Commit, definition: VersionDefinition, table: str) -> pa.Table:
    if definition.metadata.partition_columns and files["partitionValues"].null_count:
        unknown = files.filter(pc.is_null(files["partitionValues"]))["path"][0].as_py()
        raise CorruptLogError(
            f"Version {commit.version} of {table} removes the file {unknown!r} without its partition values, so the "
            "deleted rows are not known completely. Read the changes of the other versions."
        )
    kept = ("path", "partitionValues", "stats", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    columns = {**{name: files[name] for name in kept}, "size": pc.fill_null(files["size"], 0)}
    arrays = [
        columns[item.name] if item.name in columns else pa.nulls(files.num_rows, item.type) for item in ADD_SCHEMA
    ]
    return pa.table(arrays, schema=ADD_SCHEMA)


def _check_each_once(files: pa.Table, keys: pa.Array, commit: Commit, table: str) -> None:
    counts = pc.value_counts(keys)
    twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))
    if len(twice):
        raise CorruptLogError(
            f"Version {commit.version} of {table} adds or removes the file {twice[0]['values'].as_py()!r} twice with different "
            "deletion vectors, so its row changes are not known; the commit is damaged."
        )


# --- deletion vectors that changed ------------------------------------------------------------------------------------


def resolve_vector_changes(
    change: VectorChange,
    *,
    before: Sequence[BitMap64],
    after: Sequence[BitMap64],
    num_rows: Sequence[int],
) -> tuple[ChangePart, ...]:
    """The files of ``change`` with deletion vectors that leave only the deleted rows, and only the inserted rows.

    Args:
        before, after: deleted row positions of each file; empty for a file without a deletion vector.
        num_rows: number of physical rows of each file.

    Raises:
        CorruptLogError: a deletion vector contains a position that the file does not have.
    """
    parts = []
    for change_type, lost, kept in ((ChangeType.DELETE, after, before), (ChangeType.INSERT, before, after)):
        changed = [left - right for left, right in zip(lost, kept, strict=True)]
        positions = [index for index, bitmap in enumerate(changed) if len(bitmap)]
        files = change.after.take(pa.array(positions, pa.int64()))
        vectors = pa.array(
            [_all_but(changed[index], num_rows[index], change.after["path"][index].as_py()) for index in positions],
            DELETION_VECTOR_TYPE,
        )
        column = ADD_SCHEMA.get_field_index("deletionVector")
        parts.append(
            ChangePart(
                version=change.version,
                timestamp_ms=change.timestamp_ms,
                change_type=change_type,
                files=files.set_column(column, ADD_SCHEMA.field(column), vectors),
            )
        )
    return tuple(parts)


def _all_but(rows: BitMap64, num_rows: int, path: str) -> dict[str, object] | None:
    if rows.max() >= num_rows:
        raise CorruptLogError(
            f"A deletion vector of {path!r} deletes row {rows.max()}, and the file has {num_rows} rows. It belongs to another "
            "file; restore the deletion vector, or read the changes of other versions."
        )
    others = rows.flip(0, num_rows)
    if not len(others):
        return None
    vector: DeletionVectorDescriptor = encode_inline(others)
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


# --- checks of the range ----------------------------------------------------------------------------------------------


def _records_changes(definition: VersionDefinition) -> bool:
    return is_active(FEATURE, definition.protocol, definition.metadata)


def _not_recorded(
    definition: VersionDefinition,
    later: Iterable[Commit],
    *,
    start: VersionDefinition,
    latest: VersionDefinition,
    table: str,
) -> InvalidArgumentError:
    """Change data feed was not active at the version of ``definition``, and ``later`` are the commits of the range after it."""
    if definition.version > start.version:
        advice = (
            f"Read the changes of the versions {start.version} to {definition.version - 1}, at which it was active."
        )
    elif (active := _first_recorded(definition, later)) is not None:
        advice = f"Read the changes from version {active} on, at which it was active."
    else:
        advice = "Choose a range of versions at which it was active."
    remedy = None
    if not _records_changes(latest):
        advice += " The changes of later commits are recorded once the property is set."
        remedy = SetTableProperty(key="delta.enableChangeDataFeed", value="true")
    return InvalidArgumentError(
        f"The changes of {table} cannot be read: change data feed was not active at version {definition.version} "
        f"(delta.enableChangeDataFeed was not true, or the protocol did not list changeDataFeed). {advice}"
    ).with_remedy(remedy)


def _first_recorded(definition: VersionDefinition, commits: Iterable[Commit]) -> int | None:
    """The first version of ``commits``, which follow that of ``definition``, at which change data feed was active."""
    for commit in commits:
        definition = definition.after(commit.actions)
        if _records_changes(definition):
            return definition.version
    return None


def _check_reserved_names(definition: VersionDefinition, table: str) -> None:
    for name in CHANGE_COLUMNS:
        if definition.schema.field(name) is not None:
            raise SchemaMismatchError(
                f"{table} has a column {name!r}, which is the name of a column of the change feed; its changes cannot be "
                "read. Rename the column."
            )


def without_empty(parts: Iterable[ChangePart]) -> tuple[ChangePart, ...]:
    """The parts with at least one file."""
    return tuple(part for part in parts if part.files.num_rows)
