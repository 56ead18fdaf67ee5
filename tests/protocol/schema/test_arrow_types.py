"""Delta types as Arrow types, and Arrow types as Delta types."""

import pyarrow as pa
import pytest
from hypothesis import given, settings

from cm_delta_dagster.errors import InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema, to_arrow_schema
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    STRING,
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from tests.protocol.schema.strategies import arrow_schemas


def without_metadata(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return StructType(
                tuple(StructField(f.name, without_metadata(f.type), f.nullable) for f in data_type.fields)
            )
        case ArrayType():
            return ArrayType(without_metadata(data_type.element_type), data_type.contains_null)
        case MapType():
            key, value = without_metadata(data_type.key_type), without_metadata(data_type.value_type)
            return MapType(key, value, data_type.value_contains_null)
        case _:
            return data_type


@pytest.mark.requirements("PQ-1", "SCHEMA-10")
@settings(deadline=None)
@given(arrow_schemas)
def test_types_survive_the_conversion_to_arrow_and_back(schema: StructType) -> None:
    assert from_arrow_schema(to_arrow_schema(schema)) == without_metadata(schema)


@pytest.mark.requirements("PQ-3")
@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.timestamp("ns", "Europe/Berlin"), PrimitiveType("timestamp")),
        (pa.timestamp("s"), PrimitiveType("timestamp_ntz")),
        (pa.uint32(), LONG),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.large_list(pa.large_string()), ArrayType(STRING)),
        (pa.dictionary(pa.int8(), pa.string()), STRING),
        (pa.decimal256(38, 3), DecimalType(38, 3)),
    ],
)
def test_foreign_arrow_types_become_a_type_that_holds_every_value(arrow: pa.DataType, expected: DataType) -> None:
    assert from_arrow_schema(pa.schema([("c", arrow)])).fields[0].type == expected


@pytest.mark.requirements("SCHEMA-11")
def test_void_columns_are_nullable_in_arrow_even_if_declared_not_null() -> None:
    void = PrimitiveType("void")
    schema = StructType((StructField("v", void, False), StructField("a", ArrayType(void, False))))

    assert to_arrow_schema(schema).field("v") == pa.field("v", pa.null())
    with pytest.raises(UnsupportedFeatureError, match="'m' is a map"):
        to_arrow_schema(StructType((StructField("m", MapType(void, STRING)),)))


@pytest.mark.requirements("PQ-3", "SCHEMA-4")
def test_types_without_a_counterpart_are_refused_by_column() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'s\.t'"):
        from_arrow_schema(pa.schema([("s", pa.struct([("t", pa.time64("us"))]))]))
    with pytest.raises(InvalidArgumentError):
        from_arrow_schema(pa.schema([("c", pa.decimal256(39, 0))]))
    with pytest.raises(UnsupportedFeatureError, match="'v' has the type 'variant'"):
        to_arrow_schema(StructType((StructField("v", VARIANT),)))
