"""Table features, and which tables this client reads and writes."""

import itertools

import pytest

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.protocol_evolution import (
    check_metadata_supported,
    listed_by_other_name,
    required_features,
)
from cm_delta_dagster.protocol.features.table_features import (
    FEATURES,
    FeatureKind,
    Support,
    check_protocol_shape,
    check_readable,
    check_writable,
    is_active,
    is_catalog_managed,
    supports,
    writer_features,
)
from cm_delta_dagster.protocol.schema.types import (
    VARIANT,
    ArrayType,
    parse_schema,
)
from tests.protocol.features.protocols import WRITER_ONLY, features, metadata, protocol

READER_WRITER = [
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "catalogManaged",
]

SUPPORTED_READER_FEATURES = frozenset(
    item.name for item in FEATURES.values() if item.kind is FeatureKind.READER_WRITER and item.read is Support.FULL
)
SUPPORTED_WRITER_FEATURES = frozenset(item.name for item in FEATURES.values() if item.write is Support.FULL)


@pytest.mark.requirements("TF-1", "UP-TW-1")
@pytest.mark.parametrize("name", WRITER_ONLY + READER_WRITER)
def test_every_feature_of_the_protocol_is_known_with_its_kind(name: str) -> None:
    """Readers must support ``typeWidening`` too."""
    expected = FeatureKind.WRITER if name in WRITER_ONLY else FeatureKind.READER_WRITER
    assert FEATURES[name].kind is expected


@pytest.mark.requirements("TF-1", "PROT-4", "PROT-5", "VPC-1")
def test_the_fully_supported_features_are_listed() -> None:
    assert {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
        "catalogManaged",
    } == SUPPORTED_READER_FEATURES
    assert {"deletionVectors", "appendOnly", "domainMetadata", "inCommitTimestamp"} <= SUPPORTED_WRITER_FEATURES
    assert {"columnMapping", "typeWidening", "rowTracking", "checkpointProtection"} <= SUPPORTED_WRITER_FEATURES
    assert {"invariants", "checkConstraints", "generatedColumns", "variantType"} <= SUPPORTED_WRITER_FEATURES
    assert {"identityColumns", "allowColumnDefaults", "clustering"} <= SUPPORTED_WRITER_FEATURES
    assert {"icebergCompatV1", "icebergCompatV2"} <= SUPPORTED_WRITER_FEATURES


@pytest.mark.requirements("TF-2")
@pytest.mark.parametrize(
    ("reader", "writer", "implied"),
    [
        (1, 1, ""),
        (1, 2, "appendOnly invariants"),
        (1, 3, "appendOnly invariants checkConstraints"),
        (1, 4, "appendOnly invariants checkConstraints changeDataFeed generatedColumns"),
        (2, 5, "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping"),
        (2, 6, "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping identityColumns"),
    ],
)
def test_old_versions_imply_their_features(reader: int, writer: int, implied: str) -> None:
    assert writer_features(protocol(reader, writer)) == frozenset(implied.split())


@pytest.mark.requirements("TF-3", "CDF-1")
def test_a_feature_that_is_not_listed_is_off_at_writer_7() -> None:
    table = metadata(enableChangeDataFeed="true")

    assert not is_active("changeDataFeed", protocol(1, 7, None, ()), table)
    assert is_active("changeDataFeed", protocol(1, 7, None, ("changeDataFeed",)), table)
    assert is_active("changeDataFeed", protocol(1, 4), table)
    check_writable(protocol(1, 7, None, ()), "t")


@pytest.mark.requirements("TF-10")
def test_a_listed_feature_need_not_be_active() -> None:
    listed = features("appendOnly", "domainMetadata")

    assert supports(listed, "appendOnly")
    assert not is_active("appendOnly", listed, metadata())
    assert is_active("appendOnly", listed, metadata(appendOnly="TRUE"))
    assert is_active("domainMetadata", listed, metadata())


@pytest.mark.requirements("ICT-2", "X1")
def test_both_spellings_of_in_commit_timestamps_are_one_feature() -> None:
    plural = protocol(1, 7, None, ("inCommitTimestamps",))

    assert supports(plural, "inCommitTimestamp")
    assert supports(protocol(1, 7, None, ("inCommitTimestamp",)), "inCommitTimestamps")
    check_writable(plural, "t")


@pytest.mark.requirements("PROT-1", "PROT-6", "TF-5", "TF-6", "CM-1")
@pytest.mark.parametrize(
    "broken",
    [
        protocol(3, 6, ()),
        protocol(3, 5, (), None),
        protocol(3, 7, None, ()),
        protocol(3, 7, (), None),
        protocol(2, 7, ("columnMapping",), ("columnMapping",)),
        protocol(1, 6, None, ("appendOnly",)),
        protocol(1, 7, None, None),
        protocol(0, 2),
        protocol(3, 7, ("deletionVectors",), ()),
        protocol(3, 7, ("unheardOf",), ()),
        protocol(3, 7, (), ("catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp")),
        protocol(3, 7, ("vacuumProtocolCheck",), ("vacuumProtocolCheck", "catalogManaged", "inCommitTimestamp")),
        protocol(3, 7, ("catalogManaged",), ("inCommitTimestamp",)),
        protocol(2, 7, None, ("deletionVectors",)),
        protocol(1, 7, None, ("columnMapping",)),
    ],
)
def test_a_contradictory_protocol_is_damage(broken: Protocol) -> None:
    """``catalogManaged`` in one list only is refused, not read without the catalog."""
    for check in (check_protocol_shape, check_readable, check_writable):
        with pytest.raises(CorruptLogError, match="not valid"):
            check(broken, "t")


@pytest.mark.requirements("PROT-1", "TF-6", "TF-7")
@pytest.mark.parametrize(
    "right", [protocol(1, 1), protocol(2, 5), protocol(1, 7, None, ()), protocol(2, 7, None, ("columnMapping",)),
              protocol(3, 7, (), ()), protocol(3, 7, (), ("appendOnly",)),
              protocol(3, 7, (), ("columnMapping",)), protocol(3, 7, ("deletionVectors",), ("columnMapping", "deletionVectors"))],
)  # fmt: skip
def test_the_allowed_shapes_pass(right: Protocol) -> None:
    check_protocol_shape(right, "t")


@pytest.mark.requirements("TF-1", "TF-4")
@pytest.mark.parametrize("name", sorted(SUPPORTED_READER_FEATURES - {"catalogManaged", "columnMapping"}))
def test_a_feature_only_in_the_list_of_writers_is_read_but_not_written(name: str) -> None:
    """A feature is supported when its name is in either list, but belongs in both."""
    listed = protocol(3, 7, (), (name,))

    check_readable(listed, "t")
    assert supports(listed, name)
    with pytest.raises(
        UnsupportedFeatureError, match=f"my table cannot be written: writerFeatures contains {name}, which"
    ):
        check_writable(listed, "my table")


@pytest.mark.requirements("TF-6", "PROT-1")
def test_lists_of_features_are_present_exactly_at_the_versions_that_have_them() -> None:
    for valid in (
        protocol(1, 2),
        protocol(2, 6),
        protocol(1, 7, None, ()),
        protocol(2, 7, None, ()),
        protocol(3, 7, (), ()),
    ):
        check_protocol_shape(valid, "t")
    for broken in (
        protocol(3, 7, None, ()),
        protocol(3, 7, (), None),
        protocol(2, 7, (), ()),
        protocol(1, 7, None, None),
        protocol(1, 6, None, ()),
    ):
        with pytest.raises(CorruptLogError, match="must be present exactly at"):
            check_protocol_shape(broken, "t")


@pytest.mark.requirements("COLMAP-2")
def test_column_mapping_only_in_the_list_of_writers_is_written_too() -> None:
    """Delta-spark 3.1 wrote such tables."""
    check_writable(protocol(3, 7, (), ("columnMapping",)), "t")


@pytest.mark.requirements("PROT-3")
def test_higher_versions_require_an_upgrade() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"reader version 4.*Upgrade"):
        check_readable(protocol(4, 8), "t")
    check_readable(protocol(1, 8), "t")
    with pytest.raises(UnsupportedFeatureError, match=r"writer version 8.*Upgrade"):
        check_writable(protocol(1, 8), "t")


@pytest.mark.requirements("PROT-4", "PROT-5")
def test_unknown_reader_features_stop_reading_by_name() -> None:
    strange = protocol(3, 7, ("zz", "aa", "deletionVectors"), ("zz", "aa", "deletionVectors"))

    for check in (check_readable, check_writable):
        with pytest.raises(UnsupportedFeatureError, match=r"my table.*features aa, zz,"):
            check(strange, "my table")


@pytest.mark.requirements("PROT-5")
def test_unknown_writer_features_stop_only_writing() -> None:
    strange = protocol(3, 7, (), ("zz",))

    check_readable(strange, "t")
    with pytest.raises(UnsupportedFeatureError, match="zz"):
        check_writable(strange, "t")


@pytest.mark.requirements("TF-10", "PROT-5")
@pytest.mark.parametrize(
    ("feature", "used"),
    [
        ("invariants", metadata({"delta.invariants": "{}"})),
        ("checkConstraints", metadata(**{"constraints.c": "a > 0"})),
        ("generatedColumns", metadata({"delta.generationExpression": "1"})),
        ("identityColumns", metadata({"delta.identity.start": 1})),
        ("allowColumnDefaults", metadata({"CURRENT_DEFAULT": "1"})),
        ("icebergCompatV1", metadata(enableIcebergCompatV1="true")),
        ("icebergCompatV2", metadata(enableIcebergCompatV2="true")),
        ("variantType", metadata(data_type=ArrayType(VARIANT))),
    ],
)
def test_features_whose_rules_the_write_follows_are_writable(feature: str, used: Metadata) -> None:
    check_writable(features(feature), "t")
    assert feature in required_features(parse_schema(used.schema_string), used.configuration)


@pytest.mark.requirements("PROT-5")
@pytest.mark.parametrize("feature", ["unheardOf"])
def test_unknown_features_of_writers_refuse_writing_but_not_reading(feature: str) -> None:
    listed = protocol(1, 7, None, (feature, "domainMetadata"))

    check_readable(listed, "t")
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_writable(listed, "t")


@pytest.mark.requirements("PROT-7")
def test_tables_are_checked_without_their_metadata() -> None:
    check_writable(features("icebergCompatV2"), "t")
    check_readable(protocol(2, 5), "t")
    check_writable(features("invariants"), "t")


@pytest.mark.requirements("UP-TW-1", "TF-1")
def test_a_feature_with_two_names_is_required_by_the_name_of_the_protocol_text() -> None:
    """A table that lists the other name needs no second one."""
    used = metadata(enableTypeWidening="true")
    assert required_features(parse_schema(used.schema_string), used.configuration) == {"typeWidening"}
    check_metadata_supported(features("typeWidening-preview"), used)
    assert listed_by_other_name(features("typeWidening-preview")) == {"typeWidening"}


@pytest.mark.requirements("CM-1")
@pytest.mark.parametrize(
    "other",
    [
        protocol(3, 7, (), ("catalogManaged",)),
        protocol(3, 7, ("catalogManaged",), ()),
        protocol(1, 7, None, ("catalogManaged",)),
        protocol(2, 5),
        protocol(3, 7, ("catalogOwned-preview",), ("catalogOwned-preview",)),
    ],
)
def test_a_table_is_catalog_managed_only_with_the_feature_in_both_lists(other: Protocol) -> None:
    assert not is_catalog_managed(other)


@pytest.mark.requirements("TF-1")
def test_feature_names_are_case_sensitive() -> None:
    for name, change in itertools.product(("appendOnly", "deletionVectors"), (str.lower, str.upper)):
        assert not supports(features("appendOnly", "deletionVectors"), change(name))
