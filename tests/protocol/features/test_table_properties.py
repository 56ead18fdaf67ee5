"""Typed table properties and the rules for user-set ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.table_properties import (
    CheckpointPolicy,
    TableProperties,
    check_removable_properties,
    check_user_properties,
    default_properties,
    parse_interval_ms,
    required_properties,
    stored_properties,
)

DAY = 86_400_000


@pytest.mark.requirements("CLEAN-1", "VAC-1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", 30 * DAY),
        ("INTERVAL 1 WEEK", 7 * DAY),
        ("7 days", 7 * DAY),
        ("interval 1 day 2 hours 3 minutes 4 seconds 5 milliseconds", DAY + 7_384_005),
        ("interval 1500 microseconds", 1),
        ("  interval   0   hours ", 0),
        ("interval '2' hour", 7_200_000),
    ],
)
def test_intervals_are_read_in_milliseconds(text: str, expected: int) -> None:
    assert parse_interval_ms(text) == expected


@pytest.mark.requirements("CLEAN-1")
@pytest.mark.parametrize(
    "text",
    ["", "interval", "30", "interval 1 month", "interval 2 years", "interval -1 days", "interval 1.5 days", "days 3"],
)
def test_intervals_without_a_fixed_length_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="interval"):
        parse_interval_ms(text)


_UNITS = [
    ("week", 7 * DAY),
    ("day", DAY),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1000),
    ("millisecond", 1),
]


@pytest.mark.requirements("CLEAN-1")
@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(_UNITS), st.booleans())
def test_any_number_of_a_unit_is_that_many_times_its_length(n: int, unit: tuple[str, int], plural: bool) -> None:
    assert parse_interval_ms(f"interval {n} {unit[0]}{'s' if plural else ''}") == n * unit[1]


@pytest.mark.requirements("CKPT-15", "CLEAN-1", "VAC-1", "STATS-8", "OCC-14", "CKPT-10", "X17", "UP-TP-1")
def test_an_empty_configuration_has_the_documented_defaults() -> None:
    properties = TableProperties({})

    assert not properties.append_only
    assert properties.checkpoint_interval == 10
    assert properties.log_retention_ms == 30 * DAY
    assert properties.deleted_file_retention_ms == 7 * DAY
    assert properties.data_skipping_num_indexed_cols == 32
    assert properties.data_skipping_stats_columns is None
    assert properties.isolation_level == "WriteSerializable"
    assert properties.checkpoint_policy is CheckpointPolicy.CLASSIC
    assert properties.write_stats_as_json
    assert not properties.write_stats_as_struct
    assert not properties.in_commit_timestamps_enabled
    assert properties.in_commit_timestamp_enablement_version is None
    assert properties.parquet_compression == "zstd"
    assert properties.target_file_size is None
    assert properties.checkpoints_protected_before == 0


@pytest.mark.requirements("META-5")
@pytest.mark.parametrize(("value", "expected"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)])
def test_booleans_are_compared_with_true_ignoring_case(value: str, expected: bool) -> None:
    assert TableProperties({"delta.appendOnly": value}).append_only is expected


@pytest.mark.requirements("APPEND-1", "X8")
def test_the_key_without_prefix_has_no_effect() -> None:
    assert not TableProperties({"appendOnly": "true"}).append_only


@pytest.mark.requirements("ICT-10", "CKPT-15", "UP-TP-1", "OCC-14")
def test_set_values_are_read() -> None:
    properties = TableProperties(
        {
            "delta.checkpointInterval": "3",
            "delta.inCommitTimestampEnablementVersion": "5",
            "delta.inCommitTimestampEnablementTimestamp": "1700000000000",
            "delta.parquet.compression.codec": "SNAPPY",
            "delta.isolationLevel": "serializable",
            "delta.targetFileSize": "128mb",
            "delta.dataSkippingNumIndexedCols": "-1",
            "io.unitycatalog.tableId": "id",
        }
    )

    assert properties.checkpoint_interval == 3
    assert properties.in_commit_timestamp_enablement_version == 5
    assert properties.in_commit_timestamp_enablement_timestamp == 1_700_000_000_000
    assert properties.parquet_compression == "snappy"
    assert properties.isolation_level == "Serializable"
    assert properties.target_file_size == 128 * 1024 * 1024
    assert properties.data_skipping_num_indexed_cols == -1
    assert properties.table_id == "id"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", 7), ("8 b", 8), ("2KB", 2**11), ("3m", 3 * 2**20), ("1 gb", 2**30), ("1GiB", 2**30), ("1tb", 2**40)],
)
def test_sizes_are_read_in_binary_units(text: str, expected: int) -> None:
    assert TableProperties({"delta.targetFileSize": text}).target_file_size == expected


@pytest.mark.requirements("META-5")
def test_an_invalid_value_is_reported_with_its_key_when_it_is_read() -> None:
    properties = TableProperties({"delta.checkpointInterval": "0", "delta.logRetentionDuration": "later"})

    with pytest.raises(InvalidArgumentError, match=r"delta\.checkpointInterval"):
        _ = properties.checkpoint_interval
    with pytest.raises(InvalidArgumentError, match=r"delta\.logRetentionDuration"):
        _ = properties.log_retention_ms


@pytest.mark.requirements("CM-2", "META-7")
def test_a_new_table_has_the_properties_that_the_catalog_requires() -> None:
    properties = TableProperties({**default_properties(), **required_properties("the-id")})

    assert properties.table_id == "the-id"
    assert properties.checkpoint_policy is CheckpointPolicy.V2
    assert properties.deletion_vectors_enabled
    assert properties.in_commit_timestamps_enabled
    assert properties.write_stats_as_json
    assert properties.write_stats_as_struct


@pytest.mark.requirements("META-7", "CM-2", "TF-13", "UP-TP-2")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.unheardOf", "1"),
        ("delta.appendonly", "true"),
        ("Delta.appendOnly", "true"),
        ("delta.columnMapping.maxColumnId", "3"),
        ("delta.rowTracking.materializedRowIdColumnName", "x"),
        ("delta.inCommitTimestampEnablementVersion", "3"),
        ("io.unitycatalog.tableId", "x"),
        ("is_managed_location", "true"),
        ("delta.enableInCommitTimestamps", "false"),
        ("delta.enableInCommitTimestamps", "false"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "ten"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.appendOnly", "yes"),
        ("delta.logRetentionDuration", "interval 1 month"),
        ("delta.isolationLevel", "SnapshotIsolation"),
        ("delta.parquet.compression.codec", "brotli"),
        ("delta.targetFileSize", "0"),
        ("delta.minReaderVersion", "4"),
        ("delta.minWriterVersion", "0"),
        ("delta.minWriterVersion", "8"),
        ("delta.feature.appendOnly", "disabled"),
        ("delta.constraints.", "a > 0"),
        ("delta.constraints.c", " "),
        ("delta.parquet.format.version", "3.0.0"),
    ],
)
def test_properties_that_users_may_not_set_are_refused_by_key(key: str, value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=key):
        check_user_properties({key: value})


@pytest.mark.requirements("META-7", "TF-13")
def test_properties_that_users_may_set_are_accepted() -> None:
    check_user_properties(
        {
            "my.own": "anything",
            "delta.checkpointInterval": "50",
            "delta.dataSkippingNumIndexedCols": "0",
            "delta.enableInCommitTimestamps": "TRUE",
            "delta.checkpointPolicy": "V2",
            "delta.feature.timestampNtz": "supported",
            "delta.constraints.positive": "a > 0",
            "delta.logRetentionDuration": "interval 2 weeks",
            "delta.minWriterVersion": "4",
            "delta.feature.rowTracking": "enabled",
        }
    )


@pytest.mark.requirements("META-5")
def test_values_that_are_not_strings_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="strings"):
        check_user_properties({"a": 1})


@pytest.mark.requirements("TF-13")
def test_properties_that_request_features_are_not_stored() -> None:
    given_properties = {"a": "1", "delta.feature.timestampNtz": "supported", "delta.minReaderVersion": "3"}

    assert stored_properties(given_properties) == {"a": "1"}


@pytest.mark.requirements("META-7", "CM-2")
@pytest.mark.parametrize(
    "key",
    [
        "delta.enableInCommitTimestamps",
        "io.unitycatalog.tableId",
        "ucTableId",
        "is_managed_location",
        "delta.columnMapping.maxColumnId",
        "delta.inCommitTimestampEnablementVersion",
        "delta.rowTracking.materializedRowIdColumnName",
        "io.unitycatalog.other",
    ],
)
def test_properties_that_the_client_or_the_catalog_maintains_cannot_be_removed(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'{key}'.* cannot be removed"):
        check_removable_properties(["delta.appendOnly", key])


@pytest.mark.requirements("UP-RT-1")
def test_other_properties_can_be_removed() -> None:
    """A suspension of row tracking ends when its property is removed."""
    check_removable_properties(["delta.appendOnly", "mine", "delta.rowTrackingSuspended", "delta.constraints.c"])
