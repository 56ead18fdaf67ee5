"""Protocols of new tables, and features that a commit adds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import IllegalCommitError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.protocol_evolution import (
    catalog_managed_protocol,
    check_metadata_supported,
    check_protocol_change,
    requested_features,
    required_features,
    with_features,
)
from cm_delta_dagster.protocol.features.table_features import (
    FEATURES,
    Support,
    check_protocol_shape,
    check_writable,
    is_catalog_managed,
    reader_features,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import default_properties
from cm_delta_dagster.protocol.schema.types import TIMESTAMP_NTZ, ArrayType, StructField, StructType
from cm_delta_dagster.remedies import SetClusteringColumns
from tests.protocol.features.protocols import features, metadata, protocol


@pytest.mark.requirements("CM-1", "CM-2", "TF-4", "TF-6")
def test_a_new_table_is_catalog_managed_readable_and_writable() -> None:
    new = catalog_managed_protocol(["timestampNtz", "domainMetadata", "deletionVectors", "v2Checkpoint"])

    check_protocol_shape(new, "t")
    assert is_catalog_managed(new)
    assert (new.min_reader_version, new.min_writer_version) == (3, 7)
    assert set(new.reader_features or ()) == {
        "catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "timestampNtz",
    }  # fmt: skip
    assert set(new.writer_features or ()) - set(new.reader_features or ()) == {
        "inCommitTimestamp", "appendOnly", "invariants", "domainMetadata",
    }  # fmt: skip
    table = Metadata(id="x", schema_string='{"type":"struct","fields":[]}', configuration=default_properties())
    check_writable(new, "t")
    check_metadata_supported(new, table)


@pytest.mark.requirements("TF-12")
@pytest.mark.parametrize("feature", ["unheardOf"])
def test_unsupported_features_cannot_be_added(feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=feature):
        catalog_managed_protocol([feature])


@pytest.mark.requirements("TF-8", "TF-9", "TF-11")
@pytest.mark.parametrize(
    ("before", "added", "readers", "writers"),
    [
        (
            protocol(1, 4),
            ["deletionVectors"],
            "deletionVectors",
            "appendOnly invariants checkConstraints changeDataFeed generatedColumns deletionVectors",
        ),
        (
            protocol(2, 5),
            ["timestampNtz"],
            "columnMapping timestampNtz",
            "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping timestampNtz",
        ),
        (
            protocol(2, 6),
            ["v2Checkpoint"],
            "columnMapping v2Checkpoint",
            "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping identityColumns "
            "v2Checkpoint",
        ),
        (
            protocol(1, 1),
            ["catalogManaged"],
            "catalogManaged vacuumProtocolCheck",
            "catalogManaged inCommitTimestamp vacuumProtocolCheck",
        ),
    ],
)
def test_an_upgrade_lists_everything_that_may_have_been_used(
    before: Protocol, added: list[str], readers: str, writers: str
) -> None:
    after = with_features(before, added)

    assert (after.min_reader_version, after.min_writer_version) == (3, 7)
    assert set(after.reader_features or ()) == set(readers.split())
    assert set(after.writer_features or ()) == set(writers.split())


@pytest.mark.requirements("TF-4", "TF-6")
def test_writer_features_do_not_change_the_reader_version() -> None:
    assert with_features(protocol(1, 1), ["domainMetadata"]) == protocol(1, 7, None, ("domainMetadata",))


addable = sorted(name for name, item in FEATURES.items() if item.write is not Support.NONE)
old_protocols = st.sampled_from(
    [protocol(1, w) for w in range(1, 5)]
    + [protocol(2, 5), protocol(2, 6), protocol(1, 7, None, ()), protocol(2, 7, None, ("columnMapping",))]
    + [protocol(3, 7, (), ()), catalog_managed_protocol()]
)


@pytest.mark.requirements("TF-4", "TF-11", "TF-14", "PROT-6")
@settings(deadline=None)
@given(old_protocols, st.sets(st.sampled_from(addable)), st.sets(st.sampled_from(addable)))
def test_adding_features_gives_a_valid_protocol_and_drops_nothing(
    before: Protocol, first: set[str], second: set[str]
) -> None:
    after = with_features(with_features(before, first), second)

    check_protocol_shape(after, "t")
    check_protocol_change(before, after)
    assert writer_features(before) | first | second <= writer_features(after)
    assert reader_features(before) <= reader_features(after)
    assert all(set(FEATURES[name].requires) <= writer_features(after) for name in first | second)
    assert with_features(after, first | second) == after


@pytest.mark.requirements("TF-14", "PROT-6", "TF-4", "TF-5")
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (protocol(2, 5), protocol(1, 5), "never decrease"),
        (protocol(1, 7, None, ("appendOnly",)), protocol(1, 7, None, ()), "appendOnly would be dropped"),
        (protocol(1, 4), protocol(1, 7, None, ("appendOnly",)), "dropped"),
        (protocol(1, 2), protocol(3, 6, ()), "needs writer version 7"),
        (protocol(1, 2), protocol(3, 7, ("x",), ()), "writerFeatures lacks"),
        (protocol(3, 7, (), ()), protocol(3, 7, (), ("deletionVectors",)), "deletionVectors, which readers must"),
    ],
)
def test_a_protocol_that_drops_features_or_versions_is_refused(before: Protocol, after: Protocol, message: str) -> None:
    with pytest.raises(IllegalCommitError, match=message):
        check_protocol_change(before, after)


@pytest.mark.requirements("NTZ-1", "TF-12")
def test_a_zone_free_timestamp_needs_its_feature_at_any_depth() -> None:
    inner = StructType((StructField("t", TIMESTAMP_NTZ),))
    table = metadata(data_type=ArrayType(inner))

    assert required_features(StructType((StructField("a", ArrayType(inner)),)), {}) == {"timestampNtz"}
    with pytest.raises(IllegalCommitError, match="timestampNtz"):
        check_metadata_supported(protocol(3, 7, (), ()), table)
    check_metadata_supported(features("timestampNtz"), table)


@pytest.mark.requirements("TF-11", "TF-12", "CM-2")
def test_properties_need_their_features_and_what_those_require() -> None:
    none = StructType(())

    assert required_features(none, {}) == frozenset()
    assert required_features(none, {"delta.enableRowTracking": "true"}) == {"rowTracking", "domainMetadata"}
    assert required_features(none, {"delta.enableIcebergCompatV2": "true"}) == {"icebergCompatV2", "columnMapping"}
    assert required_features(none, {"delta.enableRowTracking": "false", "delta.columnMapping.mode": "none"}) == set()
    assert required_features(none, default_properties()) == {
        "v2Checkpoint", "deletionVectors", "inCommitTimestamp",
    }  # fmt: skip


@pytest.mark.requirements("CM-2")
def test_catalog_managed_tables_need_in_commit_timestamps() -> None:
    with pytest.raises(IllegalCommitError, match="in-commit timestamps"):
        check_metadata_supported(catalog_managed_protocol(), metadata())
    bare = features("catalogManaged", "vacuumProtocolCheck")
    with pytest.raises(IllegalCommitError, match="inCommitTimestamp"):
        check_metadata_supported(bare, metadata(enableInCommitTimestamps="true"))
    check_metadata_supported(catalog_managed_protocol(), metadata(enableInCommitTimestamps="true"))


@pytest.mark.requirements("TF-13")
def test_features_are_requested_by_property() -> None:
    properties = {"delta.feature.timestampNtz": "supported", "delta.feature.inCommitTimestamps": "supported", "a": "b"}

    assert requested_features(properties) == {"timestampNtz", "inCommitTimestamp"}
    for name in ("unheardOf", "append_only", ""):
        with pytest.raises(InvalidArgumentError, match="does not know"):
            requested_features({f"delta.feature.{name}": "supported"})
    with pytest.raises(InvalidArgumentError, match="clustering cannot be requested by itself") as refused:
        requested_features({"delta.feature.clustering": "supported"})
    assert refused.value.remedy == SetClusteringColumns()
