"""Builds the rows of checkpoints from table states (protocol headings "Checkpoints", "V2 Spec", "V1 Spec").

Each row is one action: one struct column per kind of action, of which exactly one is not null. The caller encodes the rows,
names the files and writes them. Multi-part checkpoints are not built. ``checkpoint_reading`` is the inverse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.actions import (
    Metadata,
    Protocol,
    SidecarFile,
)
from cm_delta_dagster.protocol.actions.file_columns import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    partition_column,
)
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array, physical_values, states_zone
from cm_delta_dagster.protocol.features.column_mapping import column_mapping_mode, physical_name, physical_schema
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.checkpoint_content import SIDECAR_DIGEST_TAG
from cm_delta_dagster.protocol.log.stats_parsed import stats_struct
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, StructField, parse_schema

MAX_INLINE_FILE_ACTIONS = 20_000
"""A V2 checkpoint with at most this many file actions has no sidecars; another object would cost more than it saves."""

ROWS_PER_SIDECAR = 250_000

_MAP = pa.map_(pa.string(), pa.string())
_METADATA_TYPE = pa.struct(
    {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _MAP}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "createdTime": pa.int64(),
        "configuration": _MAP,
    }
)
_PROTOCOL_TYPE = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }
)
_TXN_TYPE = pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()})
_DOMAIN_TYPE = pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()})
_CHECKPOINT_METADATA_TYPE = pa.struct({"version": pa.int64(), "tags": _MAP})
_SIDECAR_TYPE = pa.struct(
    {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _MAP}
)
_NOT_IN_REMOVES = frozenset({"stats", "tags"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTables:
    """Rows of a checkpoint to be written: its top-level file, without the ``sidecar`` rows, and its sidecars."""

    top: pa.Table
    sidecars: tuple[pa.Table, ...] = ()

    @property
    def num_actions(self) -> int:
        """Number of actions in all files, ``sidecar`` actions not counted."""
        return int(self.top.num_rows + sum(table.num_rows for table in self.sidecars))


def build_checkpoint(
    state: TableState,
    *,
    now_ms: int,
    max_inline: int = MAX_INLINE_FILE_ACTIONS,
    rows_per_sidecar: int = ROWS_PER_SIDECAR,
) -> CheckpointTables:
    """Build the rows of a checkpoint of ``state``.

    It follows the V2 spec if the table supports ``v2Checkpoint`` and ``delta.checkpointPolicy`` is ``v2``, else the V1 spec.

    Args:
        now_ms: current time in epoch milliseconds; expired tombstones are left out.
        max_inline: number of file actions above which a V2 checkpoint has sidecars.
        rows_per_sidecar: maximum number of file actions in one sidecar.
    """
    properties = TableProperties(state.metadata.configuration)
    is_v2_spec = supports(state.protocol, "v2Checkpoint") and str(properties.checkpoint_policy) == "v2"
    rows = _small_rows(state)
    if is_v2_spec:
        rows.insert(
            0, _rows("checkpointMetadata", [{"version": state.version, "tags": None}], _CHECKPOINT_METADATA_TYPE)
        )
    files = pa.concat_tables(
        [
            _add_rows(state, properties),
            _remove_rows(state.files.removes, now_ms=now_ms, retention_ms=properties.deleted_file_retention_ms),
        ],
        promote_options="default",
    )
    if not is_v2_spec or files.num_rows <= max_inline:
        return CheckpointTables(top=_concat([*rows, files]))
    starts = range(0, files.num_rows, rows_per_sidecar)
    # delta-spark looks for an `add` column in the top-level file even when all file actions are in sidecars.
    return CheckpointTables(
        top=_concat([*rows, files.slice(0, 0)]),
        sidecars=tuple(files.slice(start, rows_per_sidecar).combine_chunks() for start in starts),
    )


def is_v2(tables: CheckpointTables) -> bool:
    """Whether the rows follow the V2 spec; only such a file may have a UUID in its name."""
    return "checkpointMetadata" in tables.top.column_names


def sidecar_action(name: str, *, size_in_bytes: int, modification_time: int, sha256: str | None = None) -> SidecarFile:
    """The action that refers to the sidecar file ``name``; ``modification_time`` in epoch milliseconds."""
    tags = None if sha256 is None else {SIDECAR_DIGEST_TAG: sha256}
    return SidecarFile(path=name, size_in_bytes=size_in_bytes, modification_time=modification_time, tags=tags)


def with_sidecars(top: pa.Table, sidecars: Sequence[SidecarFile]) -> pa.Table:
    """The top-level rows followed by one ``sidecar`` row per written sidecar."""
    if not sidecars:
        return top
    values = [
        {
            "path": sidecar.path,
            "sizeInBytes": sidecar.size_in_bytes,
            "modificationTime": sidecar.modification_time,
            "tags": _pairs(sidecar.tags),
        }
        for sidecar in sidecars
    ]
    return _concat([top, _rows("sidecar", values, _SIDECAR_TYPE)])


def _small_rows(state: TableState) -> list[pa.Table]:
    protocol, metadata = state.protocol, state.metadata
    transactions = sorted(state.transactions.values(), key=lambda txn: txn.app_id)
    domains = sorted(state.domains.values(), key=lambda domain: domain.domain)
    rows = [
        _rows("protocol", [_protocol_value(protocol)], _PROTOCOL_TYPE),
        _rows("metaData", [_metadata_value(metadata)], _METADATA_TYPE),
        _rows(
            "txn",
            [{"appId": txn.app_id, "version": txn.version, "lastUpdated": txn.last_updated} for txn in transactions],
            _TXN_TYPE,
        ),
        _rows(
            "domainMetadata",
            [
                {"domain": domain.domain, "configuration": domain.configuration, "removed": False}
                for domain in domains
                if not domain.removed
            ],
            _DOMAIN_TYPE,
        ),
    ]
    return rows


def _protocol_value(protocol: Protocol) -> dict[str, Any]:
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }


def _metadata_value(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": metadata.format_provider, "options": _pairs(metadata.format_options)},
        "schemaString": metadata.schema_string,
        "partitionColumns": metadata.partition_columns,
        "createdTime": metadata.created_time,
        "configuration": _pairs(metadata.configuration),
    }


def _rows(name: str, values: Sequence[Mapping[str, Any]], kind: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array(values, kind)})


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _add_rows(state: TableState, properties: TableProperties) -> pa.Table:
    files = state.files.adds.select(ADD_SCHEMA.names)
    schema = parse_schema(state.metadata.schema_string)
    mode = column_mapping_mode(state.protocol, state.metadata)
    partitions = [item for name in state.metadata.partition_columns if (item := schema.field(name)) is not None]
    names = [physical_name(item, mode) for item in partitions]
    has_stats = files["stats"].null_count < files.num_rows
    extra: dict[str, pa.Array] = {}
    if properties.write_stats_as_struct:
        texts = {name: partition_column(files, name) for name in names}
        if partitions and all(map(_is_certain, texts.values(), partitions)):
            columns = [
                physical_values(partition_value_array(texts[name], item.type))
                for name, item in zip(names, partitions, strict=True)
            ]
            extra["partitionValues_parsed"] = _struct_of_columns(names, columns)
        if has_stats:
            parsed = stats_struct(files["stats"], physical_schema(schema, mode), without=frozenset(names))
            if parsed is not None:
                extra["stats_parsed"] = parsed
    if not (has_stats and properties.write_stats_as_json):
        files = files.drop_columns(["stats"])
    files = _without_data_change(files)
    for name, values in extra.items():
        files = files.append_column(name, values)
    return _as_struct_column("add", files)


def _is_certain(texts: pa.ChunkedArray, item: StructField) -> bool:
    """Whether the texts have the same values for every reader: a timestamp without a time zone has not."""
    return item.type != TIMESTAMP or bool(pc.all(states_zone(texts), min_count=0).as_py())


def _struct_of_columns(names: Sequence[str], columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    arrays = [values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values for values in columns]
    return pa.StructArray.from_arrays(
        arrays, fields=[pa.field(name, values.type) for name, values in zip(names, arrays, strict=True)]
    )


def _remove_rows(removes: pa.Table, *, now_ms: int, retention_ms: int) -> pa.Table:
    kept = removes.select([name for name in REMOVE_SCHEMA.names if name not in _NOT_IN_REMOVES])
    deleted = pc.fill_null(kept["deletionTimestamp"], 0)
    kept = kept.filter(pc.greater_equal(deleted, now_ms - retention_ms))
    return _as_struct_column("remove", _without_data_change(kept))


def _without_data_change(files: pa.Table) -> pa.Table:
    """``files`` with ``dataChange`` false, because a checkpoint does not change data."""
    index = files.column_names.index("dataChange")
    return files.set_column(index, "dataChange", pa.repeat(pa.scalar(False), files.num_rows))


def _as_struct_column(name: str, table: pa.Table) -> pa.Table:
    batches = table.to_batches()
    kind = pa.struct(list(table.schema))
    chunks = [pa.StructArray.from_arrays(batch.columns, fields=list(table.schema)) for batch in batches]
    return pa.table({name: pa.chunked_array(chunks, kind)})


def _pairs(value: Mapping[str, str] | None) -> list[tuple[str, str]] | None:
    return None if value is None else list(value.items())
