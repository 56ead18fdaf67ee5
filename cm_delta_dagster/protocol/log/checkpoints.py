"""Checkpoints (protocol "Checkpoints", "V2 Spec", "V1 Spec"): a table state as rows, and back.

Each row is one action: one struct column per kind of action, exactly one of them not null (CKPT-2). Bytes, file
names and the order in which files are written belong to others; multi-part checkpoints are read, one part at a
time, and never written.
"""

import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import (
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    SidecarFile,
)
from cm_delta_dagster.protocol.actions.file_columns import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    partition_column,
    refuse_incomplete,
)
from cm_delta_dagster.protocol.actions.json_fields import as_text
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array, physical_values
from cm_delta_dagster.protocol.features.column_mapping import column_mapping_mode, physical_name, physical_schema
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.checkpoint_content import CheckpointContent as CheckpointContent
from cm_delta_dagster.protocol.log.stats_parsed import stats_struct, stats_texts
from cm_delta_dagster.protocol.schema.types import parse_schema

MAX_INLINE_FILE_ACTIONS = 20_000
"""Up to this many file actions a V2 checkpoint is one file: another object would cost more than it saves."""

ROWS_PER_SIDECAR = 250_000

_PARSED_STATISTICS = "add.stats_parsed."

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
    """Rows of a checkpoint to be written: the top-level file, still without ``sidecar`` rows, and the sidecars."""

    top: pa.Table
    sidecars: tuple[pa.Table, ...] = ()

    @property
    def num_actions(self) -> int:
        """Actions in all files, the ``sidecar`` actions not counted."""
        return int(self.top.num_rows + sum(table.num_rows for table in self.sidecars))


def build_checkpoint(
    state: TableState,
    *,
    now_ms: int,
    max_inline: int = MAX_INLINE_FILE_ACTIONS,
    rows_per_sidecar: int = ROWS_PER_SIDECAR,
) -> CheckpointTables:
    """The rows of a checkpoint of ``state``: V2 spec where feature and policy say so (CKPT-V2-11), else V1.

    Args:
        now_ms: decides which tombstones have expired and are dropped (REC-15).
        max_inline: a V2 checkpoint with more file actions has them in sidecars.
        rows_per_sidecar: most file actions in one sidecar.
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
    """Whether the rows follow the V2 spec, so that the file may have a UUID in its name (CKPT-V2-1, CKPT-V2-3)."""
    return "checkpointMetadata" in tables.top.column_names


SIDECAR_DIGEST_TAG = "cm_delta.sha256"
"""Tag of a ``sidecar`` action: SHA-256 of the file as 64 lower-case hexadecimal digits. Other readers ignore it."""


def sidecar_action(name: str, *, size_in_bytes: int, modification_time: int, sha256: str | None = None) -> SidecarFile:
    """The action that refers to the sidecar file ``name``; ``modification_time`` in epoch milliseconds (V2ACT-1)."""
    tags = None if sha256 is None else {SIDECAR_DIGEST_TAG: sha256}
    return SidecarFile(path=name, size_in_bytes=size_in_bytes, modification_time=modification_time, tags=tags)


def with_sidecars(top: pa.Table, sidecars: Sequence[SidecarFile]) -> pa.Table:
    """The top-level rows with one ``sidecar`` row for each of the written sidecars."""
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


def columns_to_read(paths: Iterable[str]) -> list[str]:
    """Which of the columns of a checkpoint file :func:`read_checkpoint` has a use for.

    Parsed statistics repeat what the text says and are left out where there is a text column.

    Args:
        paths: dotted paths of the leaf columns.
    """
    wanted = columns_with_parsed_statistics(paths)
    return [path for path in wanted if not path.startswith(_PARSED_STATISTICS)] if "add.stats" in wanted else wanted


def columns_with_parsed_statistics(paths: Iterable[str]) -> list[str]:
    """As :func:`columns_to_read`, for a file in which some statistics may be there in parsed form only (CKPT-12)."""
    # `remove.stats` and the like are kept: whoever wrote them, reading costs little.
    return [path for path in paths if not path.startswith("add.partitionValues_parsed.")]


def needs_parsed_statistics(content: CheckpointContent, paths: Sequence[str]) -> bool:
    """Whether files of ``content``, read by :func:`columns_to_read`, may have statistics in parsed form only."""
    if "add.stats" not in paths or not any(path.startswith(_PARSED_STATISTICS) for path in paths):
        return False
    return bool(content.adds.column("stats").null_count)


def read_checkpoint(top: pa.Table) -> CheckpointContent:
    """Understand the rows of one checkpoint file of any kind: classic, part, V2 top level or sidecar.

    Raises:
        CorruptLogError: several protocols, metadata or checkpointMetadata, file actions beside sidecars, a missing
        field.
    """
    try:
        protocols = _values(top, "protocol")
        metadata = _values(top, "metaData")
        markers = _values(top, "checkpointMetadata")
        content = CheckpointContent(
            adds=_file_actions(top, "add", ADD_SCHEMA),
            removes=_file_actions(top, "remove", REMOVE_SCHEMA),
            checkpoint_metadata=_only([_checkpoint_metadata(value) for value in markers], "checkpointMetadata"),
            protocol=_only([_protocol(value) for value in protocols], "protocol"),
            metadata=_only([_metadata(value) for value in metadata], "metaData"),
            transactions=tuple(_transaction(value) for value in _values(top, "txn")),
            domains=tuple(domain for value in _values(top, "domainMetadata") if not (domain := _domain(value)).removed),
            sidecars=tuple(_sidecar(value) for value in _values(top, "sidecar")),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise CorruptLogError(
            f"A checkpoint holds rows that are no actions ({type(error).__name__}: {error}). "
            "It was written by a faulty client; write a new checkpoint."
        ) from error
    _refuse_mixture(content)
    return content


def read_checkpoint_json(data: bytes) -> CheckpointContent:
    """Understand the JSON form of a V2 checkpoint's top-level file (CKPT-V2-8). Raises CorruptLogError."""
    # A commit may hold neither kind of action that only checkpoints have, so that decode_commit passes over them.
    actions = commit_json.decode_commit(data, version=-1)
    markers: list[CheckpointMetadata] = []
    sidecars: list[SidecarFile] = []
    try:
        for line in data.splitlines():
            if b'"checkpointMetadata"' not in line and b'"sidecar"' not in line:
                continue
            action = json.loads(line)
            if action.get("checkpointMetadata") is not None:
                markers.append(_checkpoint_metadata(action["checkpointMetadata"]))
            if action.get("sidecar") is not None:
                sidecars.append(_sidecar(action["sidecar"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptLogError(
            f"A JSON checkpoint holds a line that is no action ({type(error).__name__}: {error}). Write a new "
            f"checkpoint."
        ) from error
    content = CheckpointContent(
        adds=actions.adds,
        removes=actions.removes,
        checkpoint_metadata=_only(markers, "checkpointMetadata"),
        protocol=actions.protocol,
        metadata=actions.metadata,
        transactions=tuple(actions.transactions),
        domains=tuple(domain for domain in actions.domains if not domain.removed),
        sidecars=tuple(sidecars),
    )
    _refuse_mixture(content)
    return content


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
        if partitions:
            columns = [
                physical_values(partition_value_array(partition_column(files, name), item.type))
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
    """``files`` with ``dataChange`` false: a checkpoint changes no data (CKPT-18)."""
    index = files.column_names.index("dataChange")
    return files.set_column(index, "dataChange", pa.repeat(pa.scalar(False), files.num_rows))


def _as_struct_column(name: str, table: pa.Table) -> pa.Table:
    batches = table.to_batches()
    kind = pa.struct(list(table.schema))
    chunks = [pa.StructArray.from_arrays(batch.columns, fields=list(table.schema)) for batch in batches]
    return pa.table({name: pa.chunked_array(chunks, kind)})


def _values(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return []
    return table[name].drop_null().to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]  # pyarrow has no types.


_T = typing.TypeVar("_T")


def _only(values: Sequence[_T], kind: str) -> _T | None:
    if len(values) > 1:
        raise CorruptLogError(
            f"A checkpoint file holds {len(values)} {kind} actions and may hold one; write a new checkpoint."
        )
    return values[0] if values else None


def _refuse_mixture(content: CheckpointContent) -> None:
    if content.sidecars and (content.adds.num_rows or content.removes.num_rows):
        raise CorruptLogError(
            "A V2 checkpoint has file actions both beside and in its sidecars, so that neither list can be taken "
            "as complete. It was written by a faulty client; write a new checkpoint."
        )


def _file_actions(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    if name not in table.column_names:
        return schema.empty_table()
    batches = [_file_batch(rows, name, schema) for chunk in table[name].chunks for rows in _present(chunk)]
    result = pa.Table.from_batches(batches, schema=schema)
    refuse_incomplete(result)
    if result["path"].null_count:
        raise CorruptLogError(f"A checkpoint holds {name} actions without a path; write a new checkpoint.")
    return result


_RUNS_UNCOPIED = 8


def _present(rows: pa.StructArray) -> list[pa.StructArray]:
    """The rows that are not null. Mostly they lie side by side, and are then not copied: they are nearly the whole file."""
    if rows.null_count in (0, len(rows)):
        return [] if rows.null_count else [rows]
    valid = pc.is_valid(rows)
    edges = np.flatnonzero(np.diff(valid.to_numpy(zero_copy_only=False).astype(np.int8), prepend=0, append=0))
    if len(edges) > 2 * _RUNS_UNCOPIED:
        return [rows.filter(valid)]
    return [rows.slice(start, end - start) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _file_batch(rows: pa.StructArray, name: str, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_conform(_child(rows, item.name), item.type, len(rows)) for item in schema]
    if name == "add":
        parsed, position = _child(rows, "stats_parsed"), schema.get_field_index("stats")
        if parsed is not None and columns[position].null_count:
            columns[position] = pc.coalesce(columns[position], stats_texts(parsed))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _child(rows: pa.StructArray, name: str) -> pa.Array | None:
    index = rows.type.get_field_index(name)
    if index < 0:
        return None
    # `field` passes over the nulls of the struct itself, and copies nothing.
    return pc.struct_field(rows, [index]) if rows.null_count else rows.field(index)


def _conform(values: pa.Array | None, kind: pa.DataType, length: int) -> pa.Array:
    """``values`` as ``kind``: fields of structs are taken by name, absent ones are null, unknown ones are dropped."""
    if values is None:
        return pa.nulls(length, kind)
    if values.type == kind:
        return values
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    children = [_conform(_child(values, item.name), item.type, length) for item in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _protocol(value: Mapping[str, Any]) -> Protocol:
    reader, writer = value.get("readerFeatures"), value.get("writerFeatures")
    return Protocol(
        min_reader_version=int(value["minReaderVersion"]),
        min_writer_version=int(value["minWriterVersion"]),
        reader_features=None if reader is None else _texts(reader),
        writer_features=None if writer is None else _texts(writer),
    )


def _metadata(value: Mapping[str, Any]) -> Metadata:
    table_format = value.get("format") or {}
    metadata = Metadata(
        id=_required_text(value, "id"),
        schema_string=_required_text(value, "schemaString"),
        partition_columns=_texts(value.get("partitionColumns") or ()),
        configuration=_mapping(value.get("configuration")),
        name=value.get("name"),
        description=value.get("description"),
        format_options=_mapping(table_format.get("options")),
        created_time=value.get("createdTime"),
    )
    provider = table_format.get("provider")
    return metadata if provider is None else replace(metadata, format_provider=provider)


def _transaction(value: Mapping[str, Any]) -> SetTransaction:
    return SetTransaction(
        app_id=_required_text(value, "appId"), version=int(value["version"]), last_updated=value.get("lastUpdated")
    )


def _domain(value: Mapping[str, Any]) -> DomainMetadata:
    return DomainMetadata(
        domain=_required_text(value, "domain"),
        configuration=_required_text(value, "configuration"),
        removed=bool(value.get("removed")),
    )


def _checkpoint_metadata(value: Mapping[str, Any]) -> CheckpointMetadata:
    tags = value.get("tags")
    return CheckpointMetadata(version=int(value["version"]), tags=None if tags is None else _mapping(tags))


def _sidecar(value: Mapping[str, Any]) -> SidecarFile:
    tags = value.get("tags")
    return SidecarFile(
        path=_required_text(value, "path"),
        size_in_bytes=int(value["sizeInBytes"]),
        modification_time=int(value["modificationTime"]),
        tags=None if tags is None else _mapping(tags),
    )


def _required_text(value: Mapping[str, Any], name: str) -> str:
    text = value[name]
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r}")
    return text


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(as_text(value, "a name in a list") for value in values)


def _mapping(value: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> dict[str, str]:
    # Some writers leave keys without a value behind; they say nothing.
    return {} if value is None else {key: text for key, text in dict(value).items() if text is not None}


def _pairs(value: Mapping[str, str] | None) -> list[tuple[str, str]] | None:
    return None if value is None else list(value.items())
