"""Builders of protocols, and of metadata that uses a feature."""

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.schema.types import LONG, DataType, StructField, StructType, schema_to_json

WRITER_ONLY = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "identityColumns",
    "allowColumnDefaults",
    "rowTracking",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "clustering",
    "inCommitTimestamp",
]


def protocol(
    reader: int, writer: int, readers: tuple[str, ...] | None = None, writers: tuple[str, ...] | None = None
) -> Protocol:
    return Protocol(
        min_reader_version=reader, min_writer_version=writer, reader_features=readers, writer_features=writers
    )


def features(*names: str) -> Protocol:
    """3/7 with the features, each in the lists where it belongs."""
    return protocol(3, 7, tuple(n for n in names if n not in WRITER_ONLY), names)


def metadata(
    field_metadata: dict[str, object] | None = None, data_type: DataType = LONG, **configuration: str
) -> Metadata:
    schema = StructType((StructField("a", data_type, True, field_metadata or {}),))
    keys = {f"delta.{key}": value for key, value in configuration.items()}
    return Metadata(id="x", schema_string=schema_to_json(schema), configuration=keys)
