"""Decodes the rows of checkpoint files (protocol headings "Checkpoints", "V2 Spec", "V1 Spec").

Handles classic checkpoints, single parts of multi-part checkpoints, top-level files of V2 checkpoints and sidecars. The caller
reads the files, and ``action_reconciliation`` combines the contents of several files into a table state.
"""

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, refuse_incomplete
from cm_delta_dagster.protocol.actions.json_fields import as_text
from cm_delta_dagster.protocol.log.checkpoint_content import CheckpointContent
from cm_delta_dagster.protocol.log.stats_parsed import stats_texts

_PARSED_STATISTICS = "add.stats_parsed."


def columns_to_read(paths: Iterable[str]) -> list[str]:
    """The columns of a checkpoint file that :func:`decode_checkpoint` uses.

    Parsed statistics duplicate the ``stats`` texts and are left out if the file has a column of texts.

    Args:
        paths: dotted paths of the leaf columns.
    """
    columns = columns_with_parsed_statistics(paths)
    return [path for path in columns if not path.startswith(_PARSED_STATISTICS)] if "add.stats" in columns else columns


def columns_with_parsed_statistics(paths: Iterable[str]) -> list[str]:
    """As :func:`columns_to_read`, for a file in which some statistics are present in parsed form only."""
    # `remove.stats` and similar columns are kept: few writers write them, and reading them costs little.
    return [path for path in paths if not path.startswith("add.partitionValues_parsed.")]


def needs_parsed_statistics(content: CheckpointContent, paths: Sequence[str]) -> bool:
    """Whether files of ``content``, read by :func:`columns_to_read`, may have statistics in parsed form only."""
    if "add.stats" not in paths or not any(path.startswith(_PARSED_STATISTICS) for path in paths):
        return False
    return bool(content.adds.column("stats").null_count)


def decode_checkpoint(top: pa.Table) -> CheckpointContent:
    """Decode the rows of one checkpoint file: classic checkpoint, part, top-level file of a V2 checkpoint or sidecar.

    Raises:
        CorruptLogError: more than one protocol, metaData or checkpointMetadata action, file actions beside sidecars, or a
            missing field.
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
            f"A checkpoint contains rows that are not actions ({type(error).__name__}: {error}). "
            "It was written by a faulty client; write a new checkpoint."
        ) from error
    _refuse_mixture(content)
    return content


def decode_checkpoint_json(data: bytes) -> CheckpointContent:
    """Decode the JSON form of the top-level file of a V2 checkpoint. Raises CorruptLogError as :func:`decode_checkpoint`."""
    # decode_commit ignores checkpointMetadata and sidecar, which do not occur in commits.
    actions = commit_json.decode_commit(data, version=-1)
    content = CheckpointContent(
        adds=actions.adds,
        removes=actions.removes,
        checkpoint_metadata=actions.checkpoint_metadata,
        protocol=actions.protocol,
        metadata=actions.metadata,
        transactions=actions.transactions,
        domains=tuple(domain for domain in actions.domains if not domain.removed),
        sidecars=actions.sidecars,
    )
    _refuse_mixture(content)
    return content


def _values(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return []
    return table[name].drop_null().to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]  # pyarrow has no types.


_T = typing.TypeVar("_T")


def _only(values: Sequence[_T], kind: str) -> _T | None:
    if len(values) > 1:
        raise CorruptLogError(
            f"A checkpoint file contains {len(values)} {kind} actions; only one is allowed. Write a new checkpoint."
        )
    return values[0] if values else None


def _refuse_mixture(content: CheckpointContent) -> None:
    if content.sidecars and (content.adds.num_rows or content.removes.num_rows):
        raise CorruptLogError(
            "A V2 checkpoint has file actions in its top-level file and in sidecars, so neither list can be assumed to be "
            "complete. It was written by a faulty client; write a new checkpoint."
        )


def _file_actions(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    if name not in table.column_names:
        return schema.empty_table()
    batches = [_file_batch(rows, name, schema) for chunk in table[name].chunks for rows in _present(chunk)]
    result = pa.Table.from_batches(batches, schema=schema)
    refuse_incomplete(result)
    if result["path"].null_count:
        raise CorruptLogError(f"A checkpoint contains {name} actions without a path; write a new checkpoint.")
    return result


_MAX_SLICES = 8


def _present(rows: pa.StructArray) -> list[pa.StructArray]:
    """The rows that are not null. Contiguous rows, the usual case, are sliced and not copied."""
    if rows.null_count in (0, len(rows)):
        return [] if rows.null_count else [rows]
    valid = pc.is_valid(rows)
    edges = np.flatnonzero(np.diff(valid.to_numpy(zero_copy_only=False).astype(np.int8), prepend=0, append=0))
    if len(edges) > 2 * _MAX_SLICES:
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
    # `field` ignores the nulls of the struct itself and does not copy.
    return pc.struct_field(rows, [index]) if rows.null_count else rows.field(index)


def _conform(values: pa.Array | None, kind: pa.DataType, length: int) -> pa.Array:
    """``values`` as ``kind``: struct fields are matched by name, missing ones are null, unknown ones are dropped."""
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
    # Some writers write keys with a null value, which means the same as an absent key.
    return {} if value is None else {key: text for key, text in dict(value).items() if text is not None}
