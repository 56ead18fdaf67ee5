"""Definitions of tables that Iceberg readers open."""

from typing import Any

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.column_ids import ColumnIds
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME, ColumnMappingMode
from cm_delta_dagster.protocol.features.iceberg_compat import (
    KEYS,
    NESTED_IDS,
    active_versions,
    check_iceberg_compat,
    check_partitioning_kept,
    has_collections,
    with_nested_ids,
)
from cm_delta_dagster.protocol.schema.types import (
    INTEGER,
    LONG,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from cm_delta_dagster.remedies import DropTableFeature

V1, V2 = {KEYS[1]: "true"}, {KEYS[2]: "True"}
ARRAY, MAP = ArrayType(LONG), MapType(STRING, LONG)


def schema_with(data_type: DataType) -> StructType:
    return StructType((StructField("a", LONG), StructField("s", StructType((StructField("x", data_type),)))))


def check(configuration: dict[str, str], data_type: DataType = LONG, **arguments: Any) -> None:
    arguments = {"mapping": ColumnMappingMode.NAME, "lists_vectors": False, "writes_vectors": False} | arguments
    check_iceberg_compat(schema_with(data_type), configuration, **arguments)


def test_a_property_enables_a_version_whatever_its_case() -> None:
    assert [active_versions(one) for one in ({}, V1, V2, V1 | V2, {KEYS[1]: "false"})] == [(), (1,), (2,), (1, 2), ()]


@pytest.mark.parametrize(
    ("configuration", "arguments", "rule"),
    [
        (V1 | V2, {}, "the other version is enabled too"),
        (V1, {"mapping": ColumnMappingMode.NONE}, "the table has no column mapping"),
        (V2, {"mapping": ColumnMappingMode.NONE}, "the table has no column mapping"),
        (V1, {"lists_vectors": True}, "the table has the feature deletionVectors"),
        (V1, {"writes_vectors": True}, "deletion vectors are enabled"),
        (V2, {"writes_vectors": True}, "deletion vectors are enabled"),
        (V1, {"data_type": ARRAY}, "does not have the type array<bigint>"),
        (V1, {"data_type": MAP}, "does not have the type map<string,bigint>"),
        (V1, {"data_type": VOID}, "does not have the type void"),
        (V2, {"data_type": VOID}, "does not have the type void"),
        (V2, {"data_type": VARIANT}, "does not have the type variant"),
        (V2, {"data_type": ArrayType(VARIANT)}, "does not have the type variant"),
    ],
)
def test_a_definition_that_breaks_a_rule_is_refused(
    configuration: dict[str, str], arguments: dict[str, Any], rule: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=rule) as refused:
        check(configuration, **arguments)
    has_vectors = "lists_vectors" in arguments
    assert refused.value.remedy == (DropTableFeature(feature="deletionVectors") if has_vectors else None)


@pytest.mark.parametrize(
    ("configuration", "arguments"),
    [
        ({}, {"mapping": ColumnMappingMode.NONE, "writes_vectors": True, "data_type": VOID}),
        (V1, {"mapping": ColumnMappingMode.ID}),
        (V1, {"data_type": DecimalType(10, 2)}),
        (V2, {"lists_vectors": True}),
        (V2, {"data_type": MapType(STRING, ArrayType(DecimalType(10, 2)))}),
    ],
)
def test_a_definition_that_complies_is_accepted(configuration: dict[str, str], arguments: dict[str, Any]) -> None:
    check(configuration, **arguments)


def test_partition_columns_keep_their_names_and_order() -> None:
    for before, after in ((("a",), ("b",)), (("a", "b"), ("b", "a")), (("a",), ())):
        check_partitioning_kept(before, after, {})
        with pytest.raises(InvalidArgumentError, match="the partition columns would change from"):
            check_partitioning_kept(before, after, V2)
    check_partitioning_kept(("a",), ("A",), V1)


def test_collections_are_found_at_every_level() -> None:
    assert [has_collections(schema_with(one)) for one in (LONG, ARRAY, MAP)] == [False, True, True]


@pytest.mark.requirements("ICEV2-5")
def test_elements_keys_and_values_get_ids_above_the_highest_and_keep_theirs() -> None:
    nested = MapType(STRING, ArrayType(ArrayType(INTEGER)))
    known = {"col-m.key": 3}
    schema = StructType(
        (
            StructField("l", LONG, metadata={PHYSICAL_NAME: "col-l"}),
            StructField("m", nested, metadata={PHYSICAL_NAME: "col-m", NESTED_IDS: known}),
            StructField("n", ArrayType(LONG), metadata={PHYSICAL_NAME: "col-n"}),
        )
    )
    ids = ColumnIds(highest=7, new_name=lambda item: item.name)
    changed = with_nested_ids(schema, ids, ColumnMappingMode.NAME)
    assert changed.fields[0] == schema.fields[0] and ids.highest == 11
    assert changed.fields[1].metadata[NESTED_IDS] == {
        "col-m.key": 3,
        "col-m.value": 8,
        "col-m.value.element": 9,
        "col-m.value.element.element": 10,
    }
    assert changed.fields[2].metadata[NESTED_IDS] == {"col-n.element": 11} and known == {"col-m.key": 3}
    assert with_nested_ids(changed, ids, ColumnMappingMode.NAME) == changed
