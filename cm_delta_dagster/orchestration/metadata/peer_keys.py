"""Keys and arguments by which other writers and readers select rows, and what to write here in metadata.

They are those of dagster-polars, dagster-deltalake, dagster-delta and dagster-iceberg, of the packages deltalake and PyIceberg,
of Spark and pandas, and of dbt and dlt.
"""

from collections.abc import Collection, Mapping

from cm_delta_dagster.orchestration.metadata.similar_keys import letters, similar_key

_MERGE = "write 'mode': 'merge' with the key columns 'on' and 'merge_mode'"
_MODE = "write 'mode': 'append', 'overwrite', 'replace_where', 'merge' or 'error_if_exists'"
_REPLACE_WHERE = "write 'mode': 'replace_where' with the condition 'where'"
_REPLACE_SCHEMA = "write 'schema_mode': 'overwrite'"
_VERSION = "write 'version' or 'timestamp'"
_CONDITION = "write the condition 'where'"
_CHANGES = "write 'changes': True, and 'changes_from'"

WRITER_KEYS: Mapping[str, str] = {
    "delta_write_options": "write its entries as metadata keys of their own: 'schema_mode', 'table_properties', and "
    "'partition_expr' in place of a predicate of partitions",
    "delta_merge_options": _MERGE,
    "overwrite_schema": _REPLACE_SCHEMA,
    "merge_schema": "write 'schema_mode': 'merge'",
    "custom_metadata": "set commit_tags or user_metadata of the CatalogResource",
    "root_name": "write 'table'",
    "append": "write 'mode': 'append'",
    "overwrite": "write 'mode': 'overwrite'",
    "merge": _MERGE,
    "upsert": _MERGE,
    "upsert_options": _MERGE,
    "primary_key": _MERGE,
    "primary_keys": _MERGE,
    "unique_key": _MERGE,
    "unique_keys": _MERGE,
    "merge_operations_config": "write 'mode': 'merge' with 'on' and 'merge_clauses'",
    "predicate": _REPLACE_WHERE,
    "overwrite_filter": _REPLACE_WHERE,
    "partition_filters": _REPLACE_WHERE,
    "insert_overwrite": _REPLACE_WHERE,
    "partition_overwrite_mode": "partition the asset and write 'partition_expr', or write 'mode': 'replace_where'",
    "dynamic_partition_overwrite": "partition the asset and write 'partition_expr', or write 'mode': 'replace_where'",
    "output_mode": _MODE,
    "if_exists": _MODE,
    "write_disposition": _MODE,
    "incremental_strategy": _MODE,
}
"""Of assets and their outputs."""

READER_KEYS: Mapping[str, str] = {
    "delta_table_options": f"{_VERSION}; storage_options belong to the CatalogResource",
    "pyarrow_options": "write 'columns', and the condition 'where'",
    "predicate": _CONDITION,
    "row_filter": _CONDITION,
    "partition_filters": _CONDITION,
    "condition": _CONDITION,
    "selected_fields": "write 'columns'",
    "version_as_of": _VERSION,
    "timestamp_as_of": _VERSION,
    "snapshot_id": _VERSION,
    "read_change_feed": _CHANGES,
    "starting_version": _CHANGES,
    "starting_timestamp": _CHANGES,
}
"""Of inputs."""


def peer_hint(key: str, known: Collection[str]) -> str | None:
    """What to write in place of a key of another writer or reader; None for other keys, and where it has no meaning.

    Args:
        known: the keys that are valid in that place.
    """
    hints: dict[str, str] = {}
    if "mode" in known:
        hints |= {letters(name): hint for name, hint in WRITER_KEYS.items()}
    if "version" in known:
        hints |= {letters(name): hint for name, hint in READER_KEYS.items()}
    return similar_key(key, hints)
