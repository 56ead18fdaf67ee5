"""What a RESTORE changes: files, metadata and protocol (protocol heading "Add File and Remove File").

The state of an older version becomes the next version. A logical file is identified by its path and its deletion vector, so a file
that has another deletion vector since is removed with the new one and added with the old one.
"""

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features.column_ids import MAX_COLUMN_ID, recorded_column_id
from cm_delta_dagster.protocol.features.identity_columns import with_marks_kept
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from cm_delta_dagster.protocol.features.table_properties import (
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
    IN_COMMIT_TIMESTAMPS_KEY,
    TABLE_ID_KEY,
)

_CHECKPOINT_PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"
_OF_THE_LOG = (
    IN_COMMIT_TIMESTAMPS_KEY,
    ENABLEMENT_VERSION_KEY,
    ENABLEMENT_TIMESTAMP_KEY,
    _CHECKPOINT_PROTECTION,
    TABLE_ID_KEY,
)
"""Properties that describe the log itself, which a RESTORE continues, and the catalog's id of the table: a version before a catalog
managed the table has none or another one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileDifference:
    """The files that lead from one state to another, as add actions (columns of ``file_columns.ADD_SCHEMA``).

    Attributes:
        removed: files of the first state that the second does not have.
        added: files of the second state that the first does not have.
    """

    removed: pa.Table
    added: pa.Table


def file_difference(current: pa.Table, target: pa.Table, *, location: str) -> FileDifference:
    """Compare two tables of live files of the table at ``location`` by path and deletion vector.

    Raises:
        CorruptLogError: a path in the log is not valid.
    """
    current_keys, target_keys = _logical_files(current, location), _logical_files(target, location)
    return FileDifference(
        removed=current.filter(pc.invert(pc.is_in(current_keys, value_set=target_keys))),
        added=target.filter(pc.invert(pc.is_in(target_keys, value_set=current_keys))),
    )


def _logical_files(files: pa.Table, location: str) -> pa.Array:
    # Neither part contains a line feed.
    vectors = pc.fill_null(dv_ids(files), "")
    return pc.binary_join_element_wise(file_keys(location, files["path"]), vectors, "\n")


def restored_metadata(current: Metadata, target: Metadata) -> Metadata:
    """The metadata of ``target`` as the successor of ``current``.

    Properties of the log itself stay. Numbers that must not be used twice do not go back: the high-water marks of identity columns
    and the highest column id.
    """
    configuration = {key: value for key, value in target.configuration.items() if key not in _OF_THE_LOG}
    configuration |= log_properties(current)
    recorded = (recorded_column_id(item.configuration) for item in (current, target))
    if ids := [number for number in recorded if number is not None]:
        configuration[MAX_COLUMN_ID] = str(max(ids))
    return with_marks_kept(
        current,
        replace(
            target, id=current.id, created_time=current.created_time, name=current.name, configuration=configuration
        ),
    )


def log_properties(metadata: Metadata) -> dict[str, str]:
    """The properties that describe the log itself, and the catalog's id of the table."""
    return {key: value for key, value in metadata.configuration.items() if key in _OF_THE_LOG}


def restored_protocol(current: Protocol, target: Protocol) -> Protocol:
    """``current``, with the features of ``target`` that were dropped since. A protocol is never lowered.

    Raises:
        UnsupportedFeatureError: this client does not support such a feature.
    """
    supported = writer_features(current) | reader_features(current)
    return with_features(current, (writer_features(target) | reader_features(target)) - supported)
