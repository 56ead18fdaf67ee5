"""Field ids of elements, keys and values in data files (protocol heading "Iceberg Compatibility V2").

Spark stores ids of columns and fields only. So files with arrays or maps are written again by pyarrow, one after the other, before
they are committed.
"""

import io
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.iceberg_compat import NESTED_IDS, active_versions, has_collections
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType
from cm_delta_dagster.storage.discard import discard
from cm_delta_dagster.storage.store import ObjectStatus, Store

_ID = b"PARQUET:field_id"


def needs_nested_ids(layout: TableLayout) -> bool:
    """Whether data files must have these ids."""
    return 2 in active_versions(layout.properties.configuration) and has_collections(layout.schema)


def store_nested_ids(
    store: Store, files: Sequence[tuple[ObjectStatus, str]], layout: TableLayout
) -> list[tuple[ObjectStatus, str]]:
    """Write the files again with the ids of the schema, under other names; delete the old files, and return the new ones.

    Args:
        files: each with its path below the directory of the write.
    """
    return [
        (_rewritten(store, status.location, _new_name(status.location), layout), _new_name(relative))
        for status, relative in files
    ]


def _new_name(path: str) -> str:
    # Hadoop's local file system keeps a checksum of a file under its name, so the name is not used again.
    return f"{path.removesuffix('.parquet')}-ids.parquet"


def _rewritten(store: Store, location: str, target_location: str, layout: TableLayout) -> ObjectStatus:
    source = pq.ParquetFile(io.BytesIO(store.read(location)))
    fields = _fields(list(source.schema_arrow), layout.schema, layout.mapping)
    schema = pa.schema(fields, metadata=source.schema_arrow.metadata)
    codec = source.metadata.row_group(0).column(0).compression if source.metadata.num_row_groups else "SNAPPY"
    target = io.BytesIO()
    with pq.ParquetWriter(target, schema, compression=codec.lower(), store_schema=False) as writer:
        for group in range(source.metadata.num_row_groups):
            writer.write_table(source.read_row_group(group))
    store.write(target_location, target.getvalue())
    parent, _, name = location.rpartition("/")
    for old in (location, f"{parent}/.{name}.crc"):
        discard(store, old)
    return store.stat(target_location)


def _fields(stored: Sequence[pa.Field], schema: StructType, mapping: ColumnMappingMode) -> list[pa.Field]:
    known = {physical_name(item, mapping): item for item in schema.fields}
    return [_field(field, known[field.name], mapping) if field.name in known else field for field in stored]


def _field(field: pa.Field, item: StructField, mapping: ColumnMappingMode) -> pa.Field:
    ids = item.metadata.get(NESTED_IDS) or {}
    return field.with_type(_type(field.type, item.type, physical_name(item, mapping), ids, mapping))


def _type(
    stored: pa.DataType, data_type: DataType, path: str, ids: Mapping[str, int], mapping: ColumnMappingMode
) -> pa.DataType:
    def part(field: pa.Field, inner: DataType, name: str) -> pa.Field:
        here = f"{path}.{name}"
        if here not in ids:
            raise CorruptLogError(
                f"The schema in the log has no id for {here!r}, which a table with Iceberg compatibility V2 must have. Nothing was "
                "committed. Disable the compatibility, or write with the client that enabled it."
            )
        metadata = {**(field.metadata or {}), _ID: str(ids[here]).encode()}
        return field.with_type(_type(field.type, inner, here, ids, mapping)).with_metadata(metadata)

    match data_type:
        case StructType():
            return pa.struct(_fields(list(stored), data_type, mapping))
        case ArrayType():
            return pa.list_(part(stored.value_field, data_type.element_type, "element"))
        case MapType():
            return pa.map_(
                part(stored.key_field, data_type.key_type, "key"),
                part(stored.item_field, data_type.value_type, "value"),
            )
        case _:
            return stored
