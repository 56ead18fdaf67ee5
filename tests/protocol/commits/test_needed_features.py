"""Metadata that readers of its protocol would read in different ways."""

import pytest

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.commits.proposal_checks.features import flaw_of_features
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DataType,
    StructField,
    StructType,
    schema_to_json,
)

_CHANGES = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}


def _metadata(
    data_type: DataType = LONG, metadata: dict[str, object] | None = None, properties: dict[str, str] | None = None
) -> Metadata:
    schema = StructType((StructField("a", LONG), StructField("b", data_type, True, metadata or {})))
    return Metadata(id="x", schema_string=schema_to_json(schema), configuration=properties or {})


def _protocol(*features: str) -> Protocol:
    return Protocol(min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features)


@pytest.mark.requirements("TF-12")
@pytest.mark.parametrize(
    ("metadata", "field", "features"),
    [
        (_metadata(properties={"delta.columnMapping.mode": "name"}), "configuration", ["columnMapping"]),
        (_metadata(TIMESTAMP_NTZ), "schemaString", ["timestampNtz"]),
        (_metadata(ArrayType(VARIANT)), "schemaString", ["variantType", "variantType-preview"]),
        (_metadata(metadata=_CHANGES), "schemaString", ["typeWidening", "typeWidening-preview"]),
    ],
)
def test_metadata_that_decides_how_rows_are_read_needs_its_feature(
    metadata: Metadata, field: str, features: list[str]
) -> None:
    """The preview of a feature is enough."""
    for protocol in (_protocol(), _protocol("deletionVectors")):
        flaw = flaw_of_features(metadata, protocol)
        assert flaw is not None and (flaw.action, flaw.field) == ("metaData", field)
        assert f"needs the feature {features[0]}," in flaw.why
    for feature in features:
        assert flaw_of_features(metadata, _protocol(feature)) is None


@pytest.mark.requirements("TF-3")
@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableTypeWidening": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.columnMapping.mode": "none"},
    ],
)
def test_a_property_alone_needs_no_feature_to_read_rows(properties: dict[str, str]) -> None:
    """Only files from before a change of a type need type widening."""
    assert flaw_of_features(_metadata(properties=properties), _protocol()) is None
