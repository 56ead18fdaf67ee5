"""Actions as JSON lines (protocol "Actions", "Delta log entries"). Room: protocol.

A commit of a few files is parsed line by line; a large one goes through ``pyarrow.json``, so that its file actions
become columns without a Python object each. Both give the same :class:`CommitActions` (a property test holds them
together).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
)
from cm_delta_dagster.protocol.bulk_json import parse_file_actions
from cm_delta_dagster.protocol.file_actions import ADD_SCHEMA, REMOVE_SCHEMA

LARGE_COMMIT_BYTES = 256 * 1024
"""From this size on a commit is parsed by ``pyarrow.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitActions:
    """One commit, parsed. ``adds`` and ``removes`` have the columns of ``ADD_SCHEMA`` and ``REMOVE_SCHEMA``."""

    version: int
    commit_info: CommitInfo | None
    protocol: Protocol | None
    metadata: Metadata | None
    transactions: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]
    adds: pa.Table
    removes: pa.Table
    cdc: tuple[AddCdcFile, ...]
    checkpoint_metadata: CheckpointMetadata | None = None
    sidecars: tuple[SidecarFile, ...] = ()

    @property
    def has_data_change(self) -> bool:
        """Whether some file action says that it changes data."""
        return any(
            bool(pc.any(pc.fill_null(files.column("dataChange"), True)).as_py() or False)
            for files in (self.adds, self.removes)
            if files.num_rows
        )


# Writing


def encode_commit(actions: Sequence[Action]) -> bytes:
    """A commit's content: one action a line, UTF-8, a newline after each (LOG-3)."""
    return "".join(f"{encode_action(action)}\n" for action in actions).encode()


def encode_action(action: Action) -> str:
    """One line: the action wrapped in an object whose only key is its name.

    Raises:
        IllegalCommitError: a value has no form in JSON and UTF-8, such as NaN or a lone surrogate.
    """
    name, fields = _to_json(action)
    try:
        line = json.dumps({name: fields}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        line.encode()
    except (TypeError, ValueError) as error:
        raise IllegalCommitError(
            f"The action {name} cannot be written as JSON ({error}). Nothing was written."
        ) from error
    return line


def _to_json(action: Action) -> tuple[str, dict[str, Any]]:
    match action:
        case AddFile():
            return "add", _add_to_json(action)
        case RemoveFile():
            return "remove", _remove_to_json(action)
        case CommitInfo():
            return "commitInfo", _commit_info_to_json(action)
        case Protocol():
            return "protocol", _without_nulls(
                {
                    "minReaderVersion": action.min_reader_version,
                    "minWriterVersion": action.min_writer_version,
                    "readerFeatures": None if action.reader_features is None else list(action.reader_features),
                    "writerFeatures": None if action.writer_features is None else list(action.writer_features),
                }
            )
        case Metadata():
            return "metaData", _metadata_to_json(action)
        case SetTransaction():
            fields = {"appId": action.app_id, "version": action.version, "lastUpdated": action.last_updated}
            return "txn", _without_nulls(fields)
        case DomainMetadata():
            return "domainMetadata", {
                "domain": action.domain,
                "configuration": action.configuration,
                "removed": action.removed,
            }
        case AddCdcFile():
            fields = {
                "path": action.path,
                "partitionValues": dict(action.partition_values),
                "size": action.size,
                "dataChange": False,
                "tags": _copy(action.tags),
            }
            return "cdc", _without_nulls(fields)


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _copy(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(values)


def _add_to_json(add: AddFile) -> dict[str, Any]:
    return _without_nulls(
        {
            "path": add.path,
            "partitionValues": dict(add.partition_values),
            "size": add.size,
            "modificationTime": add.modification_time,
            "dataChange": add.data_change,
            "stats": add.stats,
            "tags": _copy(add.tags),
            "deletionVector": _dv_to_json(add.deletion_vector),
            "baseRowId": add.base_row_id,
            "defaultRowCommitVersion": add.default_row_commit_version,
            "clusteringProvider": add.clustering_provider,
        }
    )


def _remove_to_json(remove: RemoveFile) -> dict[str, Any]:
    return _without_nulls(
        {
            "path": remove.path,
            "deletionTimestamp": remove.deletion_timestamp,
            "dataChange": remove.data_change,
            "extendedFileMetadata": remove.extended_file_metadata,
            "partitionValues": _copy(remove.partition_values),
            "size": remove.size,
            "stats": remove.stats,
            "tags": _copy(remove.tags),
            "deletionVector": _dv_to_json(remove.deletion_vector),
            "baseRowId": remove.base_row_id,
            "defaultRowCommitVersion": remove.default_row_commit_version,
        }
    )


def _dv_to_json(vector: DeletionVectorDescriptor | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    return _without_nulls(
        {
            "storageType": vector.storage_type,
            "pathOrInlineDv": vector.path_or_inline_dv,
            "offset": vector.offset,
            "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        }
    )


def _metadata_to_json(metadata: Metadata) -> dict[str, Any]:
    fields = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": metadata.format_provider, "options": dict(metadata.format_options)},
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }
    return _without_nulls(fields)


_INFO_FIELDS = {
    "inCommitTimestamp": "in_commit_timestamp",
    "timestamp": "timestamp",
    "userId": "user_id",
    "userName": "user_name",
    "operation": "operation",
    "operationParameters": "operation_parameters",
    "readVersion": "read_version",
    "isolationLevel": "isolation_level",
    "isBlindAppend": "is_blind_append",
    "operationMetrics": "operation_metrics",
    "userMetadata": "user_metadata",
    "tags": "tags",
    "engineInfo": "engine_info",
    "txnId": "txn_id",
}

_INFO_TYPES: Mapping[str, type] = {
    "inCommitTimestamp": int,
    "timestamp": int,
    "operationParameters": dict,
    "readVersion": int,
    "isBlindAppend": bool,
    "operationMetrics": dict,
    "tags": dict,
}
"""All other fields of ``_INFO_FIELDS`` are strings."""


def _commit_info_to_json(info: CommitInfo) -> dict[str, Any]:
    known = {name: getattr(info, attribute) for name, attribute in _INFO_FIELDS.items()}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in known.items()}
    return {**_without_nulls(plain), **info.extra}


# Reading


def decode_commit(data: bytes, *, version: int) -> CommitActions:
    """Parse a commit.

    Raises:
        CorruptLogError: a line is not an action or lacks a required field; the message names version and line.
    """
    if len(data) < LARGE_COMMIT_BYTES:
        return _decode_lines(data.splitlines(), version=version)
    return _decode_large(data, version=version)


def decode_commit_info(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of the first line, without looking at the rest (ICT-12); None if that is another action."""
    end = data.find(b"\n")
    try:
        first = json.loads(data if end < 0 else data[:end])
    except ValueError:
        return None
    fields = first.get("commitInfo") if isinstance(first, dict) else None
    return _commit_info_from_json(fields) if isinstance(fields, dict) else None


_FILE_PREFIXES = (b'{"add"', b'{"remove"')


def _decode_large(data: bytes, *, version: int) -> CommitActions:
    lines = data.split(b"\n")
    small = [line for line in lines if not line.startswith(_FILE_PREFIXES)]
    files = parse_file_actions([line for line in lines if line.startswith(_FILE_PREFIXES)])
    if files is None:
        return _decode_lines(lines, version=version)
    rest = _decode_lines(small, version=version)
    return CommitActions(
        version=version,
        commit_info=rest.commit_info,
        protocol=rest.protocol,
        metadata=rest.metadata,
        transactions=rest.transactions,
        domains=rest.domains,
        adds=pa.concat_tables([files[0], rest.adds]),
        removes=pa.concat_tables([files[1], rest.removes]),
        cdc=rest.cdc,
        checkpoint_metadata=rest.checkpoint_metadata,
        sidecars=rest.sidecars,
    )


def _decode_lines(lines: Iterable[bytes], *, version: int) -> CommitActions:
    found: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except ValueError as error:
            raise CorruptLogError(
                f"Line {number} of version {version} is not JSON: {error}. The commit is damaged."
            ) from None
        if not isinstance(action, dict):
            raise CorruptLogError(f"Line {number} of version {version} is no action but {type(action).__name__}.")
        for name, fields in action.items():
            if fields is not None and name in _KNOWN_ACTIONS:
                if not isinstance(fields, dict):
                    raise CorruptLogError(f"Line {number} of version {version}: {name} is not an object.")
                found.setdefault(name, []).append(fields)
    try:
        return _assemble(found, version)
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise CorruptLogError(f"Version {version} holds a malformed action: {what}.") from error


_KNOWN_ACTIONS = frozenset(
    {
        "add",
        "remove",
        "metaData",
        "protocol",
        "txn",
        "cdc",
        "commitInfo",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    }
)


def _assemble(found: Mapping[str, Sequence[dict[str, Any]]], version: int) -> CommitActions:
    infos = found.get("commitInfo", ())
    protocols = found.get("protocol", ())
    metadata = found.get("metaData", ())
    checkpoint = found.get("checkpointMetadata", ())
    return CommitActions(
        version=version,
        commit_info=_commit_info_from_json(infos[0]) if infos else None,
        protocol=_protocol_from_json(protocols[-1]) if protocols else None,
        metadata=_metadata_from_json(metadata[-1]) if metadata else None,
        transactions=tuple(
            SetTransaction(app_id=row["appId"], version=int(row["version"]), last_updated=row.get("lastUpdated"))
            for row in found.get("txn", ())
        ),
        domains=tuple(
            DomainMetadata(
                domain=row["domain"], configuration=row.get("configuration", ""), removed=bool(row.get("removed"))
            )
            for row in found.get("domainMetadata", ())
        ),
        adds=_file_table(found.get("add", ()), ADD_SCHEMA),
        removes=_file_table(found.get("remove", ()), REMOVE_SCHEMA),
        cdc=tuple(
            AddCdcFile(
                path=row["path"],
                partition_values=row.get("partitionValues") or {},
                size=int(row["size"]),
                tags=row.get("tags"),
            )
            for row in found.get("cdc", ())
        ),
        checkpoint_metadata=(
            CheckpointMetadata(version=int(checkpoint[0]["version"]), tags=checkpoint[0].get("tags"))
            if checkpoint
            else None
        ),
        sidecars=tuple(
            SidecarFile(
                path=row["path"],
                size_in_bytes=int(row["sizeInBytes"]),
                modification_time=int(row["modificationTime"]),
                tags=row.get("tags"),
            )
            for row in found.get("sidecar", ())
        ),
    )


def _file_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    for row in rows:
        if not isinstance(row["path"], str):
            raise TypeError("path is not a string")
    columns = {}
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_map(field.type):
            values = [None if value is None else list(value.items()) for value in values]
        columns[field.name] = pa.array(values, type=field.type)
    return pa.table(columns, schema=schema)


def _protocol_from_json(row: Mapping[str, Any]) -> Protocol:
    reader, writer = row.get("readerFeatures"), row.get("writerFeatures")
    return Protocol(
        min_reader_version=int(row["minReaderVersion"]),
        min_writer_version=int(row["minWriterVersion"]),
        reader_features=None if reader is None else tuple(reader),
        writer_features=None if writer is None else tuple(writer),
    )


def _metadata_from_json(row: Mapping[str, Any]) -> Metadata:
    file_format = row.get("format") or {}
    return Metadata(
        id=row["id"],
        schema_string=row["schemaString"],
        partition_columns=tuple(row.get("partitionColumns") or ()),
        configuration=dict(row.get("configuration") or {}),
        name=row.get("name"),
        description=row.get("description"),
        format_provider=file_format.get("provider", "parquet"),
        format_options=dict(file_format.get("options") or {}),
        created_time=row.get("createdTime"),
    )


def _commit_info_from_json(row: Mapping[str, Any]) -> CommitInfo:
    """Any object is a legal commitInfo (CINFO-1): a known name with a value of another type stays in ``extra``."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in row.items():
        if name not in _INFO_FIELDS or (value is not None and type(value) is not _INFO_TYPES.get(name, str)):
            extra[name] = value
        elif value is not None:
            known[_INFO_FIELDS[name]] = _texts(value) if isinstance(value, Mapping) else value
    return CommitInfo(**known, extra=extra)


def _texts(values: Any) -> dict[str, str] | None:
    """Values as text: foreign writers put numbers, booleans and objects where the protocol has strings."""
    if not isinstance(values, Mapping):
        return None
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


# Legality of what is about to be written


def check_commit(actions: Sequence[Action]) -> None:
    """Refuse a proposal whose actions reconcile with each other (LOG-8, FILE-5, FILE-6).

    Raises:
        IllegalCommitError: the message names both actions; nothing was written.
    """
    seen: set[tuple[str, ...]] = set()
    for action in actions:
        for key in _identities(action):
            if key in seen:
                raise IllegalCommitError(
                    f"The commit would hold two actions for {' '.join(key)}, which the protocol forbids. "
                    "Nothing was written."
                )
            seen.add(key)
    if sum(isinstance(action, CommitInfo) for action in actions) != 1 or not isinstance(actions[0], CommitInfo):
        raise IllegalCommitError("The commit must hold exactly one commitInfo and hold it first. Nothing was written.")


def _identities(action: Action) -> Iterable[tuple[str, ...]]:
    match action:
        case AddFile() | RemoveFile():
            vector = "" if action.deletion_vector is None else action.deletion_vector.unique_id
            yield ("add" if isinstance(action, AddFile) else "remove", "of", action.path)
            yield ("file", action.path, vector)
        case Metadata():
            yield ("metaData",)
        case Protocol():
            yield ("protocol",)
        case SetTransaction():
            yield ("txn", action.app_id)
        case DomainMetadata():
            yield ("domainMetadata", action.domain)
        case _:
            return
