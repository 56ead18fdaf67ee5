"""File actions in bulk: Arrow tables of ``add`` and ``remove`` (protocol heading "Add File and Remove File").

Columns are named as the fields of a checkpoint (CKPT-7). A reader of a table never holds a Python object per file; the
conversions to :class:`AddFile` and :class:`RemoveFile` are for the few files that one transaction touches.
Does no JSON (:mod:`~cm_delta_dagster.protocol.action_json`) and no reconciliation.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions import AddFile, DeletionVectorDescriptor, RemoveFile

STRING_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

ADD_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", STRING_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRING_MAP),
        ("deletionVector", DELETION_VECTOR_TYPE),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)

REMOVE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", STRING_MAP),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("tags", STRING_MAP),
        ("deletionVector", DELETION_VECTOR_TYPE),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)


def _map_items(values: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if values is None else list(values.items())


def _vector_struct(vector: DeletionVectorDescriptor | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


_ADD_VALUES: Mapping[str, Callable[[AddFile], Any]] = {
    "path": lambda add: add.path,
    "partitionValues": lambda add: _map_items(add.partition_values),
    "size": lambda add: add.size,
    "modificationTime": lambda add: add.modification_time,
    "dataChange": lambda add: add.data_change,
    "stats": lambda add: add.stats,
    "tags": lambda add: _map_items(add.tags),
    "deletionVector": lambda add: _vector_struct(add.deletion_vector),
    "baseRowId": lambda add: add.base_row_id,
    "defaultRowCommitVersion": lambda add: add.default_row_commit_version,
    "clusteringProvider": lambda add: add.clustering_provider,
}

_REMOVE_VALUES: Mapping[str, Callable[[RemoveFile], Any]] = {
    "path": lambda remove: remove.path,
    "deletionTimestamp": lambda remove: remove.deletion_timestamp,
    "dataChange": lambda remove: remove.data_change,
    "extendedFileMetadata": lambda remove: remove.extended_file_metadata,
    "partitionValues": lambda remove: _map_items(remove.partition_values),
    "size": lambda remove: remove.size,
    "stats": lambda remove: remove.stats,
    "tags": lambda remove: _map_items(remove.tags),
    "deletionVector": lambda remove: _vector_struct(remove.deletion_vector),
    "baseRowId": lambda remove: remove.base_row_id,
    "defaultRowCommitVersion": lambda remove: remove.default_row_commit_version,
}


def adds_to_table(adds: Iterable[AddFile]) -> pa.Table:
    """A table of :data:`ADD_SCHEMA` with one row for each action, in order."""
    rows = tuple(adds)
    columns = [pa.array([_ADD_VALUES[field.name](row) for row in rows], field.type) for field in ADD_SCHEMA]
    return pa.Table.from_arrays(columns, schema=ADD_SCHEMA)


def removes_to_table(removes: Iterable[RemoveFile]) -> pa.Table:
    """A table of :data:`REMOVE_SCHEMA` with one row for each action, in order."""
    rows = tuple(removes)
    columns = [pa.array([_REMOVE_VALUES[field.name](row) for row in rows], field.type) for field in REMOVE_SCHEMA]
    return pa.Table.from_arrays(columns, schema=REMOVE_SCHEMA)


def _vector(value: Mapping[str, Any] | None) -> DeletionVectorDescriptor | None:
    if value is None or value["storageType"] is None:
        return None
    return DeletionVectorDescriptor(
        storage_type=value["storageType"],
        path_or_inline_dv=value["pathOrInlineDv"],
        size_in_bytes=value["sizeInBytes"],
        cardinality=value["cardinality"],
        offset=value["offset"],
    )


def _mapping(items: list[tuple[str, str | None]] | None) -> dict[str, str | None] | None:
    return None if items is None else dict(items)


def table_to_adds(table: pa.Table) -> list[AddFile]:
    """The rows of a table of adds as values; for the files of one transaction, not for a whole table."""
    return [
        AddFile(
            path=row["path"],
            partition_values=_mapping(row["partitionValues"]) or {},
            size=row["size"],
            modification_time=row["modificationTime"],
            data_change=row["dataChange"],
            stats=row["stats"],
            tags=_mapping(row["tags"]),
            deletion_vector=_vector(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
            clustering_provider=row["clusteringProvider"],
        )
        for row in conform_adds(table).to_pylist()
    ]


def table_to_removes(table: pa.Table) -> list[RemoveFile]:
    """The rows of a table of removes as values; for the files of one transaction, not for a whole table."""
    return [
        RemoveFile(
            path=row["path"],
            data_change=row["dataChange"],
            deletion_timestamp=row["deletionTimestamp"],
            extended_file_metadata=row["extendedFileMetadata"],
            partition_values=_mapping(row["partitionValues"]),
            size=row["size"],
            stats=row["stats"],
            tags=_mapping(row["tags"]),
            deletion_vector=_vector(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
        )
        for row in conform_removes(table).to_pylist()
    ]


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    names = set(table.column_names)
    columns = [
        table.column(field.name).cast(field.type) if field.name in names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def conform_adds(table: pa.Table) -> pa.Table:
    """The table with exactly the columns of :data:`ADD_SCHEMA`: absent ones null, others (parsed statistics) dropped."""
    return _conform(table, ADD_SCHEMA)


def conform_removes(table: pa.Table) -> pa.Table:
    """The table with exactly the columns of :data:`REMOVE_SCHEMA`: absent ones null, others dropped."""
    return _conform(table, REMOVE_SCHEMA)


def combined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One contiguous array of a column.

    Text of more than 2 GiB does not fit the 32-bit offsets of one Arrow string array; then the result has 64-bit offsets.
    """
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    if pa.types.is_string(column.type) and column.nbytes > 2**31 - 2**20:
        column = column.cast(pa.large_string())
    return pa.concat_arrays(column.chunks)


def dv_ids(table: pa.Table) -> pa.Array:
    """The ``dvId`` of each row (DV-13), null for a file without a deletion vector.

    Args:
        table: adds or removes.
    """
    vectors = table.column("deletionVector")
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), pa.string())
    storage = pc.struct_field(vectors, "storageType")
    base = pc.binary_join_element_wise(storage, pc.struct_field(vectors, "pathOrInlineDv"), "")
    offset = pc.struct_field(vectors, "offset").cast(pa.string())
    with_offset = pc.binary_join_element_wise(base, offset, "@")
    return combined(pc.coalesce(with_offset, base))


def partition_column(table: pa.Table, physical_name: str) -> pa.Array:
    """The text of one partition value of each row; the empty string, JSON null and an absent key are all null (PART-1)."""
    texts = combined(pc.map_lookup(table.column("partitionValues"), physical_name, "first"))
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def remove_of(add: AddFile, *, deletion_timestamp: int, data_change: bool) -> RemoveFile:
    """The ``remove`` of a live file, with everything that its ``add`` knows (FILE-8, FILE-9).

    Args:
        add: the live file.
        deletion_timestamp: wall-clock time of the removal, epoch milliseconds.
        data_change: False only if all its rows are in files added by the same commit (FILE-3).
    """
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        deletion_timestamp=deletion_timestamp,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def removes_of(adds: pa.Table, *, deletion_timestamp: int, data_change: bool) -> tuple[RemoveFile, ...]:
    """:func:`remove_of` for each row of a table of adds."""
    return tuple(
        remove_of(add, deletion_timestamp=deletion_timestamp, data_change=data_change) for add in table_to_adds(adds)
    )


def map_from_struct(column: pa.StructArray) -> pa.MapArray:
    """A struct of texts as map<string, string>: one entry for each field, in field order, nulls kept as null values."""
    rows, names = len(column), [field.name for field in column.type]
    width = len(names)
    positions = pa.array(range(rows * width), pa.int64())
    row = pc.divide(positions, width) if width else positions
    field = pc.subtract(positions, pc.multiply(row, width)) if width else positions
    keys = pa.array(names, pa.string()).take(field)
    if width:
        items = pa.concat_arrays([combined(child) for child in column.flatten()])
        values = items.take(pc.add(pc.multiply(field, rows), row))
    else:
        values = pa.array([], pa.string())
    # A null row keeps its slots in the children, so that offsets stay an arithmetic sequence; the mask hides them.
    offsets = pa.array(range(0, (rows + 1) * width, width) if width else [0] * (rows + 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, values, mask=column.is_null())


def drop_null_entries(column: pa.MapArray) -> pa.MapArray:
    """The map without entries whose value is null (a tag without a value says nothing)."""
    if column.items.null_count == 0:
        return column
    kept = pc.is_valid(column.items)
    running = pc.cumulative_sum(kept.cast(pa.int32()))
    counts = pa.concat_arrays([pa.array([0], pa.int32()), running])
    return pa.MapArray.from_arrays(
        counts.take(column.offsets), column.keys.filter(kept), column.items.filter(kept), mask=column.is_null()
    )
