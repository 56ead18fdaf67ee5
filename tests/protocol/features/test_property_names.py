"""The spelling of table properties and features: case does not matter in what a user names."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.property_names import canonical_key, canonical_properties, feature_named
from cm_delta_dagster.protocol.features.protocol_evolution import requested_features
from cm_delta_dagster.protocol.features.table_properties import check_user_properties


@pytest.mark.requirements("META-7")
def test_known_keys_get_their_spelling_and_others_stay() -> None:
    given = {"DELTA.APPENDONLY": "true", "My.Key": "1", "delta.Feature.x": "supported", "Delta.Constraints.C": "a > 0"}
    spelled = {
        "delta.appendOnly": "true",
        "My.Key": "1",
        "delta.feature.x": "supported",
        "delta.constraints.C": "a > 0",
    }
    assert canonical_properties(given) == spelled
    assert canonical_key("delta.unknownKey") == "delta.unknownKey"


@pytest.mark.requirements("META-7")
def test_an_internal_key_is_refused_in_any_case() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be set"):
        check_user_properties(canonical_properties({"delta.columnmapping.MAXCOLUMNID": "9"}))


@pytest.mark.requirements("TF-13")
def test_features_are_requested_in_any_case() -> None:
    assert feature_named("ROWTRACKING") == "rowTracking"
    assert feature_named("inCommitTimestamps") == "inCommitTimestamp"
    assert requested_features({"delta.feature.deletionvectors": "enabled"}) == {"deletionVectors"}
    with pytest.raises(InvalidArgumentError, match="does not know"):
        requested_features({"delta.feature.nope": "supported"})


@pytest.mark.requirements("TF-13")
@pytest.mark.parametrize(
    ("reader", "writer", "features"),
    [
        (None, "2", {"appendOnly", "invariants"}),
        (None, "4", {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}),
        ("1", "5", {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}),
        (
            "2",
            "5",
            {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"},
        ),
        ("3", "7", set()),
    ],
)
def test_versions_of_the_protocol_request_their_features(reader: str | None, writer: str, features: set[str]) -> None:
    versions = {"delta.minReaderVersion": reader, "delta.minWriterVersion": writer}
    assert requested_features({key: value for key, value in versions.items() if value is not None}) == features
