"""Protocol versions and table features."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, InvalidArgumentError, UnsupportedFeatureError
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
    SUPPORTED_READER_FEATURES,
    SUPPORTED_WRITER_FEATURES,
    FeatureKind,
    Support,
    check_protocol_shape,
    check_readable,
    check_writable,
    is_active,
    is_catalog_managed,
    reader_features,
    supports,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import default_properties
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DataType,
    StructField,
    StructType,
    parse_schema,
    schema_to_json,
)

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
READER_WRITER = [
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "catalogManaged",
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


@pytest.mark.parametrize("name", WRITER_ONLY + READER_WRITER)
def test_every_feature_of_the_protocol_is_known_with_its_kind(name: str) -> None:
    """TF-1, UP-TW-1: a reader of ``typeWidening`` must know it, as it is for both."""
    expected = FeatureKind.WRITER if name in WRITER_ONLY else FeatureKind.READER_WRITER
    assert FEATURES[name].kind is expected


def test_what_is_fully_supported_is_stated() -> None:
    """TF-1, PROT-4, PROT-5, VPC-1."""
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
    assert not {"columnMapping", "typeWidening", "variantType"} & SUPPORTED_WRITER_FEATURES


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
    """TF-2."""
    assert writer_features(protocol(reader, writer)) == frozenset(implied.split())


def test_a_feature_that_is_not_listed_is_off_at_writer_7() -> None:
    """TF-3, CDF-1."""
    table = metadata(enableChangeDataFeed="true")

    assert not is_active("changeDataFeed", protocol(1, 7, None, ()), table)
    assert is_active("changeDataFeed", protocol(1, 7, None, ("changeDataFeed",)), table)
    assert is_active("changeDataFeed", protocol(1, 4), table)
    check_writable(protocol(1, 7, None, ()), "t", metadata=table)


def test_listed_is_not_yet_active() -> None:
    """TF-10."""
    listed = features("appendOnly", "domainMetadata")

    assert supports(listed, "appendOnly")
    assert not is_active("appendOnly", listed, metadata())
    assert is_active("appendOnly", listed, metadata(appendOnly="TRUE"))
    assert is_active("domainMetadata", listed, metadata())


def test_both_spellings_of_in_commit_timestamps_are_one_feature() -> None:
    """ICT-2, ruling X1."""
    plural = protocol(1, 7, None, ("inCommitTimestamps",))

    assert supports(plural, "inCommitTimestamp")
    assert supports(protocol(1, 7, None, ("inCommitTimestamp",)), "inCommitTimestamps")
    check_writable(plural, "t")


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
        protocol(3, 7, (), ("deletionVectors",)),
        protocol(1, 7, None, ("columnMapping",)),
    ],
)
def test_a_protocol_that_contradicts_itself_is_damage(broken: Protocol) -> None:
    """PROT-1, PROT-6, TF-5, TF-6."""
    for check in (check_protocol_shape, check_readable, check_writable):
        with pytest.raises(CorruptLogError, match="not valid"):
            check(broken, "t")


@pytest.mark.parametrize(
    "right", [protocol(1, 1), protocol(2, 5), protocol(1, 7, None, ()), protocol(2, 7, None, ("columnMapping",)),
              protocol(3, 7, (), ()), protocol(3, 7, (), ("appendOnly",))],
)  # fmt: skip
def test_the_allowed_shapes_pass(right: Protocol) -> None:
    """PROT-1, TF-6, TF-7."""
    check_protocol_shape(right, "t")


def test_higher_versions_ask_for_an_upgrade() -> None:
    """PROT-3."""
    with pytest.raises(UnsupportedFeatureError, match=r"reader version 4.*Upgrade"):
        check_readable(protocol(4, 8), "t")
    check_readable(protocol(1, 8), "t")
    with pytest.raises(UnsupportedFeatureError, match=r"writer version 8.*Upgrade"):
        check_writable(protocol(1, 8), "t")


def test_unknown_reader_features_stop_reading_by_name() -> None:
    """PROT-4, PROT-5."""
    strange = protocol(3, 7, ("zz", "aa", "deletionVectors"), ("zz", "aa", "deletionVectors"))

    for check in (check_readable, check_writable):
        with pytest.raises(UnsupportedFeatureError, match=r"my table.*features aa, zz,"):
            check(strange, "my table", metadata=metadata())


def test_unknown_writer_features_stop_only_writing() -> None:
    """PROT-5."""
    strange = protocol(3, 7, (), ("zz",))

    check_readable(strange, "t")
    with pytest.raises(UnsupportedFeatureError, match="zz"):
        check_writable(strange, "t", metadata=metadata())


@pytest.mark.parametrize(
    ("feature", "used"),
    [
        ("invariants", metadata({"delta.invariants": "{}"})),
        ("checkConstraints", metadata(**{"constraints.c": "a > 0"})),
        ("changeDataFeed", metadata(enableChangeDataFeed="true")),
        ("generatedColumns", metadata({"delta.generationExpression": "1"})),
        ("identityColumns", metadata({"delta.identity.start": 1})),
        ("allowColumnDefaults", metadata({"CURRENT_DEFAULT": "1"})),
        ("icebergCompatV1", metadata(enableIcebergCompatV1="true")),
        ("icebergCompatV2", metadata(enableIcebergCompatV2="true")),
        ("columnMapping", metadata(**{"columnMapping.mode": "name"})),
        ("typeWidening", metadata({"delta.typeChanges": []})),
        ("variantType", metadata(data_type=ArrayType(VARIANT))),
    ],
)
def test_rules_not_kept_refuse_writing_once_they_bind(feature: str, used: Metadata) -> None:
    """TF-10, PROT-5, INV-3."""
    listed = features(feature)

    check_writable(listed, "t", metadata=metadata())
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_writable(listed, "t", metadata=used)
    assert feature in required_features(parse_schema(used.schema_string), used.configuration)


@pytest.mark.parametrize("feature", ["clustering", "checkpointProtection"])
def test_features_that_bind_by_being_listed_refuse_writing_but_not_reading(feature: str) -> None:
    """PROT-5, CLUST-1."""
    listed = protocol(1, 7, None, (feature, "domainMetadata"))

    check_readable(listed, "t")
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_writable(listed, "t", metadata=metadata())


def test_without_metadata_a_feature_that_may_be_in_use_is_refused() -> None:
    """PROT-7."""
    with pytest.raises(UnsupportedFeatureError, match="columnMapping"):
        check_writable(features("columnMapping"), "t")
    with pytest.raises(UnsupportedFeatureError, match="changeDataFeed"):
        check_writable(features("changeDataFeed"), "t")
    check_readable(protocol(2, 5), "t", metadata=metadata())
    check_writable(features("invariants"), "t")


def test_a_new_table_is_catalog_managed_readable_and_writable() -> None:
    """CM-1, CM-2, TF-4, TF-6."""
    new = catalog_managed_protocol(["timestampNtz", "domainMetadata"])

    check_protocol_shape(new, "t")
    assert is_catalog_managed(new)
    assert (new.min_reader_version, new.min_writer_version) == (3, 7)
    assert set(new.reader_features or ()) == {
        "catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "timestampNtz",
    }  # fmt: skip
    assert set(new.writer_features or ()) - set(new.reader_features or ()) == {
        "inCommitTimestamp", "appendOnly", "invariants", "domainMetadata",
    }  # fmt: skip
    table = Metadata(id="x", schema_string='{"type":"struct","fields":[]}', configuration=default_properties("id"))
    check_writable(new, "t", metadata=table)
    check_metadata_supported(new, table)


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
    """CM-1."""
    assert not is_catalog_managed(other)


@pytest.mark.parametrize("feature", ["clustering", "unheardOf"])
def test_features_whose_rules_are_not_kept_cannot_be_added(feature: str) -> None:
    """TF-12."""
    with pytest.raises(UnsupportedFeatureError, match=feature):
        catalog_managed_protocol([feature])


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
    """TF-8, TF-9, TF-11."""
    after = with_features(before, added)

    assert (after.min_reader_version, after.min_writer_version) == (3, 7)
    assert set(after.reader_features or ()) == set(readers.split())
    assert set(after.writer_features or ()) == set(writers.split())


def test_writer_features_alone_ask_nothing_of_readers() -> None:
    """TF-4, TF-6."""
    assert with_features(protocol(1, 1), ["domainMetadata"]) == protocol(1, 7, None, ("domainMetadata",))


addable = sorted(name for name, item in FEATURES.items() if item.write is not Support.NONE)
old_protocols = st.sampled_from(
    [protocol(1, w) for w in range(1, 5)]
    + [protocol(2, 5), protocol(2, 6), protocol(1, 7, None, ()), protocol(2, 7, None, ("columnMapping",))]
    + [protocol(3, 7, (), ()), catalog_managed_protocol()]
)


@settings(deadline=None)
@given(old_protocols, st.sets(st.sampled_from(addable)), st.sets(st.sampled_from(addable)))
def test_adding_features_gives_a_valid_protocol_that_loses_nothing(
    before: Protocol, first: set[str], second: set[str]
) -> None:
    """TF-4, TF-11, TF-14, PROT-6."""
    after = with_features(with_features(before, first), second)

    check_protocol_shape(after, "t")
    check_protocol_change(before, after)
    assert writer_features(before) | first | second <= writer_features(after)
    assert reader_features(before) <= reader_features(after)
    assert all(set(FEATURES[name].requires) <= writer_features(after) for name in first | second)
    assert with_features(after, first | second) == after


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (protocol(2, 5), protocol(1, 5), "never decrease"),
        (protocol(1, 7, None, ("appendOnly",)), protocol(1, 7, None, ()), "appendOnly would be dropped"),
        (protocol(1, 4), protocol(1, 7, None, ("appendOnly",)), "dropped"),
        (protocol(1, 2), protocol(3, 6, ()), "needs writer version 7"),
        (protocol(1, 2), protocol(3, 7, ("x",), ()), "writerFeatures lacks"),
    ],
)
def test_a_protocol_that_takes_something_away_is_not_committed(before: Protocol, after: Protocol, message: str) -> None:
    """TF-14, PROT-6, TF-5."""
    with pytest.raises(IllegalCommitError, match=message):
        check_protocol_change(before, after)


def test_a_zone_free_timestamp_needs_its_feature_at_any_depth() -> None:
    """NTZ-1, TF-12."""
    inner = StructType((StructField("t", TIMESTAMP_NTZ),))
    table = metadata(data_type=ArrayType(inner))

    assert required_features(StructType((StructField("a", ArrayType(inner)),)), {}) == {"timestampNtz"}
    with pytest.raises(IllegalCommitError, match="timestampNtz"):
        check_metadata_supported(protocol(3, 7, (), ()), table)
    check_metadata_supported(features("timestampNtz"), table)


def test_properties_need_their_features_and_what_those_require() -> None:
    """TF-11, TF-12, CM-2."""
    none = StructType(())

    assert required_features(none, {}) == frozenset()
    assert required_features(none, {"delta.enableRowTracking": "true"}) == {"rowTracking", "domainMetadata"}
    assert required_features(none, {"delta.enableIcebergCompatV2": "true"}) == {"icebergCompatV2", "columnMapping"}
    assert required_features(none, {"delta.enableRowTracking": "false", "delta.columnMapping.mode": "none"}) == set()
    assert required_features(none, default_properties("x")) == {
        "v2Checkpoint", "deletionVectors", "inCommitTimestamp",
    }  # fmt: skip


def test_catalog_management_needs_in_commit_timestamps_on() -> None:
    """CM-2."""
    with pytest.raises(IllegalCommitError, match="in-commit timestamps"):
        check_metadata_supported(catalog_managed_protocol(), metadata())
    bare = features("catalogManaged", "vacuumProtocolCheck")
    with pytest.raises(IllegalCommitError, match="inCommitTimestamp"):
        check_metadata_supported(bare, metadata(enableInCommitTimestamps="true"))
    check_metadata_supported(catalog_managed_protocol(), metadata(enableInCommitTimestamps="true"))


def test_features_are_asked_for_by_property() -> None:
    """TF-13."""
    properties = {"delta.feature.timestampNtz": "supported", "delta.feature.inCommitTimestamps": "supported", "a": "b"}

    assert requested_features(properties) == {"timestampNtz", "inCommitTimestamp"}
    for name in ("unheardOf", "appendonly", ""):
        with pytest.raises(InvalidArgumentError, match="does not know"):
            requested_features({f"delta.feature.{name}": "supported"})


def test_names_are_told_apart_by_case() -> None:
    """TF-1."""
    for name, change in itertools.product(("appendOnly", "deletionVectors"), (str.lower, str.upper)):
        assert not supports(features("appendOnly", "deletionVectors"), change(name))
