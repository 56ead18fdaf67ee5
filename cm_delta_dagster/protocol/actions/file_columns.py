"""File actions as columns (protocol heading "Add File and Remove File").

Tables of file actions have the fields of ``add`` and ``remove`` in checkpoints, so states are read from and written to checkpoints
without a Python object per file. Only the files that a single transaction proposes become Python values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.action_fields import deletion_vector_fields, deletion_vector_of, optional_dict
from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor, RemoveFile
from cm_delta_dagster.protocol.actions.stats_text import repeatable_stats

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, in epoch milliseconds: the latest time of a new commit."""

STRING_MAP = pa.map_(pa.string(), pa.string())

DELETION_VECTOR_TYPE = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)

VECTOR_FIELDS: Mapping[str, int] = MappingProxyType(
    {"storageType": 0, "pathOrInlineDv": 0, "offset": 32, "sizeInBytes": 32, "cardinality": 64}
)
"""The fields of a deletion vector with their bits; 0 for texts. All but ``offset`` are required."""

ADD_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "partitionValues": STRING_MAP,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
        "tags": STRING_MAP,
        "deletionVector": DELETION_VECTOR_TYPE,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
        "clusteringProvider": pa.string(),
    }
)

REMOVE_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(),
        "partitionValues": STRING_MAP,
        "size": pa.int64(),
        "stats": pa.string(),
        "tags": STRING_MAP,
        "deletionVector": DELETION_VECTOR_TYPE,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
    }
)


def adds_to_table(files: Iterable[AddFile]) -> pa.Table:
    """``files`` as columns of ``ADD_SCHEMA``."""
    rows = list(files)
    return pa.table(
        {
            "path": [file.path for file in rows],
            "partitionValues": [list(file.partition_values.items()) for file in rows],
            "size": [file.size for file in rows],
            "modificationTime": [file.modification_time for file in rows],
            "dataChange": [file.data_change for file in rows],
            "stats": [file.stats for file in rows],
            "tags": [_items(file.tags) for file in rows],
            "deletionVector": [deletion_vector_fields(file.deletion_vector) for file in rows],
            "baseRowId": [file.base_row_id for file in rows],
            "defaultRowCommitVersion": [file.default_row_commit_version for file in rows],
            "clusteringProvider": [file.clustering_provider for file in rows],
        },
        schema=ADD_SCHEMA,
    )


def table_to_adds(files: pa.Table) -> list[AddFile]:
    """The rows as values; only for the few files that a transaction changes."""
    return [
        AddFile(
            path=row["path"],
            partition_values=dict(row["partitionValues"] or ()),
            size=row["size"],
            modification_time=row["modificationTime"],
            data_change=row["dataChange"],
            stats=row["stats"],
            tags=optional_dict(row["tags"]),
            deletion_vector=_vector(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
            clustering_provider=row["clusteringProvider"],
        )
        for row in files.to_pylist()
    ]


def table_to_new_adds(files: pa.Table) -> list[AddFile]:
    """Live files as adds of another commit, such as a restoration or a clone.

    What other writers left out has the value that readers assume. Values that readers accept and a commit must not contain are
    changed: statistics as in :func:`repeatable_stats`, and a time beyond the year 9999, as in nanoseconds, counts as left out.
    """
    return [
        replace(
            add,
            data_change=add.data_change is not False,
            modification_time=_repeatable_time(add.modification_time),
            stats=repeatable_stats(add.stats),
        )
        for add in table_to_adds(files)
    ]


def _repeatable_time(time_ms: int | None) -> int:
    return 0 if time_ms is None or abs(time_ms) > LAST_MS else time_ms


def table_to_removes(files: pa.Table) -> list[RemoveFile]:
    """The rows as values; only for the few files that a transaction changes."""
    return [
        RemoveFile(
            path=row["path"],
            deletion_timestamp=row["deletionTimestamp"],
            data_change=row["dataChange"],
            extended_file_metadata=row["extendedFileMetadata"],
            partition_values=optional_dict(row["partitionValues"]),
            size=row["size"],
            stats=row["stats"],
            tags=optional_dict(row["tags"]),
            deletion_vector=_vector(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
        )
        for row in files.to_pylist()
    ]


def remove_of(file: AddFile, *, data_change: bool, deletion_timestamp: int | None = None) -> RemoveFile:
    """The ``remove`` of a live file, with its extended metadata and deletion vector.

    Args:
        file: the live file.
        data_change: false if the same rows are added again by other files of the commit.
        deletion_timestamp: epoch milliseconds; a transaction sets it when it commits.
    """
    return RemoveFile(
        path=file.path,
        data_change=data_change,
        deletion_timestamp=deletion_timestamp,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
        tags=file.tags,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
    )


def removes_of(adds: pa.Table, *, data_change: bool, deletion_timestamp: int | None = None) -> tuple[RemoveFile, ...]:
    """:func:`remove_of` each row of ``adds``."""
    files = table_to_adds(adds)
    return tuple(remove_of(file, data_change=data_change, deletion_timestamp=deletion_timestamp) for file in files)


def partition_column(files: pa.Table, physical_name: str) -> pa.Array:
    """The partition values of one column as text, one per file; null for null and for the empty string."""
    return partition_texts(files.column("partitionValues"), physical_name)


def partition_texts(maps: pa.ChunkedArray, physical_name: str) -> pa.Array:
    """As :func:`partition_column`, for a column of ``partitionValues``."""
    chunks = [_looked_up(chunk, physical_name) for chunk in maps.chunks]
    values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())
    is_empty = pc.equal(values, "")
    return pc.if_else(is_empty, pa.scalar(None, pa.string()), values) if pc.any(is_empty).as_py() else values


def _looked_up(maps: pa.MapArray, name: str) -> pa.Array:
    """The value of the key ``name`` in each map. If all maps have the same keys in the same order, it is every k-th item."""
    offsets = maps.offsets.to_numpy()
    width = int(offsets[1] - offsets[0]) if len(maps) else 0
    if maps.null_count == 0 and width and np.array_equal(offsets, offsets[0] + width * np.arange(len(offsets))):
        start, count = int(offsets[0]), width * len(maps)
        keys = maps.keys.slice(start, count)
        for position in range(width):
            if keys[position].as_py() != name:
                continue
            places = pa.array(np.arange(position, count, width))
            same = keys if width == 1 else keys.take(places)
            if pc.all(pc.equal(same, name)).as_py():
                items = maps.items.slice(start, count)
                return items if width == 1 else items.take(places)
            break
    return pc.map_lookup(maps, pa.scalar(name, pa.string()), "first").cast(pa.string())


def dv_ids(files: pa.Table) -> pa.Array:
    """``unique_id`` of the deletion vector of each file; null without a deletion vector."""
    column = files.column("deletionVector").combine_chunks()
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    base = pc.binary_join_element_wise(
        pc.struct_field(column, "storageType"), pc.struct_field(column, "pathOrInlineDv"), ""
    )
    offset = pc.struct_field(column, "offset").cast(pa.string())
    with_offset = pc.binary_join_element_wise(base, offset, "@")
    ids = pc.if_else(pc.is_null(offset), base, with_offset)
    return pc.if_else(pc.is_valid(column), ids, pa.scalar(None, pa.string()))


def refuse_incomplete(files: pa.Table) -> None:
    """Raise ValueError if a deletion vector lacks a required field. Ignoring the vector would return deleted rows."""
    column = files.column("deletionVector")
    if column.null_count == len(column):
        return
    vectors = column.drop_null()
    for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
        if pc.struct_field(vectors, name).null_count:
            raise ValueError(f"a deletion vector without {name}")


def _vector(fields: Mapping[str, Any] | None) -> DeletionVectorDescriptor | None:
    return None if fields is None else deletion_vector_of(fields)


def _items(values: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if values is None else list(values.items())


def with_data_change(files: pa.Table) -> pa.Table:
    """The file actions that change data; an absent ``dataChange`` counts as true."""
    changes = pc.fill_null(files["dataChange"], True)
    return files if pc.all(changes, min_count=0).as_py() else files.filter(changes)


def size_of(files: pa.Table) -> int:
    """The total size of the files in bytes."""
    return int(pc.sum(files["size"]).as_py() or 0)
