"""Commits in the words of the older API, which become a request of the Delta API, or are answered from its values."""

from collections.abc import Iterator
from typing import Any

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.server.unity.models import (
    AddCommit,
    AssertTableUuid,
    SetColumns,
    SetPublishedVersion,
    SetTableComment,
    Update,
    UpdateProperties,
    UpdateTableRequest,
    WireColumns,
)
from cm_delta_dagster.server.unity.older_models import OlderCommitRequest, OlderCommitsRequest, OlderMetadata
from cm_delta_dagster.server.unity.stated_tables import columns_of_infos, in_order, is_same_location


def table_of_id(client: DeltaClient, table_id: str, *, table_uri: str | None) -> TableEntry:
    """The table with an id.

    Raises:
        TableNotFoundError: no table has it.
        InvalidArgumentError: the table is at another place than the client says.
    """
    entry = client.registry.load_table_by_id(table_id)
    if table_uri is not None and not is_same_location(table_uri, entry.location):
        raise InvalidArgumentError(
            f"The table with the id {table_id} is not at {table_uri}. Nothing was changed. Load the table, and use its location."
        )
    return entry


def as_update(request: OlderCommitRequest) -> UpdateTableRequest:
    """What a commit of the older API says, as an update of the Delta API. Raises InvalidArgumentError."""
    requirement = AssertTableUuid.model_construct(type="assert-table-uuid", uuid=request.table_id)
    return UpdateTableRequest.model_construct(requirements=(requirement,), updates=tuple(_updates(request)))


def _updates(request: OlderCommitRequest) -> Iterator[Update]:
    if request.commit_info is not None:
        yield AddCommit.model_construct(action="add-commit", commit=request.commit_info, uniform=request.uniform)
    if request.latest_backfilled_version is not None:
        yield SetPublishedVersion.model_construct(
            action="set-latest-backfilled-version", latest_published_version=request.latest_backfilled_version
        )
    if request.metadata is not None:
        yield from _definition_updates(request.metadata)


def _definition_updates(metadata: OlderMetadata) -> Iterator[Update]:
    if metadata.description is not None:
        yield SetTableComment.model_construct(action="set-table-comment", comment=metadata.description)
    if metadata.columns is not None and metadata.columns.columns is not None:
        columns = columns_of_infos(in_order(metadata.columns.columns))
        yield SetColumns.model_construct(
            action="set-columns", columns=WireColumns.model_construct(fields=tuple(columns["fields"]))
        )
    if metadata.properties is not None and metadata.properties.properties is not None:
        yield UpdateProperties.model_construct(action="set-properties", updates=metadata.properties.properties)


def commits_answer(
    request: OlderCommitsRequest, entry: TableEntry, unpublished: tuple[RatifiedCommit, ...]
) -> dict[str, Any]:
    """The unpublished commits of the versions that a client asks for, the newest first. Raises InvalidArgumentError."""
    if request.end_version is not None and request.end_version < request.start_version:
        raise InvalidArgumentError(
            f"end_version must be at least start_version, and {request.end_version} is less than {request.start_version}."
        )
    last = entry.ratified.latest_version if request.end_version is None else request.end_version
    return {
        "commits": [
            {
                "version": commit.version,
                "timestamp": commit.in_commit_timestamp,
                "file_name": commit.file_name,
                "file_size": commit.file_size,
                "file_modification_timestamp": commit.file_modification_time,
            }
            for commit in reversed(unpublished)
            if request.start_version <= commit.version <= last
        ],
        "latest_table_version": entry.ratified.latest_version,
    }
