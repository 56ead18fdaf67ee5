"""The standard metadata of an asset's definition: table name, storage kind, and, of a table that exists, its location and columns.

Dagster shows them before the first run. Pure functions: the caller looks the table up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cm_delta_dagster.orchestration.metadata.metadata import standard_metadata
from cm_delta_dagster.orchestration.metadata.metadata_keys import DEFAULT_READ_KEYS, WRITE_KEYS, own_entries
from cm_delta_dagster.orchestration.metadata.write_contract import NamingDefaults, table_identifier
from cm_delta_dagster.protocol.schema.types import StructType


def definition_metadata(
    metadata: Mapping[str, Any],
    *,
    asset_path: Sequence[str],
    names: NamingDefaults,
    location: str | None = None,
    schema: StructType | None = None,
) -> dict[str, Any]:
    """The standard keys that the definition of an asset lacks; add them to its metadata.

    Args:
        metadata: metadata of the asset's definition. Its own values of the standard keys have priority.
        asset_path: parts of the asset key.
        names: default catalog and schema, as those of the IO manager.
        location: URI of the table; None if it does not exist yet.
        schema: columns of the table; None if it does not exist yet.

    Returns:
        ``dagster/table_name`` and ``dagster/storage_kind``, and ``dagster/uri`` and ``dagster/column_schema`` if given.

    Raises:
        InvalidArgumentError: a key is misspelt, or the metadata does not name a table.
    """
    place = f"The metadata of {'/'.join(asset_path)}" if asset_path else "The output's metadata"
    entries = own_entries(metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, place=place)
    table = str(table_identifier(entries, asset_path=asset_path, names=names))
    standard = standard_metadata(table=table, location=location, schema=schema, counts=None)
    return {key: value for key, value in standard.items() if key not in metadata}
