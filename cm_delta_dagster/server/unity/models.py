"""Requests of Unity Catalog's Delta API: names are in kebab-case, and fields that are not known are ignored.

A requirement or an update of an unknown kind is refused: its sender relies on it.
"""

import itertools
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictInt, StrictStr


def _kebab_case(name: str) -> str:
    return name.replace("_", "-")


_Positive = Annotated[StrictInt, Field(gt=0, lt=2**63)]
NotNegative: TypeAlias = Annotated[StrictInt, Field(ge=0, lt=2**63)]
"""A number of 64 bits without a sign."""
_MAX_NAME, _MAX_NUMBERS = 64, 32
"""Of a report of metrics, which becomes a part of a line of the log."""


class WireModel(BaseModel):
    """A JSON object of the Delta API."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=_kebab_case, validate_by_name=False)


class StagingTableRequest(WireModel):
    """``POST staging-tables``."""

    name: StrictStr = Field(min_length=1)


class WireProtocol(WireModel):
    """The action ``protocol``."""

    min_reader_version: _Positive
    min_writer_version: _Positive
    reader_features: tuple[StrictStr, ...] = ()
    writer_features: tuple[StrictStr, ...] = ()


class WireColumns(WireModel):
    """A schema; :mod:`~cm_delta_dagster.server.unity.columns` reads its fields."""

    type: Literal["struct"] = "struct"
    fields: tuple[dict[str, JsonValue], ...]


class CreateTableRequest(WireModel):
    """``POST tables``: version 0 is written, and its table is to get its name."""

    name: StrictStr = Field(min_length=1)
    location: StrictStr
    table_type: Literal["MANAGED", "EXTERNAL"]
    columns: WireColumns
    partition_columns: tuple[StrictStr, ...] | None = None
    protocol: WireProtocol
    properties: dict[str, StrictStr] = Field(default_factory=dict)
    domain_metadata: dict[str, JsonValue] | None = None
    last_commit_timestamp_ms: NotNegative | None = None
    comment: StrictStr | None = None
    uniform: dict[str, JsonValue] | None = None


class AssertTableUuid(WireModel):
    """The request is for the table with this id."""

    type: Literal["assert-table-uuid"]
    uuid: StrictStr


class AssertEtag(WireModel):
    """The request is for the metadata of this etag."""

    type: Literal["assert-etag"]
    etag: StrictStr


Requirement: TypeAlias = Annotated[AssertTableUuid | AssertEtag, Field(discriminator="type")]


class StagedFile(WireModel):
    """A staged commit as its writer describes it."""

    version: _Positive
    timestamp: _Positive
    file_name: StrictStr
    file_size: _Positive
    file_modification_timestamp: _Positive


class AddCommit(WireModel):
    """Ratify a staged commit."""

    action: Literal["add-commit"]
    commit: StagedFile
    uniform: dict[str, JsonValue] | None = None


class SetPublishedVersion(WireModel):
    """The log has every version up to this one."""

    action: Literal["set-latest-backfilled-version"]
    latest_published_version: NotNegative


class UpdateProperties(WireModel):
    """Properties that the commit sets."""

    action: Literal["set-properties"]
    updates: dict[str, StrictStr]


class RemoveProperties(WireModel):
    """Properties that the commit removes."""

    action: Literal["remove-properties"]
    removals: tuple[StrictStr, ...]


class SetProtocol(WireModel):
    """The protocol after the commit."""

    action: Literal["set-protocol"]
    protocol: WireProtocol


class SetColumns(WireModel):
    """The schema after the commit."""

    action: Literal["set-columns"]
    columns: WireColumns


class SetPartitionColumns(WireModel):
    """The partition columns after the commit."""

    action: Literal["set-partition-columns"]
    partition_columns: tuple[StrictStr, ...]


class SetTableComment(WireModel):
    """The description of the table after the commit."""

    action: Literal["set-table-comment"]
    comment: StrictStr | None = None


class SetDomainMetadata(WireModel):
    """Domains that the commit sets, with their configuration as JSON."""

    action: Literal["set-domain-metadata"]
    updates: dict[str, Any]


class RemoveDomainMetadata(WireModel):
    """Domains that the commit removes."""

    action: Literal["remove-domain-metadata"]
    domains: tuple[StrictStr, ...]


DefinitionUpdate: TypeAlias = (
    UpdateProperties
    | RemoveProperties
    | SetProtocol
    | SetColumns
    | SetPartitionColumns
    | SetTableComment
    | SetDomainMetadata
    | RemoveDomainMetadata
)
"""What a client says of the metadata, the protocol and the domains of the commit that it adds."""

Update: TypeAlias = Annotated[AddCommit | SetPublishedVersion | DefinitionUpdate, Field(discriminator="action")]


class UpdateTableRequest(WireModel):
    """``POST tables/{table}``: a commit, with what it changes."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()


class RenameRequest(WireModel):
    """``POST tables/{table}/rename``."""

    new_name: StrictStr = Field(min_length=1)


class MetricsRequest(WireModel):
    """``POST tables/{table}/metrics``."""

    table_id: StrictStr
    report: dict[str, JsonValue] = Field(default_factory=dict)

    def numbers(self) -> dict[str, int | float]:
        """The first numbers of the report of a commit, such as ``num-files-added``."""
        stated = self.report.get("commit-report")
        members = stated.items() if isinstance(stated, dict) else ()
        numbers = (
            (name[:_MAX_NAME], value)
            for name, value in members
            if isinstance(value, int | float) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        )
        return dict(itertools.islice(numbers, _MAX_NUMBERS))
