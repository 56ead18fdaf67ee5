"""Whether the metadata of a commit defines a table that clients can read and write (protocol heading "Change Metadata").

In-commit timestamps must be active (protocol heading "Writer Requirements for Catalog-managed tables").

Readers are more lenient: they read what they can of a table whose definition other catalogs or file systems accepted.
"""

from collections.abc import Iterator, Mapping, Sequence

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.actions.json_text import MAX_DEPTH
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.commits.proposal_rules import flaw_of_value
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, ColumnMappingMode, field_id, physical_name
from cm_delta_dagster.protocol.features.table_properties import (
    IN_COMMIT_TIMESTAMPS_KEY,
    VALUE_CHECKS,
    TableProperties,
)
from cm_delta_dagster.protocol.features.type_widening import check_type_changes
from cm_delta_dagster.protocol.schema.types import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
    walk_fields,
)

_OF_OTHER_CLIENTS = frozenset({"delta.parquet.compression.codec"})
"""Properties that have values with which only other clients work."""


def flaw_of_definition(metadata: Metadata) -> CommitFlaw | None:
    """The first flaw of the columns and properties; None if there is none.

    Args:
        metadata: with a valid schema.
    """
    schema = parse_schema(metadata.schema_string)
    field, why = "schemaString", _flaw_of_depth(schema) or _flaw_of_names(schema) or _flaw_of_type_changes(schema)
    if why is None:
        field, why = "partitionColumns", _flaw_of_partition_columns(schema, metadata.partition_columns)
    if why is None:
        field, why = "configuration", _flaw_of_properties(metadata.configuration)
    if why is None:
        mode = ColumnMappingMode(TableProperties(metadata.configuration).column_mapping_mode)
        field, why = "schemaString", None if mode is ColumnMappingMode.NONE else _flaw_of_mapping(schema, mode)
    return None if why is None else CommitFlaw(action="metaData", field=field, why=why)


def _flaw_of_depth(schema: StructType) -> str | None:
    """Types and metadata of columns that nest more than ``MAX_DEPTH`` others, which not every parser reads."""
    for item in schema.fields:
        if _nests_more(item.type, MAX_DEPTH):
            return f"has the column {item.name!r}, whose type nests more than {MAX_DEPTH} types"
    for path, item in walk_fields(schema):
        wrong = flaw_of_value(item.metadata)
        if wrong is not None:
            return f"has metadata of column {'.'.join(path)!r} that {wrong}"
    return None


def _nests_more(data_type: DataType, depth: int) -> bool:
    if depth == 0:
        return True
    match data_type:
        case StructType():
            return any(_nests_more(item.type, depth - 1) for item in data_type.fields)
        case ArrayType():
            return _nests_more(data_type.element_type, depth - 1)
        case MapType():
            return _nests_more(data_type.key_type, depth - 1) or _nests_more(data_type.value_type, depth - 1)
        case _:
            return False


def _flaw_of_partition_columns(schema: StructType, columns: Sequence[str]) -> str | None:
    """A partition column whose values have no text."""
    for name in columns:
        item = schema.field(name)
        if item is not None and (isinstance(item.type, ArrayType | MapType | StructType) or item.type == VARIANT):
            return (
                f"names the column {name!r} of type {data_type_text(item.type)}, which a partition column cannot have"
            )
    return None


def _flaw_of_names(schema: StructType) -> str | None:
    """Names that are empty, or that denote two fields of one struct, as clients compare them: ignoring case."""
    names: dict[tuple[str, ...], str] = {}
    for path, field in walk_fields(schema):
        column = ".".join(path)
        if not field.name:
            return f"has a column without a name: {column!r}"
        key = tuple(map(str.lower, path))
        if key in names:
            return f"has the columns {names[key]!r} and {column!r}, which are the same to clients that ignore case"
        names[key] = column
    return None


def _flaw_of_type_changes(schema: StructType) -> str | None:
    try:
        check_type_changes(schema)
    except (CorruptLogError, UnsupportedFeatureError) as error:
        return f"has a change of type that the protocol does not permit. {str(error).removesuffix('.')}"
    return None


def _flaw_of_properties(configuration: Mapping[str, str]) -> str | None:
    """The value of a known property with which no client works; unknown properties have any value."""
    for key in configuration.keys() & VALUE_CHECKS.keys() - _OF_OTHER_CLIENTS:
        try:
            VALUE_CHECKS[key](key, configuration[key])
        except InvalidArgumentError as error:
            return f"has a value with which no client works. {str(error).removesuffix('.')}"
        except ValueError:  # Python parses no number of more digits than MAX_DIGITS.
            return f"has a value of {key!r} with more digits than clients read"
    if not TableProperties(configuration).in_commit_timestamps_enabled:
        return f"does not set {IN_COMMIT_TIMESTAMPS_KEY} to true, which catalogManaged requires"
    return None


def _flaw_of_mapping(schema: StructType, mode: ColumnMappingMode) -> str | None:
    """Fields without an id or a physical name, or two with the same one.

    Physical names are compared within a struct, as clients compare the names in data files: ignoring case.
    """
    ids: dict[int, str] = {}
    names: dict[tuple[str, ...], str] = {}
    try:
        for path, physical_path, field in _physical_paths(schema, mode):
            column = ".".join(path)
            identity = field_id(field)
            if identity in ids:
                return f"has the {COLUMN_ID} {identity} in the columns {ids[identity]!r} and {column!r}"
            key = tuple(map(str.lower, physical_path))
            if key in names:
                return f"has the physical name {physical_path[-1]!r} in the columns {names[key]!r} and {column!r}"
            ids[identity] = names[key] = column
    except CorruptLogError as error:
        return f"is damaged. {str(error).removesuffix('.')}"
    return None


def _physical_paths(
    schema: StructType, mode: ColumnMappingMode
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], StructField]]:
    """Each field with its logical and its physical path, parents first. Raises CorruptLogError for one without a physical name."""
    physical: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path, field in walk_fields(schema):
        parent = next((path[:end] for end in range(len(path) - 1, 0, -1) if path[:end] in physical), ())
        physical[path] = (*physical.get(parent, ()), *path[len(parent) : -1], physical_name(field, mode))
        yield path, physical[path], field
