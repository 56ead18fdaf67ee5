"""Actions <-> JSON lines (protocol headings "Delta Log Entries" and "Actions"), and what one commit may hold.

A commit is newline-delimited JSON; each line is one action under one key (LOG-3). Small actions become the values of
:mod:`~cm_delta_dagster.protocol.actions`; file actions become Arrow tables. Unknown keys and fields are ignored (LOG-6).
Does no I/O, and no reconciliation between commits (:mod:`~cm_delta_dagster.protocol.reconciliation`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

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
from cm_delta_dagster.protocol.file_action_json import KNOWN_ACTIONS, table_from_lines, tables_from_records

BULK_BYTES = 256 * 1024
"""Commits above this size go through the bulk parser."""

CheckpointAction: TypeAlias = CheckpointMetadata | SidecarFile
JsonObject: TypeAlias = dict[str, Any]

_FILE_PREFIXES = {"add": b'{"add":{', "remove": b'{"remove":{'}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitActions:
    """What one commit (or one log compaction) says. ``version`` is the last one that it covers.

    The order of the actions is gone, as it carries no meaning (REC-6).
    """

    version: int
    adds: pa.Table
    removes: pa.Table
    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    cdc: tuple[AddCdcFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointActions:
    """The actions of the JSON top-level file of a V2 checkpoint (CKPT-V2-8)."""

    version: int
    adds: pa.Table
    removes: pa.Table
    checkpoint_metadata: CheckpointMetadata | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    sidecars: tuple[SidecarFile, ...] = ()


# ---- values -> JSON


def _without_none(body: JsonObject) -> JsonObject:
    return {key: value for key, value in body.items() if value is not None}


def _map(value: Mapping[str, Any] | None) -> JsonObject | None:
    return None if value is None else dict(value)


def _vector_body(vector: DeletionVectorDescriptor | None) -> JsonObject | None:
    if vector is None:
        return None
    return _without_none(
        {
            "storageType": vector.storage_type,
            "pathOrInlineDv": vector.path_or_inline_dv,
            "offset": vector.offset,
            "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        }
    )


def _commit_info_body(info: CommitInfo) -> JsonObject:
    named = _without_none(
        {
            "inCommitTimestamp": info.in_commit_timestamp,
            "timestamp": info.timestamp,
            "userId": info.user_id,
            "userName": info.user_name,
            "operation": info.operation,
            "operationParameters": dict(info.operation_parameters)
            if info.operation_parameters or info.operation is not None
            else None,
            "readVersion": info.read_version,
            "isolationLevel": info.isolation_level,
            "isBlindAppend": info.is_blind_append,
            "operationMetrics": _map(info.operation_metrics),
            "userMetadata": info.user_metadata,
            "tags": _map(info.tags),
            "engineInfo": info.engine_info,
            "txnId": info.txn_id,
        }
    )
    return named | {key: value for key, value in info.extra.items() if key not in named}


def _protocol_body(protocol: Protocol) -> JsonObject:
    return _without_none(
        {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": None if protocol.reader_features is None else list(protocol.reader_features),
            "writerFeatures": None if protocol.writer_features is None else list(protocol.writer_features),
        }
    )


def _metadata_body(metadata: Metadata) -> JsonObject:
    return _without_none(
        {
            "id": metadata.id,
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": metadata.format_provider, "options": dict(metadata.format_options)},
            "schemaString": metadata.schema_string,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
            "createdTime": metadata.created_time,
        }
    )


def _add_body(add: AddFile) -> JsonObject:
    return _without_none(
        {
            "path": add.path,
            "partitionValues": dict(add.partition_values),
            "size": add.size,
            "modificationTime": add.modification_time,
            "dataChange": add.data_change,
            "stats": add.stats,
            "tags": _map(add.tags),
            "deletionVector": _vector_body(add.deletion_vector),
            "baseRowId": add.base_row_id,
            "defaultRowCommitVersion": add.default_row_commit_version,
            "clusteringProvider": add.clustering_provider,
        }
    )


def _remove_body(remove: RemoveFile) -> JsonObject:
    return _without_none(
        {
            "path": remove.path,
            "deletionTimestamp": remove.deletion_timestamp,
            "dataChange": remove.data_change,
            "extendedFileMetadata": remove.extended_file_metadata,
            "partitionValues": _map(remove.partition_values),
            "size": remove.size,
            "stats": remove.stats,
            "tags": _map(remove.tags),
            "deletionVector": _vector_body(remove.deletion_vector),
            "baseRowId": remove.base_row_id,
            "defaultRowCommitVersion": remove.default_row_commit_version,
        }
    )


def action_body(action: Action | CheckpointAction) -> tuple[str, JsonObject]:
    """The key and the JSON object of an action; absent optional fields are left out (FILE-1)."""
    match action:
        case CommitInfo():
            return "commitInfo", _commit_info_body(action)
        case Protocol():
            return "protocol", _protocol_body(action)
        case Metadata():
            return "metaData", _metadata_body(action)
        case SetTransaction():
            body = {"appId": action.app_id, "version": action.version, "lastUpdated": action.last_updated}
            return "txn", _without_none(body)
        case DomainMetadata():
            body = {"domain": action.domain, "configuration": action.configuration, "removed": action.removed}
            return "domainMetadata", body
        case AddFile():
            return "add", _add_body(action)
        case RemoveFile():
            return "remove", _remove_body(action)
        case AddCdcFile():
            body = {"path": action.path, "partitionValues": dict(action.partition_values), "size": action.size}
            return "cdc", _without_none(body | {"dataChange": False, "tags": _map(action.tags)})
        case CheckpointMetadata():
            return "checkpointMetadata", _without_none({"version": action.version, "tags": _map(action.tags)})
        case SidecarFile():
            body = {"path": action.path, "sizeInBytes": action.size_in_bytes}
            return "sidecar", _without_none(
                body | {"modificationTime": action.modification_time, "tags": _map(action.tags)}
            )


def encode_action(action: Action | CheckpointAction) -> str:
    """One line of a commit, without the line break.

    Raises:
        IllegalCommitError: a value has no JSON form (NaN, bytes, a lone surrogate).
    """
    key, body = action_body(action)
    try:
        text = json.dumps({key: body}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise IllegalCommitError(f"the action {key!r} cannot be written as JSON: {error}") from error
    return text


def encode_commit(actions: Sequence[Action]) -> bytes:
    """The bytes of a commit file, in the order given. Raises IllegalCommitError as :func:`encode_action`."""
    return "".join(encode_action(action) + "\n" for action in actions).encode("utf-8")


# ---- JSON -> values


class _Body:
    """Typed access to one JSON object; every mismatch names the action and the place."""

    def __init__(self, key: str, body: JsonObject, where: str) -> None:
        self.key = key
        self.body = body
        self.where = where

    def _fail(self, name: str, expected: str) -> CorruptLogError:
        found = "missing" if self.body.get(name) is None else repr(self.body[name])
        return CorruptLogError(f"{self.where}: {name!r} of the action {self.key!r} is {found}, expected {expected}.")

    def optional_text(self, name: str) -> str | None:
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise self._fail(name, "a string")
        return value

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise self._fail(name, "a string")
        return value

    def optional_integer(self, name: str) -> int | None:
        value = self.body.get(name)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise self._fail(name, "an integer")
        return value

    def integer(self, name: str) -> int:
        value = self.optional_integer(name)
        if value is None:
            raise self._fail(name, "an integer")
        return value

    def flag(self, name: str) -> bool:
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._fail(name, "true or false")
        return bool(value)

    def optional_texts(self, name: str) -> tuple[str, ...] | None:
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._fail(name, "an array of strings")
        return tuple(value)

    def optional_map(self, name: str) -> dict[str, Any] | None:
        value = self.body.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._fail(name, "an object")
        return value

    def optional_text_map(self, name: str) -> dict[str, str] | None:
        value = self.optional_map(name)
        if value is None:
            return None
        return {key: _as_text(item) for key, item in value.items() if item is not None}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _protocol(body: _Body) -> Protocol:
    return Protocol(
        min_reader_version=body.integer("minReaderVersion"),
        min_writer_version=body.integer("minWriterVersion"),
        reader_features=body.optional_texts("readerFeatures"),
        writer_features=body.optional_texts("writerFeatures"),
    )


def _metadata(body: _Body) -> Metadata:
    format_ = _Body("metaData.format", body.optional_map("format") or {}, body.where)
    return Metadata(
        id=body.text("id"),
        schema_string=body.text("schemaString"),
        partition_columns=body.optional_texts("partitionColumns") or (),
        configuration=body.optional_text_map("configuration") or {},
        name=body.optional_text("name"),
        description=body.optional_text("description"),
        format_provider=format_.optional_text("provider") or "parquet",
        format_options=format_.optional_text_map("options") or {},
        created_time=body.optional_integer("createdTime"),
    )


_INFO_FIELDS: Mapping[str, tuple[str, type]] = {
    "inCommitTimestamp": ("in_commit_timestamp", int),
    "timestamp": ("timestamp", int),
    "txnId": ("txn_id", str),
    "operation": ("operation", str),
    "readVersion": ("read_version", int),
    "isolationLevel": ("isolation_level", str),
    "isBlindAppend": ("is_blind_append", bool),
    "engineInfo": ("engine_info", str),
    "userId": ("user_id", str),
    "userName": ("user_name", str),
    "userMetadata": ("user_metadata", str),
    "operationParameters": ("operation_parameters", dict),
    "operationMetrics": ("operation_metrics", dict),
    "tags": ("tags", dict),
}


def _commit_info(body: JsonObject) -> CommitInfo:
    """Any object is a legal commitInfo (CINFO-1): a field of an unexpected type stays in ``extra``, it never fails."""
    named: JsonObject = {}
    extra: JsonObject = {}
    for key, value in body.items():
        attribute, type_ = _INFO_FIELDS.get(key, (None, object))
        if attribute is not None and value is None:
            continue
        if attribute is None or type(value) is not type_:
            extra[key] = value
        elif type_ is dict:
            named[attribute] = {name: _as_text(item) for name, item in value.items()}
        else:
            named[attribute] = value
    return CommitInfo(**named, extra=extra)


def action_from_body(key: str, body: JsonObject, *, where: str) -> Action | CheckpointAction:
    """The value of a small action (every one but ``add`` and ``remove``, which are decoded in bulk).

    Args:
        where: what is being read, for error messages.

    Raises:
        CorruptLogError: a required field is missing or has another type than the protocol says.
    """
    if not isinstance(body, dict):
        raise CorruptLogError(f"{where}: the action {key!r} is {body!r}, expected an object.")
    fields = _Body(key, body, where)
    match key:
        case "commitInfo":
            return _commit_info(body)
        case "protocol":
            return _protocol(fields)
        case "metaData":
            return _metadata(fields)
        case "txn":
            return SetTransaction(
                app_id=fields.text("appId"),
                version=fields.integer("version"),
                last_updated=fields.optional_integer("lastUpdated"),
            )
        case "domainMetadata":
            return DomainMetadata(
                domain=fields.text("domain"),
                configuration=fields.optional_text("configuration") or "",
                removed=fields.flag("removed"),
            )
        case "cdc":
            values = fields.optional_map("partitionValues") or {}
            return AddCdcFile(
                path=fields.text("path"),
                partition_values={name: None if item is None else _as_text(item) for name, item in values.items()},
                size=fields.integer("size"),
                tags=fields.optional_text_map("tags"),
            )
        case "checkpointMetadata":
            return CheckpointMetadata(version=fields.integer("version"), tags=fields.optional_text_map("tags"))
        case "sidecar":
            return SidecarFile(
                path=fields.text("path"),
                size_in_bytes=fields.integer("sizeInBytes"),
                modification_time=fields.integer("modificationTime"),
                tags=fields.optional_text_map("tags"),
            )
    raise ValueError(f"{key!r} is not a small action")


@dataclass(slots=True)
class _Lines:
    """The lines of a file, sorted by kind: file actions as raw lines or objects, all others as values."""

    where: str
    raw: dict[str, list[bytes]] = field(default_factory=lambda: {"add": [], "remove": []})
    records: dict[str, list[JsonObject]] = field(default_factory=lambda: {"add": [], "remove": []})
    small: list[Action | CheckpointAction] = field(default_factory=list)

    def parse(self, line: bytes) -> None:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise CorruptLogError(f"{self.where}: a line is not JSON ({error}): {line[:120]!r}") from error
        if not isinstance(value, dict):
            raise CorruptLogError(f"{self.where}: a line is not a JSON object: {line[:120]!r}")
        found = [key for key, body in value.items() if key in KNOWN_ACTIONS and body is not None]
        if len(found) > 1:
            raise CorruptLogError(f"{self.where}: one line holds the actions {', '.join(found)}; expected one.")
        for key in found:
            if key not in self.records:
                self.small.append(action_from_body(key, value[key], where=self.where))
            elif isinstance(value[key], dict):
                self.records[key].append(value[key])
            else:
                raise CorruptLogError(f"{self.where}: the action {key!r} is {value[key]!r}, expected an object.")

    def table(self, kind: str) -> pa.Table:
        odd = tables_from_records(kind, self.records[kind], where=self.where)
        if not self.raw[kind]:
            return odd
        bulk = table_from_lines(kind, self.raw[kind], where=self.where)
        return pa.concat_tables([bulk, odd]) if len(odd) else bulk

    def single(self, type_: type) -> Any:
        found = self.several(type_)
        if len(found) > 1:
            raise CorruptLogError(f"{self.where}: {len(found)} actions {type_.__name__}; at most one is legal (LOG-8).")
        return found[0] if found else None

    def several(self, type_: type) -> tuple[Any, ...]:
        return tuple(action for action in self.small if isinstance(action, type_))


def _sorted_lines(data: bytes, where: str) -> _Lines:
    lines = _Lines(where)
    if len(data) <= BULK_BYTES:
        for line in data.split(b"\n"):
            if line and not line.isspace():
                lines.parse(line)
        return lines
    everything = data.split(b"\n")
    add, remove = _FILE_PREFIXES["add"], _FILE_PREFIXES["remove"]
    lines.raw["add"] = [line for line in everything if line.startswith(add)]
    rest = [line for line in everything if not line.startswith(add)]
    lines.raw["remove"] = [line for line in rest if line.startswith(remove)]
    for line in rest:
        if not line.startswith(remove) and line and not line.isspace():
            lines.parse(line)
    return lines


def decode_commit(data: bytes, *, version: int) -> CommitActions:
    """The actions of a commit file or of a log compaction; checkpoint-only actions are ignored (REC-12).

    Args:
        data: the whole file.
        version: version of the commit, or the end version of the compaction.

    Raises:
        CorruptLogError: a line is no JSON object, an action breaks its schema, or a singular action occurs twice.
    """
    lines = _sorted_lines(data, f"commit {version}")
    return CommitActions(
        version=version,
        commit_info=lines.single(CommitInfo),
        protocol=lines.single(Protocol),
        metadata=lines.single(Metadata),
        transactions=lines.several(SetTransaction),
        domains=lines.several(DomainMetadata),
        cdc=lines.several(AddCdcFile),
        adds=lines.table("add"),
        removes=lines.table("remove"),
    )


def decode_checkpoint_actions(data: bytes, *, version: int) -> CheckpointActions:
    """The actions of the JSON top-level file of a V2 checkpoint. Raises CorruptLogError as :func:`decode_commit`."""
    lines = _sorted_lines(data, f"checkpoint {version}")
    return CheckpointActions(
        version=version,
        checkpoint_metadata=lines.single(CheckpointMetadata),
        protocol=lines.single(Protocol),
        metadata=lines.single(Metadata),
        transactions=lines.several(SetTransaction),
        domains=lines.several(DomainMetadata),
        sidecars=lines.several(SidecarFile),
        adds=lines.table("add"),
        removes=lines.table("remove"),
    )


def decode_commit_info(data: bytes) -> CommitInfo | None:
    """The commitInfo of a commit if it is the first line, read without parsing the rest (ICT-12), else None.

    Args:
        data: the commit file, or as much of its beginning as holds the first line.

    Raises:
        CorruptLogError: the first line is no JSON object.
    """
    lines = _Lines("the first line of a commit")
    first = data.partition(b"\n")[0]
    if first and not first.isspace():
        lines.parse(first)
    info: CommitInfo | None = lines.single(CommitInfo)
    return info
