"""Checks of a ``metaData`` action that do not depend on table features (protocol heading "Change Metadata").

``table_features`` checks features; data files are checked when they are read.
"""

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.action_fields import NO_SCHEMA
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.schema.types import parse_schema


def check_metadata(metadata: Metadata, table: str) -> None:
    """Refuse metadata with which no row of the table can be read.

    Args:
        table: name of the table in error messages.

    Raises:
        UnsupportedFeatureError: the data files are not Parquet.
        CorruptLogError: the schema cannot be read, or a partition column is not one of its columns.
    """
    if metadata.format_provider != "parquet":
        raise UnsupportedFeatureError(
            f"Table {table} has data files of the format {metadata.format_provider!r}; this client reads Parquet only."
        )
    if metadata.schema_string == NO_SCHEMA:
        raise CorruptLogError(
            f"Table {table} cannot be read: its metadata has no schemaString, so its columns are not known. Read another version."
        )
    try:
        schema = parse_schema(metadata.schema_string)
    except CorruptLogError as error:
        raise CorruptLogError(f"Table {table} cannot be read: {error}") from error
    unknown = [name for name in metadata.partition_columns if schema.field(name) is None]
    if unknown or len(set(metadata.partition_columns)) < len(metadata.partition_columns):
        raise CorruptLogError(
            f"Table {table} cannot be read: its partition columns are {', '.join(metadata.partition_columns)}, and they "
            f"must be different columns of its schema, {', '.join(schema.names)}. The metadata is damaged."
        )
