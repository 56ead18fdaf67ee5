"""What a RESTORE changes: files, metadata and protocol (protocol heading "Add File and Remove File").

The state of an older version becomes the next version. A logical file is identified by its path and its deletion vector, so a file
that has another deletion vector since is removed with the new one and added with the old one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from cm_delta_dagster.protocol.features.table_properties import (
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
    IN_COMMIT_TIMESTAMPS_KEY,
    TABLE_ID_KEY,
)
from cm_delta_dagster.protocol.schema.evolution import IDENTITY_PREFIX
from cm_delta_dagster.protocol.schema.types import StructField, StructType, parse_schema, schema_to_json

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
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

_HIGH_WATER_MARK = f"{IDENTITY_PREFIX}highWaterMark"
_STEP = f"{IDENTITY_PREFIX}step"


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
    ids = [item.configuration[MAX_COLUMN_ID] for item in (current, target) if MAX_COLUMN_ID in item.configuration]
    if ids:
        configuration[MAX_COLUMN_ID] = str(max(map(int, ids)))
    return replace(
        target,
        id=current.id,
        created_time=current.created_time,
        name=current.name,
        configuration=configuration,
        schema_string=_restored_schema(current.schema_string, target.schema_string),
    )


def log_properties(metadata: Metadata) -> dict[str, str]:
    """The properties that describe the log itself, and the catalog's id of the table."""
    return {key: value for key, value in metadata.configuration.items() if key in _OF_THE_LOG}


def _restored_schema(current: str, target: str) -> str:
    if _HIGH_WATER_MARK not in current:
        return target
    marks = {item.name.lower(): item.metadata for item in parse_schema(current).fields}
    schema = parse_schema(target)
    restored = StructType(tuple(_with_furthest_mark(item, marks.get(item.name.lower(), {})) for item in schema.fields))
    return target if restored == schema else schema_to_json(restored)


def _with_furthest_mark(item: StructField, current: Mapping[str, Any]) -> StructField:
    """``item`` with the high-water mark of ``current`` if that is further in the direction of its step."""
    step, mark = item.metadata.get(_STEP), current.get(_HIGH_WATER_MARK)
    if not isinstance(step, int) or not isinstance(mark, int):
        return item
    known = item.metadata.get(_HIGH_WATER_MARK)
    if isinstance(known, int):
        mark = max(known, mark) if step > 0 else min(known, mark)
    return replace(item, metadata={**item.metadata, _HIGH_WATER_MARK: mark})


def restored_protocol(current: Protocol, target: Protocol) -> Protocol:
    """``current``, with the features of ``target`` that were dropped since. A protocol is never lowered.

    Raises:
        UnsupportedFeatureError: this client does not support such a feature.
    """
    supported = writer_features(current) | reader_features(current)
    return with_features(current, (writer_features(target) | reader_features(target)) - supported)
