"""Actions as JSON lines (protocol "Actions", "Delta log entries"). Room: protocol.

A commit of a few files is parsed line by line; a large one goes through ``pyarrow.json``, so that its file actions
become columns without a Python object each. Both give the same :class:`CommitActions` (a property test holds them
together).
"""

import json
import typing
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
from cm_delta_dagster.protocol.file_actions import ADD_SCHEMA, REMOVE_SCHEMA, dv_ids, refuse_incomplete
from cm_delta_dagster.protocol.json_fields import (
    long,
    nullable_texts,
    optional_list,
    optional_long,
    optional_text,
    optional_texts,
    text,
)

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
        return any(_changes_data(files.column("dataChange")) for files in (self.adds, self.removes) if files.num_rows)


_FEW = 32


def _changes_data(flags: pa.ChunkedArray) -> bool:
    """Whether one of them is true, or missing."""
    if len(flags) <= _FEW:
        return any(flag is not False for flag in flags.to_pylist())
    return bool(pc.any(pc.fill_null(flags, True)).as_py())


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


def decode_commits(contents: Sequence[tuple[int, bytes]]) -> tuple[CommitActions, ...]:
    """Parse small commits, pairs of version and content, each below ``LARGE_COMMIT_BYTES``, as :func:`decode_commit` does.

    Their file actions are made columns together, which costs about what it costs for one of them.
    """
    if len(contents) < 2:
        return tuple(decode_commit(data, version=version) for version, data in contents)
    found = [_parse_lines(data.splitlines(), version=version) for version, data in contents]
    rows = [[row for actions in found for row in actions.get(name, ())] for name in ("add", "remove")]
    try:
        adds, removes = (_file_table(all_rows, schema) for all_rows, schema in zip(rows, _SCHEMAS, strict=True))
    except _MALFORMED:
        return tuple(decode_commit(data, version=version) for version, data in contents)  # One by one: which is it?
    commits = []
    first_add = first_remove = 0
    for (version, _), actions in zip(contents, found, strict=True):
        added, removed = len(actions.get("add", ())), len(actions.get("remove", ()))
        files = (
            adds.slice(first_add, added) if added else _NO_FILES[True],
            removes.slice(first_remove, removed) if removed else _NO_FILES[False],
        )
        commits.append(_assemble(actions, version, files))
        first_add, first_remove = first_add + added, first_remove + removed
    return tuple(commits)


def decode_commit_info(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of the first line, without looking at the rest (ICT-12); None if that is another action."""
    end = data.find(b"\n")
    try:
        first = json.loads((data if end < 0 else data[:end]).decode())
    except (ValueError, RecursionError):
        return None
    fields = first.get("commitInfo") if isinstance(first, dict) else None
    return _commit_info_from_json(fields) if isinstance(fields, dict) else None


def find_commit_info(data: bytes) -> CommitInfo | None:
    """The ``commitInfo`` of a commit wherever it stands, without looking at the other actions; None if it has none.

    Only in-commit timestamps want it in the first line; writers without them have put it anywhere.
    """
    for line in data.splitlines():
        if b'"commitInfo"' in line and (info := decode_commit_info(line)) is not None:
            return info
    return None


def _decode_large(data: bytes, *, version: int) -> CommitActions:
    files = parse_file_actions(data)
    if files is None:
        return _decode_lines(data.split(b"\n"), version=version)
    rest = _decode_lines(files.others, version=version)
    try:
        adds = _one_vector_a_path(pa.concat_tables([files.adds, rest.adds]))
        removes = pa.concat_tables([files.removes, rest.removes])
        refuse_incomplete(adds)
        refuse_incomplete(removes)
    except ValueError as error:
        raise CorruptLogError(f"Version {version} holds a malformed action: {error}.") from error
    return CommitActions(
        version=version,
        commit_info=rest.commit_info,
        protocol=rest.protocol,
        metadata=rest.metadata,
        transactions=rest.transactions,
        domains=rest.domains,
        adds=adds,
        removes=removes,
        cdc=rest.cdc,
        checkpoint_metadata=rest.checkpoint_metadata,
        sidecars=rest.sidecars,
    )


def _decode_lines(lines: Iterable[bytes], *, version: int) -> CommitActions:
    return _assemble(_parse_lines(lines, version=version), version)


_Found = Mapping[str, Sequence[dict[str, Any]]]
"""The fields of the actions of one commit, by the name of the action."""


def _parse_lines(lines: Iterable[bytes], *, version: int) -> _Found:
    found: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            action = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
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
    return found


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


_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, pa.ArrowException)


def _assemble(found: _Found, version: int, files: tuple[pa.Table, pa.Table] | None = None) -> CommitActions:
    """
    Args:
        files: adds and removes, if they are columns already.
    """
    try:
        adds, removes = files or (
            _file_table(found.get("add", ()), ADD_SCHEMA),
            _file_table(found.get("remove", ()), REMOVE_SCHEMA),
        )
        return _assembled(found, version, _one_vector_a_path(adds), removes)
    except _MALFORMED as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise CorruptLogError(f"Version {version} holds a malformed action: {what}.") from error


def _assembled(found: _Found, version: int, adds: pa.Table, removes: pa.Table) -> CommitActions:
    infos = found.get("commitInfo", ())
    return CommitActions(
        version=version,
        commit_info=_commit_info_from_json(infos[0]) if infos else None,
        protocol=_only("protocol", [_protocol_from_json(row) for row in found.get("protocol", ())]),
        metadata=_only("metaData", [_metadata_from_json(row) for row in found.get("metaData", ())]),
        transactions=tuple(_transaction_from_json(row) for row in found.get("txn", ())),
        domains=tuple(_domain_from_json(row) for row in found.get("domainMetadata", ())),
        adds=adds,
        removes=removes,
        cdc=tuple(_cdc_from_json(row) for row in found.get("cdc", ())),
        checkpoint_metadata=_only(
            "checkpointMetadata",
            [
                CheckpointMetadata(version=long(row, "version"), tags=optional_texts(row, "tags"))
                for row in found.get("checkpointMetadata", ())
            ],
        ),
        sidecars=tuple(
            SidecarFile(
                path=text(row, "path"),
                size_in_bytes=long(row, "sizeInBytes"),
                modification_time=long(row, "modificationTime"),
                tags=optional_texts(row, "tags"),
            )
            for row in found.get("sidecar", ())
        ),
    )


_T = typing.TypeVar("_T")


def _only(name: str, values: Sequence[_T]) -> _T | None:
    """Of several in one commit none is the newest: their order means nothing (REC-6, LOG-8)."""
    if len(values) > 1:
        raise ValueError(f"it holds {len(values)} {name} actions and may hold one")
    return values[0] if values else None


def _transaction_from_json(row: Mapping[str, Any]) -> SetTransaction:
    return SetTransaction(
        app_id=text(row, "appId"), version=long(row, "version"), last_updated=optional_long(row, "lastUpdated")
    )


def _domain_from_json(row: Mapping[str, Any]) -> DomainMetadata:
    removed = row.get("removed")
    if removed is not None and not isinstance(removed, bool):
        raise ValueError(f"removed is {removed!r}, not true or false")
    return DomainMetadata(
        domain=text(row, "domain"),
        configuration="" if row.get("configuration") is None else text(row, "configuration"),
        removed=bool(removed),
    )


def _cdc_from_json(row: Mapping[str, Any]) -> AddCdcFile:
    values = row.get("partitionValues")
    return AddCdcFile(
        path=text(row, "path"),
        partition_values={} if values is None else nullable_texts(values, "partitionValues"),
        size=long(row, "size"),
        tags=None if row.get("tags") is None else nullable_texts(row["tags"], "tags"),
    )


def _file_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    if not rows:
        return _NO_FILES[schema is ADD_SCHEMA]
    maps, struct = _MAPS_AND_STRUCT[schema is ADD_SCHEMA]
    for row in rows:
        text(row, "path")
    values = [{**row, **{name: list(row[name].items()) for name in maps if row.get(name) is not None}} for row in rows]
    # One conversion of all rows: commits have few, and then an array for each column is what takes the time.
    batch = pa.RecordBatch.from_struct_array(pa.array(values, type=struct))
    files = pa.Table.from_batches([batch], schema=schema)
    refuse_incomplete(files)
    return files


_SCHEMAS = (ADD_SCHEMA, REMOVE_SCHEMA)
_NO_FILES = (REMOVE_SCHEMA.empty_table(), ADD_SCHEMA.empty_table())
_MAPS_AND_STRUCT = tuple(
    ([field.name for field in schema if pa.types.is_map(field.type)], pa.struct(list(schema)))
    for schema in (REMOVE_SCHEMA, ADD_SCHEMA)
)


def _one_vector_a_path(adds: pa.Table) -> pa.Table:
    """Refuse two adds of one file with different deletion vectors: which rows it has would be a guess (LOG-8, REC-7)."""
    if adds["deletionVector"].null_count < adds.num_rows and pc.count_distinct(adds["path"]).as_py() < adds.num_rows:
        files = pa.table({"path": adds["path"], "vector": dv_ids(adds)})
        if files.group_by(["path", "vector"]).aggregate([]).num_rows > pc.count_distinct(files["path"]).as_py():
            raise ValueError("it adds a file twice, with different deletion vectors")
    return adds


def _protocol_from_json(row: Mapping[str, Any]) -> Protocol:
    return Protocol(
        min_reader_version=long(row, "minReaderVersion"),
        min_writer_version=long(row, "minWriterVersion"),
        reader_features=optional_list(row, "readerFeatures"),
        writer_features=optional_list(row, "writerFeatures"),
    )


def _metadata_from_json(row: Mapping[str, Any]) -> Metadata:
    file_format = row.get("format") or {}
    provider = file_format.get("provider")
    return Metadata(
        id=text(row, "id"),
        schema_string=text(row, "schemaString"),
        partition_columns=optional_list(row, "partitionColumns") or (),
        configuration=optional_texts(row, "configuration") or {},
        name=optional_text(row, "name"),
        description=optional_text(row, "description"),
        format_provider="parquet" if provider is None else text(file_format, "provider"),
        format_options=optional_texts(file_format, "options") or {},
        created_time=optional_long(row, "createdTime"),
    )


def _commit_info_from_json(row: Mapping[str, Any]) -> CommitInfo:
    """Any object is a legal commitInfo (CINFO-1): a known name with a value of another type stays in ``extra``."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in row.items():
        if name not in _INFO_FIELDS or (value is not None and type(value) is not _INFO_TYPES.get(name, str)):
            extra[name] = value
        elif value is not None:
            known[_INFO_FIELDS[name]] = _texts(value) if type(value) is dict else value
    return CommitInfo(**known, extra=extra)


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Values as text: foreign writers put numbers, booleans and objects where the protocol has strings."""
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
