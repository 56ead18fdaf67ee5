"""The fields of each action (protocol heading "Actions"): conversion between JSON objects and Python values.

Every action is written with this module. File actions are read as columns by
:mod:`~cm_delta_dagster.protocol.actions.commit_json`, other actions are read with this module.
"""

import json
from collections.abc import Mapping
from typing import Any

from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    GroupParticipant,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    TransactionGroup,
)
from cm_delta_dagster.protocol.actions.json_fields import (
    FieldError,
    long,
    nullable_texts,
    optional_boolean,
    optional_list,
    optional_long,
    optional_text,
    optional_texts,
    required,
    text,
)


def to_fields(action: Action) -> tuple[str, dict[str, Any]]:
    """The name of the action in the log, and its fields without those that are None."""
    match action:
        case AddFile():
            return "add", _add_fields(action)
        case RemoveFile():
            return "remove", _remove_fields(action)
        case CommitInfo():
            return "commitInfo", _commit_info_fields(action)
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
            return "metaData", _metadata_fields(action)
        case SetTransaction():
            fields = {"appId": action.app_id, "version": action.version, "lastUpdated": action.last_updated}
            return "txn", _without_nulls(fields)
        case DomainMetadata():
            return "domainMetadata", {
                "domain": action.domain,
                "configuration": action.configuration,
                "removed": action.removed,
            }
        case TransactionGroup():
            return "transactionGroup", _group_fields(action)
        case AddCdcFile():
            fields = {
                "path": action.path,
                "partitionValues": dict(action.partition_values),
                "size": action.size,
                "dataChange": False,
                "tags": optional_dict(action.tags),
            }
            return "cdc", _without_nulls(fields)


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def optional_dict(values: Any) -> dict[str, Any] | None:
    """A new dictionary of a mapping or of its items; None stays None."""
    return None if values is None else dict(values)


def _add_fields(add: AddFile) -> dict[str, Any]:
    return _without_nulls(
        {
            "path": add.path,
            "partitionValues": dict(add.partition_values),
            "size": add.size,
            "modificationTime": add.modification_time,
            "dataChange": add.data_change,
            "stats": add.stats,
            "tags": optional_dict(add.tags),
            "deletionVector": _present_vector_fields(add.deletion_vector),
            "baseRowId": add.base_row_id,
            "defaultRowCommitVersion": add.default_row_commit_version,
            "clusteringProvider": add.clustering_provider,
        }
    )


def _remove_fields(remove: RemoveFile) -> dict[str, Any]:
    return _without_nulls(
        {
            "path": remove.path,
            "deletionTimestamp": remove.deletion_timestamp,
            "dataChange": remove.data_change,
            "extendedFileMetadata": remove.extended_file_metadata,
            "partitionValues": optional_dict(remove.partition_values),
            "size": remove.size,
            "stats": remove.stats,
            "tags": optional_dict(remove.tags),
            "deletionVector": _present_vector_fields(remove.deletion_vector),
            "baseRowId": remove.base_row_id,
            "defaultRowCommitVersion": remove.default_row_commit_version,
        }
    )


def deletion_vector_fields(vector: DeletionVectorDescriptor | None) -> dict[str, Any] | None:
    """The fields of a ``deletionVector``, with None for a missing offset; None without a deletion vector."""
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


def deletion_vector_of(fields: Mapping[str, Any]) -> DeletionVectorDescriptor:
    """The inverse of :func:`deletion_vector_fields`."""
    return DeletionVectorDescriptor(
        storage_type=fields["storageType"],
        path_or_inline_dv=fields["pathOrInlineDv"],
        size_in_bytes=fields["sizeInBytes"],
        cardinality=fields["cardinality"],
        offset=fields.get("offset"),
    )


def _present_vector_fields(vector: DeletionVectorDescriptor | None) -> dict[str, Any] | None:
    fields = deletion_vector_fields(vector)
    return None if fields is None else _without_nulls(fields)


def _metadata_fields(metadata: Metadata) -> dict[str, Any]:
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

COMMIT_INFO_FIELDS = frozenset(_INFO_FIELDS)
"""Fields of ``commitInfo`` that writers set; others are free."""

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


def _commit_info_fields(info: CommitInfo) -> dict[str, Any]:
    known = {name: getattr(info, attribute) for name, attribute in _INFO_FIELDS.items()}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in known.items()}
    return {**_without_nulls(plain), **info.extra}


def _group_fields(group: TransactionGroup) -> dict[str, Any]:
    participants = [
        {"tableId": part.table_id, "proposedVersion": part.proposed_version, **part.extra}
        for part in group.participants
    ]
    return {
        "transactionId": group.transaction_id,
        "participants": participants,
        "coordinatingCatalog": group.coordinating_catalog,
        **group.extra,
    }


_GROUP_FIELDS = frozenset({"transactionId", "participants", "coordinatingCatalog"})
_PARTICIPANT_FIELDS = frozenset({"tableId", "proposedVersion"})


def transaction_group_of(row: Mapping[str, Any]) -> TransactionGroup:
    """A group from the fields of a ``transactionGroup``. Raises FieldError if they are not valid."""
    listed = required(row, "participants")
    if not isinstance(listed, list) or not all(isinstance(part, dict) for part in listed):
        raise FieldError("participants", "is not an array of objects")
    participants = tuple(
        GroupParticipant(
            table_id=text(part, "tableId"),
            proposed_version=long(part, "proposedVersion"),
            extra={name: value for name, value in part.items() if name not in _PARTICIPANT_FIELDS},
        )
        for part in listed
    )
    return TransactionGroup(
        transaction_id=text(row, "transactionId"),
        participants=participants,
        coordinating_catalog=text(row, "coordinatingCatalog"),
        extra={name: value for name, value in row.items() if name not in _GROUP_FIELDS},
    )


def transaction_of(row: Mapping[str, Any]) -> SetTransaction:
    """A transaction identifier from the fields of a ``txn``. Raises FieldError if they are not valid."""
    return SetTransaction(
        app_id=text(row, "appId"), version=long(row, "version"), last_updated=optional_long(row, "lastUpdated")
    )


def domain_of(row: Mapping[str, Any]) -> DomainMetadata:
    """Domain metadata from the fields of a ``domainMetadata``. Raises FieldError if they are not valid."""
    return DomainMetadata(
        domain=text(row, "domain"),
        configuration="" if row.get("configuration") is None else text(row, "configuration"),
        removed=bool(optional_boolean(row, "removed")),
    )


def cdc_of(row: Mapping[str, Any]) -> AddCdcFile:
    """A change data file from the fields of a ``cdc``. Raises FieldError if they are not valid."""
    values = row.get("partitionValues")
    return AddCdcFile(
        path=text(row, "path"),
        partition_values={} if values is None else nullable_texts(values, "partitionValues"),
        size=long(row, "size"),
        tags=None if row.get("tags") is None else nullable_texts(row["tags"], "tags"),
    )


def protocol_of(row: Mapping[str, Any]) -> Protocol:
    """A protocol from the fields of a ``protocol``. Raises FieldError if they are not valid."""
    return Protocol(
        min_reader_version=long(row, "minReaderVersion"),
        min_writer_version=long(row, "minWriterVersion"),
        reader_features=optional_list(row, "readerFeatures"),
        writer_features=optional_list(row, "writerFeatures"),
    )


NO_SCHEMA = ""
"""Schema of a ``metaData`` without ``schemaString``. It matters only if the table is read with that metadata."""


def metadata_of(row: Mapping[str, Any]) -> Metadata:
    """Metadata from the fields of a ``metaData``. Raises FieldError if they are not valid."""
    file_format = row.get("format") or {}
    if not isinstance(file_format, dict):
        raise FieldError("format", "is not an object")
    provider = file_format.get("provider")
    return Metadata(
        id=text(row, "id"),
        schema_string=optional_text(row, "schemaString") or NO_SCHEMA,
        partition_columns=optional_list(row, "partitionColumns") or (),
        configuration=optional_texts(row, "configuration") or {},
        name=optional_text(row, "name"),
        description=optional_text(row, "description"),
        format_provider="parquet" if provider is None else text(file_format, "provider"),
        format_options=optional_texts(file_format, "options") or {},
        created_time=optional_long(row, "createdTime"),
    )


def commit_info_of(row: Mapping[str, Any]) -> CommitInfo:
    """Provenance of a commit from any JSON object. Known fields with a value of an unexpected type are kept in ``extra``."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in row.items():
        if name not in _INFO_FIELDS or (value is not None and type(value) is not _INFO_TYPES.get(name, str)):
            extra[name] = value
        elif value is not None:
            known[_INFO_FIELDS[name]] = _texts(value) if type(value) is dict else value
    return CommitInfo(**known, extra=extra)


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Values as strings: some writers use numbers, booleans and objects where the protocol requires strings."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
