"""Requests of Unity Catalog's older API: names are in snake case, and fields that are not known are ignored."""

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, StrictStr

from cm_delta_dagster.catalog.storage_credentials import FileAccess
from cm_delta_dagster.server.unity.models import NotNegative, StagedFile


class OlderModel(BaseModel):
    """A JSON object of the older API."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CreateSchemaRequest(OlderModel):
    """``POST schemas``."""

    name: StrictStr = Field(min_length=1)
    catalog_name: StrictStr = Field(min_length=1)
    comment: StrictStr | None = None
    properties: dict[str, StrictStr] | None = None


class OlderStagingRequest(OlderModel):
    """``POST staging-tables``."""

    name: StrictStr = Field(min_length=1)
    catalog_name: StrictStr = Field(min_length=1)
    schema_name: StrictStr = Field(min_length=1)


class OlderColumn(OlderModel):
    """A column; ``type_json`` is its field, or the type alone, as the schema of the log has it."""

    name: StrictStr
    type_json: StrictStr | None = None
    nullable: StrictBool = True
    comment: StrictStr | None = None
    position: NotNegative | None = None
    partition_index: NotNegative | None = None


class OlderTableRequest(OlderStagingRequest):
    """``POST tables``."""

    table_type: StrictStr
    data_source_format: StrictStr | None = None
    columns: tuple[OlderColumn, ...] | None = None
    storage_location: StrictStr | None = None
    comment: StrictStr | None = None
    properties: dict[str, StrictStr] | None = None


class OlderStagedFile(StagedFile):
    """A staged commit."""

    model_config = ConfigDict(alias_generator=str)


class OlderProperties(OlderModel):
    """The properties of a table after a commit."""

    properties: dict[str, StrictStr] | None = None


class OlderColumns(OlderModel):
    """The columns of a table after a commit."""

    columns: tuple[OlderColumn, ...] | None = None


class OlderMetadata(OlderModel):
    """What a client says of the metadata after a commit."""

    description: StrictStr | None = None
    columns: OlderColumns | None = Field(default=None, alias="schema")
    properties: OlderProperties | None = None


class OlderCommitRequest(OlderModel):
    """``POST delta/preview/commits``."""

    table_id: StrictStr = Field(min_length=1)
    table_uri: StrictStr = Field(min_length=1)
    commit_info: OlderStagedFile | None = None
    latest_backfilled_version: NotNegative | None = None
    metadata: OlderMetadata | None = None
    uniform: dict[str, JsonValue] | None = None


class OlderCommitsRequest(OlderModel):
    """``GET delta/preview/commits``, whose request has a body."""

    table_id: StrictStr = Field(min_length=1)
    table_uri: StrictStr | None = None
    start_version: NotNegative
    end_version: NotNegative | None = None


class OlderCredentialsRequest(OlderModel):
    """``POST temporary-table-credentials``."""

    table_id: StrictStr = Field(min_length=1)
    operation: FileAccess
