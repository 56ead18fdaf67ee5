"""Rules for rows over batches of Arrow, where tables that this package creates do not show them."""

import pyarrow as pa
import pytest

from cm_delta_dagster.arrow.write.row_rules import row_rules, rules_need_spark
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema.types import INTEGER, STRING, ArrayType, MapType, StructField, StructType

_REQUIRED = StructType((StructField("x", INTEGER, nullable=False),))
_STRUCT = pa.struct([("x", pa.int32())])
_MAP = pa.map_(pa.string(), _STRUCT)
_NESTED = {
    "array<struct>": (ArrayType(_REQUIRED, contains_null=True), pa.list_(_STRUCT)),
    "array<int NOT NULL>": (ArrayType(INTEGER, contains_null=False), pa.list_(pa.int32())),
    "map<string,struct>": (MapType(STRING, _REQUIRED, value_contains_null=True), _MAP),
    "array<map>": (
        ArrayType(MapType(STRING, _REQUIRED, value_contains_null=True), contains_null=True),
        pa.list_(_MAP),
    ),
}
FINE = {
    "array<struct>": [None, [], [None, {"x": 1}]],
    "array<int NOT NULL>": [None, [], [1]],
    "map<string,struct>": [None, [], [("a", None), ("b", {"x": 1})]],
    "array<map>": [None, [None, []], [[("a", {"x": 1}), ("b", None)]]],
}
BROKEN = {
    "array<struct>": ([{"x": 2}, {"x": None}], "c.element.x"),
    "array<int NOT NULL>": ([1, None], "c.element"),
    "map<string,struct>": ([("a", {"x": 2}), ("b", {"x": None})], "c.value.x"),
    "array<map>": ([[("a", {"x": None})]], "c.element.value.x"),
}


@pytest.mark.parametrize("name", _NESTED)
@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_null_inside_of_arrays_and_maps_is_refused_with_its_path_and_row(name: str, start: int) -> None:
    """Batches may be slices of the arrays of a caller."""
    data_type, arrow_type = _NESTED[name]
    schema = StructType((StructField("id", INTEGER), StructField("c", data_type)))
    (rule,) = row_rules(TableLayout(location="file:///t", schema=schema))
    fine = pa.array(FINE[name], arrow_type).slice(start)
    rule.check({"id": pa.array(range(len(fine))), "c": fine}, len(fine))
    value, path = BROKEN[name]
    rows = pa.array([*FINE[name], value, value], arrow_type).slice(start)
    with pytest.raises(InvalidDataError, match=rf"Column '{path}' is NOT NULL .* The row has id = {3 - start}\.$"):
        rule.check({"id": pa.array(range(len(rows))), "c": rows}, len(rows))


def test_a_struct_with_a_required_field_may_not_be_null() -> None:
    """As in delta-spark, whose field of a NULL struct is NULL."""
    schema = StructType((StructField("id", INTEGER), StructField("c", _REQUIRED)))
    (rule,) = row_rules(TableLayout(location="file:///t", schema=schema))
    with pytest.raises(InvalidDataError, match=r"'c\.x' is NOT NULL .*, or in the struct around it; .* id = 1\."):
        rule.check({"id": pa.array([0, 1]), "c": pa.array([{"x": 1}, None], _STRUCT)}, 2)


@pytest.mark.parametrize(
    ("expression", "is_evaluated"),
    [
        ("a > 0", True),
        ("a BETWEEN 1 AND 5 OR s IS NULL", True),
        ("s LIKE 'a%'", True),
        ("NOT (s = 'x')", True),
        ("abs(a) > 0", False),
        ("a > b", True),
        ("a + b > 0", True),
        ("a + b > 0 AND a > 0", False),
        ("length(s) > a", True),
        ("sqrt(a) > b", False),
        ("absent > 0", False),
        ("a", False),
        ("not sql at all (", False),
    ],
)
def test_what_arrow_cannot_evaluate_is_left_to_spark(expression: str, is_evaluated: bool) -> None:
    schema = StructType((StructField("a", INTEGER), StructField("b", INTEGER), StructField("s", STRING)))
    properties = TableProperties({"delta.constraints.c": expression})
    layout = TableLayout(location="file:///t", schema=schema, properties=properties)
    assert (rules_need_spark(layout) is None) == is_evaluated
    assert len(row_rules(layout)) == 1 if is_evaluated else "only Spark evaluates" in str(rules_need_spark(layout))
