"""Names of columns in data files of a table with column mapping in ``id`` mode (protocol heading "Column Mapping").

Spark matches columns by ``field_id`` only if a setting of the session enables it, and even then pushes filters down by name.
This module takes the names from the footers; files with the same names are read together, by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.changes.change_data_feed import is_change_type
from cm_delta_dagster.protocol.features.column_mapping import field_id
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType
from cm_delta_dagster.spark.expressions.columns import Names
from cm_delta_dagster.spark.read.footers import read_footers
from cm_delta_dagster.storage.store import Store

_ID = b"PARQUET:field_id"
_ABSENT = "__cm_delta_absent_"
_THREADS = 16


def names_by_file(store: Store, schema: StructType, locations: Sequence[str]) -> list[Mapping[ColumnPath, str]]:
    """For each file, the name of every field of ``schema``; an unused name if the file does not have the id.

    Args:
        schema: the columns that files may hold, without partition columns.

    Raises:
        CorruptLogError: a file has no field ids, or the same id twice.
        StorageError: a file is missing or not a Parquet file.
    """
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        statuses = list(pool.map(store.stat, locations))
    return [
        _names(schema, footer.schema.to_arrow_schema(), status.location)
        for footer, status in zip(read_footers(store, statuses), statuses, strict=True)
    ]


def is_absent(name: str) -> bool:
    """Whether ``name`` stands for a field whose id the file does not have."""
    return name.startswith(_ABSENT)


def as_names(names: Mapping[ColumnPath, str]) -> Names:
    """The names as an argument of :func:`~cm_delta_dagster.spark.expressions.columns.stored_schema`."""
    return lambda path, _: names[path]


def group_by_names(
    names_of_files: Sequence[Mapping[ColumnPath, str]],
) -> Iterator[tuple[Mapping[ColumnPath, str], list[int]]]:
    """The distinct sets of names, each with the positions of the files that have them."""
    groups: dict[tuple[tuple[ColumnPath, str], ...], list[int]] = {}
    for position, names in enumerate(names_of_files):
        groups.setdefault(tuple(names.items()), []).append(position)
    for key, positions in groups.items():
        yield dict(key), positions


def _names(schema: StructType, columns: pa.Schema, file: str) -> dict[ColumnPath, str]:
    if schema.fields and len(columns) and not any(map(_has_ids, columns)):
        raise CorruptLogError(
            f"The data file {file} has no field ids, by which the columns of a table with column mapping in id mode are "
            "found; nothing is read, because its columns cannot be identified. Write the file again with ids."
        )
    names: dict[ColumnPath, str] = {}
    _match(schema, list(columns), (), names, file)
    return names


def _match(
    schema: StructType, columns: Sequence[pa.Field], above: ColumnPath, names: dict[ColumnPath, str], file: str
) -> None:
    by_id: dict[int, pa.Field] = {}
    for column in columns:
        if (identifier := _id(column)) is not None:
            if identifier in by_id:
                raise CorruptLogError(
                    f"The data file {file} gives the field id {identifier} to two columns, {by_id[identifier].name!r} and "
                    f"{column.name!r}; which one holds the values cannot be known. Nothing is read."
                )
            by_id[identifier] = column
    for item in schema.fields:
        path = (*above, item.name)
        if not above and is_change_type(item):
            names[path] = item.name  # Change data files have no field id for ``_change_type``.
            continue
        column = by_id.get(field_id(item))
        names[path] = _absent(item, columns) if column is None else column.name
        _match_type(item.type, None if column is None else column.type, path, names, file)


def _match_type(
    data_type: DataType, stored_type: pa.DataType | None, path: ColumnPath, names: dict[ColumnPath, str], file: str
) -> None:
    match data_type:
        case StructType():
            _match(
                data_type,
                list(stored_type) if stored_type is not None and pa.types.is_struct(stored_type) else [],
                path,
                names,
                file,
            )
        case ArrayType():
            element = stored_type.value_type if stored_type is not None and pa.types.is_list(stored_type) else None
            _match_type(data_type.element_type, element, (*path, "element"), names, file)
        case MapType():
            entries = stored_type if stored_type is not None and pa.types.is_map(stored_type) else None
            key, value = (None, None) if entries is None else (entries.key_type, entries.item_type)
            _match_type(data_type.key_type, key, (*path, "key"), names, file)
            _match_type(data_type.value_type, value, (*path, "value"), names, file)
        case _:
            pass


def _absent(item: StructField, columns: Sequence[pa.Field]) -> str:
    name = f"{_ABSENT}{field_id(item)}"
    taken = {column.name.lower() for column in columns}
    while name in taken:
        name += "_"
    return name


def _has_ids(column: pa.Field) -> bool:
    return _id(column) is not None or any(_has_ids(inner) for inner in _children(column.type))


def _children(data_type: Any) -> list[pa.Field]:
    return [data_type.field(position) for position in range(data_type.num_fields)]


def _id(column: pa.Field) -> int | None:
    text = (column.metadata or {}).get(_ID)
    return None if text is None else int(text)
