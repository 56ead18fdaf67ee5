"""Checks of a ``metaData`` action that do not depend on table features (protocol heading "Change Metadata").

``table_features`` checks features; data files are checked when they are read.
"""

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.action_fields import NO_SCHEMA
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.schema.types import parse_schema


def check_metadata(metadata: Metadata, table: str, *, version: int | None = None) -> None:
    """Refuse metadata with which no row of the table can be read.

    Args:
        table: name of the table in error messages.
        version: of the commit that set the metadata, if it is known.

    Raises:
        UnsupportedFeatureError: the data files are not Parquet.
        CorruptLogError: the schema cannot be read, or a partition column is not one of its columns; names the field.
    """
    if metadata.format_provider != "parquet":
        raise UnsupportedFeatureError(
            f"Table {table} has data files of the format {metadata.format_provider!r}; this client reads Parquet only."
        )

    def damaged(field: str, why: str) -> CorruptLogError:
        commit = "" if version is None else f" of the commit of version {version}"
        return CorruptLogError(
            f"Table {table} cannot be read because of metaData.{field}{commit}: {why}",
            version=version,
            action="metaData",
            field=field,
        )

    if metadata.schema_string == NO_SCHEMA:
        raise damaged("schemaString", "it is missing, so the columns are not known. Read another version.")
    try:
        schema = parse_schema(metadata.schema_string)
    except CorruptLogError as error:
        raise damaged("schemaString", str(error)) from error
    unknown = [name for name in metadata.partition_columns if schema.field(name) is None]
    if unknown or len(set(metadata.partition_columns)) < len(metadata.partition_columns):
        columns = ", ".join(metadata.partition_columns)
        raise damaged(
            "partitionColumns",
            f"the partition columns are {columns}, and they must be different columns of the schema, "
            f"{', '.join(schema.names)}. The metadata is damaged.",
        )
