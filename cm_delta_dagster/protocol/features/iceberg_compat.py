"""What a table that Iceberg readers open must and must not have (protocol headings "Iceberg Compatibility V1",
"Iceberg Compatibility V2").

Pure rules about the definition of a table. Writers also store partition columns in data files, and in V2 the ids of elements, keys
and values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.column_ids import ColumnIds
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    map_fields,
    walk_types,
)
from cm_delta_dagster.remedies import DropTableFeature, Remedy

KEYS: Mapping[int, str] = {1: "delta.enableIcebergCompatV1", 2: "delta.enableIcebergCompatV2"}
"""The properties that enable the versions."""
NESTED_IDS = "delta.columnMapping.nested.ids"
"""Key in the metadata of a field: the ids of the elements, keys and values below it, by dotted path."""

NEEDED_AT_CREATION: Mapping[str, str] = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "false"}
"""Properties that a new table with Iceberg compatibility gets."""

_V2_TYPES = (
    BYTE,
    SHORT,
    INTEGER,
    LONG,
    FLOAT,
    DOUBLE,
    STRING,
    BINARY,
    BOOLEAN,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DATE,
)


def active_versions(configuration: Mapping[str, str]) -> tuple[int, ...]:
    """The versions that the properties of a table enable."""
    return tuple(version for version, key in KEYS.items() if configuration.get(key, "").lower() == "true")


def check_iceberg_compat(
    schema: StructType,
    configuration: Mapping[str, str],
    *,
    mapping: ColumnMappingMode,
    lists_vectors: bool,
    writes_vectors: bool,
) -> None:
    """Refuse the definition of a table that has Iceberg compatibility enabled and does not comply with it.

    Args:
        lists_vectors: the protocol lists ``deletionVectors``.
        writes_vectors: the table has ``delta.enableDeletionVectors``.

    Raises:
        InvalidArgumentError: names the rule.
    """
    versions = active_versions(configuration)
    if not versions:
        return
    if len(versions) > 1:
        raise _refused(versions[0], "the other version is enabled too", "Disable one of them.")
    (version,) = versions
    if mapping is ColumnMappingMode.NONE:
        raise _refused(version, "the table has no column mapping", "Set delta.columnMapping.mode = 'name' first.")
    if version == 1 and lists_vectors:
        raise _refused(
            version, "the table has the feature deletionVectors", remedy=DropTableFeature(feature="deletionVectors")
        )
    if writes_vectors:
        raise _refused(version, "deletion vectors are enabled", "Set delta.enableDeletionVectors = 'false'.")
    for data_type in walk_types(schema):
        if not _is_allowed(data_type, version):
            raise _refused(version, f"Iceberg does not have the type {data_type_text(data_type)}", "Use another type.")


def _is_allowed(data_type: DataType, version: int) -> bool:
    if version == 1:
        return not isinstance(data_type, ArrayType | MapType) and data_type != VOID
    return data_type in _V2_TYPES or isinstance(data_type, DecimalType | ArrayType | MapType | StructType)


def check_partitioning_kept(before: tuple[str, ...], after: tuple[str, ...], configuration: Mapping[str, str]) -> None:
    """Refuse partition columns of other names while Iceberg compatibility is enabled. Raises InvalidArgumentError."""
    versions = active_versions(configuration)
    if versions and [name.lower() for name in before] != [name.lower() for name in after]:
        raise _refused(
            versions[0],
            f"the partition columns would change from {list(before)} to {list(after)}",
            "Keep them, or write the rows to another table.",
        )


def has_collections(schema: StructType) -> bool:
    """Whether the schema has an array or a map at any level."""
    return any(isinstance(data_type, ArrayType | MapType) for data_type in walk_types(schema))


def with_nested_ids(schema: StructType, ids: ColumnIds, mapping: ColumnMappingMode) -> StructType:
    """``schema``, whose fields have ids, in which elements, keys and values have ids too: their own, or new ones."""

    def completed(item: StructField) -> StructField:
        paths = list(_nested_paths(item.type, physical_name(item, mapping)))
        if not paths:
            return item
        known = dict(item.metadata.get(NESTED_IDS) or {})
        for path in paths:
            if path not in known:
                ids.highest += 1
                known[path] = ids.highest
        return replace(item, metadata={**item.metadata, NESTED_IDS: known})

    return map_fields(schema, completed)


def _nested_paths(data_type: DataType, path: str) -> Iterator[str]:
    """The elements, keys and values of a type, without those inside of structs."""
    match data_type:
        case ArrayType():
            inner = [("element", data_type.element_type)]
        case MapType():
            inner = [("key", data_type.key_type), ("value", data_type.value_type)]
        case _:
            inner = []
    for name, below in inner:
        yield f"{path}.{name}"
        yield from _nested_paths(below, f"{path}.{name}")


def _refused(version: int, reason: str, advice: str = "", *, remedy: Remedy | None = None) -> InvalidArgumentError:
    text = f"The table cannot have Iceberg compatibility V{version} ({KEYS[version]}): {reason}. Nothing was changed. {advice}"
    return InvalidArgumentError(text.rstrip()).with_remedy(remedy)
