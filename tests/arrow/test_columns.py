"""Finding columns in files: by name, physical name and id, at every level."""

import pyarrow as pa
import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.schema.types import LONG, STRING, ArrayType, MapType, StructField, StructType
from tests.arrow.data_files import DataFiles, columns, mapped, numbered

NONE, NAME, ID = ColumnMappingMode.NONE, ColumnMappingMode.NAME, ColumnMappingMode.ID

_NESTED = StructType(
    (
        mapped("id", LONG, 1),
        mapped("s", StructType((mapped("a", LONG, 3), mapped("inner", StructType((mapped("b", STRING, 5),)), 4))), 2),
        mapped("l", ArrayType(StructType((mapped("c", LONG, 7), mapped("new", STRING, 8)))), 6),
        mapped("m", MapType(StructType((mapped("k", LONG, 10),)), StructType((mapped("v", LONG, 11),))), 9),
        mapped("added", StructType((mapped("x", LONG, 13),)), 12),
    )
)
_ROWS = [
    {
        "id": 1,
        "s": {"a": 2, "inner": {"b": "x"}},
        "l": [{"c": 3, "new": None}, None],
        "m": [({"k": 4}, {"v": 5})],
        "added": None,
    },
    {"id": None, "s": None, "l": None, "m": None, "added": None},
]


def _file(names: dict[int, str]) -> pa.Table:
    """Two rows of ``_NESTED`` without what was added later, fields named as given, in another order, one more in each
    struct."""

    def field(number: int, arrow: pa.DataType, nullable: bool = True) -> pa.Field:
        return numbered(names[number], arrow, number, nullable)

    b = pa.struct([field(5, pa.string())])
    s = pa.struct([numbered("dropped", pa.int64(), 99), field(4, b), field(3, pa.int64())])
    element = pa.struct([numbered("dropped", pa.string(), 98), field(7, pa.int64())])
    key, value = pa.struct([field(10, pa.int64())]), pa.struct([field(11, pa.int64())])
    schema = pa.schema(
        [
            field(9, pa.map_(key, value)),
            field(6, pa.list_(element)),
            numbered("gone", pa.int64(), 97),
            field(2, s),
            field(1, pa.int64()),
        ]
    )
    first = [
        [({names[10]: 4}, {names[11]: 5})],
        [{"dropped": "z", names[7]: 3}, None],
        9,
        {"dropped": 0, names[4]: {names[5]: "x"}, names[3]: 2},
        1,
    ]
    arrays = [pa.array([value, None], item.type) for value, item in zip(first, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)


@pytest.mark.requirements("COLMAP-name-1", "COLMAP-10", "COLMAP-12")
def test_fields_are_found_by_physical_name_at_every_level(data_files: DataFiles) -> None:
    """Structs, lists of structs, keys and values of maps."""
    data_files.add(_file({number: f"col-{number}" for number in _NUMBERS}))
    assert data_files.read(_NESTED, mapping=NAME).to_pylist() == _ROWS


@pytest.mark.requirements("COLMAP-id-1", "COLMAP-id-4")
def test_fields_are_found_by_id_at_every_level_whatever_their_names(data_files: DataFiles) -> None:
    data_files.add(_file({number: f"odd name {number}" for number in _NUMBERS}))
    assert data_files.read(_NESTED, mapping=ID).to_pylist() == _ROWS


@pytest.mark.requirements("COLMAP-name-2", "COLMAP-12")
def test_a_display_name_in_a_file_means_nothing_with_a_mapping(data_files: DataFiles) -> None:
    """A column that was dropped and added again starts empty."""
    data_files.add(pa.Table.from_arrays([pa.array([1])], schema=pa.schema([numbered("id", pa.int64(), 50)])))
    schema = StructType((mapped("id", LONG, 1),))
    assert data_files.rows(schema, mapping=NAME) == [(None,)]
    assert data_files.rows(schema, mapping=ID) == [(None,)]


@pytest.mark.requirements("COLMAP-none-1", "COLMAP-name-1")
def test_ids_in_files_mean_nothing_without_id_mode(data_files: DataFiles) -> None:
    """Mapping metadata left behind is ignored as well."""
    schema = StructType((mapped("a", LONG, 2, "a"), mapped("b", LONG, 1, "b")))
    fields = [numbered("a", pa.int64(), 1), numbered("b", pa.int64(), 2)]
    data_files.add(pa.Table.from_arrays([pa.array([10]), pa.array([20])], schema=pa.schema(fields)))
    assert data_files.rows(schema, mapping=NONE) == [(10, 20)]
    assert data_files.rows(schema, mapping=NAME) == [(10, 20)]
    assert data_files.rows(schema, mapping=ID) == [(20, 10)]


@pytest.mark.requirements("COLMAP-id-3")
def test_a_file_without_ids_is_refused_in_id_mode(data_files: DataFiles) -> None:
    path = data_files.add(pa.table({"col-1": [1]}))
    with pytest.raises(CorruptLogError, match="no field ids") as caught:
        data_files.read(StructType((mapped("id", LONG, 1),)), mapping=ID)
    assert path in str(caught.value)


@pytest.mark.requirements("COLMAP-id-2", "COLMAP-9")
def test_partition_values_are_found_by_physical_name(data_files: DataFiles) -> None:
    table = pa.Table.from_arrays([pa.array([1])], schema=pa.schema([numbered("x", pa.int64(), 1)]))
    data_files.add(table, partition={"col-2": "p"})
    schema = StructType((mapped("id", LONG, 1), mapped("part", STRING, 2)))
    assert data_files.rows(schema, ["part"], mapping=ID) == [(1, "p")]
    assert data_files.rows(schema, ["part"], mapping=NAME) == [(None, "p")]


@pytest.mark.requirements("COLMAP-15")
def test_the_change_type_is_found_by_its_literal_name(data_files: DataFiles) -> None:
    fields = [numbered("x", pa.int64(), 1), pa.field("_change_type", pa.string())]
    data_files.add(pa.Table.from_arrays([pa.array([1]), pa.array(["insert"])], schema=pa.schema(fields)))
    schema = StructType((mapped("id", LONG, 1), StructField("_change_type", STRING)))
    assert data_files.rows(schema, mapping=ID) == [(1, "insert")]


@pytest.mark.requirements("SCHEMA-8")
def test_names_are_compared_ignoring_case_at_every_level(data_files: DataFiles) -> None:
    """Files of several writers spell names in several ways."""
    data_files.add(pa.table({"ID": [1], "S": [{"INNER": 2}]}))
    data_files.add(pa.table({"s": [{"inner": 4}], "id": [3]}))
    schema = columns(id=LONG, s=StructType((StructField("Inner", LONG),)))
    assert data_files.rows(schema) == [(1, {"Inner": 2}), (3, {"Inner": 4})]


@pytest.mark.parametrize("rows", [{"id": [1], "ID": [2]}, {"s": [{"a": 1, "A": 2}]}])
def test_two_columns_for_one_are_refused(data_files: DataFiles, rows: dict[str, list[object]]) -> None:
    data_files.add(pa.table(rows))
    schema = columns(id=LONG, s=StructType((StructField("a", LONG),)))
    with pytest.raises(CorruptLogError, match="several columns"):
        data_files.read(schema)


@pytest.mark.requirements("COLMAP-3")
def test_a_mapped_table_with_a_field_that_has_no_id_is_refused(data_files: DataFiles) -> None:
    data_files.add(_file({number: f"n{number}" for number in _NUMBERS}))
    broken = StructType((StructField("id", LONG, True, {"delta.columnMapping.physicalName": "n1"}),))
    with pytest.raises(CorruptLogError, match=r"delta\.columnMapping\.id"):
        data_files.read(broken, mapping=ID)
