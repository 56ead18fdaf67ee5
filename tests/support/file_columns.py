"""Remove actions as a table."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from cm_delta_dagster.protocol.actions.action_fields import deletion_vector_fields
from cm_delta_dagster.protocol.actions.actions import RemoveFile
from cm_delta_dagster.protocol.actions.file_columns import REMOVE_SCHEMA


def removes_to_table(files: Iterable[RemoveFile]) -> pa.Table:
    """``files`` as columns of ``REMOVE_SCHEMA``."""
    rows = list(files)
    return pa.table(
        {
            "path": [file.path for file in rows],
            "deletionTimestamp": [file.deletion_timestamp for file in rows],
            "dataChange": [file.data_change for file in rows],
            "extendedFileMetadata": [file.extended_file_metadata for file in rows],
            "partitionValues": [list_of_items(file.partition_values) for file in rows],
            "size": [file.size for file in rows],
            "stats": [file.stats for file in rows],
            "tags": [list_of_items(file.tags) for file in rows],
            "deletionVector": [deletion_vector_fields(file.deletion_vector) for file in rows],
            "baseRowId": [file.base_row_id for file in rows],
            "defaultRowCommitVersion": [file.default_row_commit_version for file in rows],
        },
        schema=REMOVE_SCHEMA,
    )


def list_of_items(values: Mapping[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if values is None else list(values.items())
