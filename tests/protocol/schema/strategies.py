"""Hypothesis strategies for schemas."""

from hypothesis import strategies as st

from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

PRIMITIVES = [
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "void",
    "variant",
]

names = st.text(alphabet="abcXYZ_ü. $", min_size=1, max_size=6)
metadata = st.dictionaries(names, st.one_of(st.integers(), st.text(), st.booleans(), st.none()), max_size=2)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))


def fields(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    field = st.builds(StructField, names, types, st.booleans(), metadata)
    return st.lists(field, max_size=4, unique_by=lambda item: item.name.lower()).map(lambda f: StructType(tuple(f)))


def nested(leaves: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(ArrayType, inner, st.booleans()), st.builds(MapType, inner, inner, st.booleans()), fields(inner)
        ),
        max_leaves=6,
    )


schemas = fields(nested(st.one_of(st.sampled_from([PrimitiveType(name) for name in PRIMITIVES]), decimals)))
arrow_schemas = fields(
    nested(
        st.one_of(
            st.sampled_from([PrimitiveType(name) for name in PRIMITIVES if name not in ("variant", "void")]), decimals
        )
    )
)
