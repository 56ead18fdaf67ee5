"""Each Arrow type that writers store, at the top and in structs, lists and maps, read whole, in part and without deleted rows."""

import errno
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.arrow import file_scan
from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.stored_types import has_filter, plain_list
from cm_delta_dagster.errors import CorruptLogError, StorageError, UnsupportedFeatureError
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.types import LONG, STRING, ArrayType, DataType, MapType, StructField, StructType
from tests.arrow.data_files import DataFiles, columns
from tests.support.stored_types import STORED_TYPES, StoredType


def _places(case: StoredType) -> dict[str, tuple[pa.Array, DataType, list[Any]]]:
    """The column at each place: its array, its type in the table, and its values as they are read."""
    array, values = case.array(), case.expected
    wanted = from_arrow_schema(pa.schema([("c", case.plain)])).fields[0].type
    ends = pa.array([0, 1, 2, 3], pa.int32())
    struct = StructType((StructField("x", wanted),))
    places: dict[str, tuple[pa.Array, DataType, list[Any]]] = {
        "c": (array, wanted, values),
        "s": (pa.StructArray.from_arrays([array], ["x"]), struct, [{"x": value} for value in values]),
    }
    if case.name != "struct_of_views":  # pyarrow cannot write views in structs in lists.
        places["l"] = (pa.ListArray.from_arrays(ends, array), ArrayType(wanted), [[value] for value in values])
        entries = pa.MapArray.from_arrays(ends, pa.array(["k"] * 3), array)
        places["m"] = (entries, MapType(STRING, wanted), [[("k", value)] for value in values])
    return places


@pytest.mark.requirements("PQ-2", "DV-2")
@pytest.mark.parametrize("case", STORED_TYPES, ids=lambda case: case.name)
@pytest.mark.parametrize("with_arrow_schema", [True, False])
def test_a_stored_type_is_read_with_conditions_and_without_deleted_rows(
    data_files: DataFiles, case: StoredType, with_arrow_schema: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = _places(case)
    schema = columns(i=LONG, **{name: kind for name, (_, kind, _) in places.items()})
    content = pa.table({"i": [0, 1, 2], **{name: array for name, (array, _, _) in places.items()}})
    data_files.add(content, store_schema=with_arrow_schema)
    data_files.add(content, store_schema=with_arrow_schema, deleted=[1])

    def check(rows: list[int], where: str | None = None) -> None:
        predicate = None if where is None else parse_predicate(where, schema)
        found = data_files.read(schema, predicate=predicate)
        assert found["i"].to_pylist() == rows
        for name, (_, _, values) in places.items():
            assert found[name].to_pylist() == [values[row] for row in rows], name

    for whole_group in (file_scan._WHOLE_GROUP_BYTES, 0):
        monkeypatch.setattr(file_scan, "_WHOLE_GROUP_BYTES", whole_group)
        check([0, 1, 2, 0, 2])
        check([1, 2, 2], "i >= 1")
        check([0, 2, 0, 2], "c IS NOT NULL")
        check([], "i > 2")


def test_list_views_become_lists_with_their_own_elements() -> None:
    """pyarrow casts them with those of others."""
    values = [[1], None, [2, 3], [], [4]]
    for kind in (pa.list_view, pa.large_list_view, pa.large_list, pa.list_):
        array = pa.array(values, kind(pa.int64()))
        for part in (array, array.slice(1), array.slice(1, 2), array.take(pa.array([4, 2, 0, 1])), array.slice(0, 0)):
            plain = plain_list(part)
            plain.validate(full=True)
            assert plain.type == pa.list_(pa.int64()) and plain.to_pylist() == part.to_pylist()


def test_only_views_are_filtered_after_their_conversion() -> None:
    views = {case.name for case in STORED_TYPES if not has_filter(case.stored)}
    assert views == {
        "string_view",
        "binary_view",
        "list_of_views",
        "large_list_of_views",
        "fixed_size_list_of_views",
        "map_of_views",
        "struct_of_views",
    }


def test_wide_rows_are_read_in_small_pieces(data_files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a batch has at most 2 GiB of text."""
    texts = [str(number) * 1_000 for number in range(100, 200)]
    data_files.add(pa.table({"s": pa.array(texts, pa.string_view())}), use_dictionary=False)
    monkeypatch.setattr(file_scan, "_WHOLE_GROUP_BYTES", 30_000)
    monkeypatch.setattr("cm_delta_dagster.arrow.scan._SMALL_BATCH_ROWS", 1)
    batches = list(data_files.stream(columns(s=STRING)))
    assert max(batch.num_rows for batch in batches) == 9
    assert [text for batch in batches for text in batch["s"].to_pylist()] == texts


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (pa.ArrowNotImplementedError("no kernel"), UnsupportedFeatureError),
        (pa.ArrowCapacityError("too many bytes"), UnsupportedFeatureError),
        (pa.ArrowMemoryError("malloc failed"), pa.ArrowMemoryError),
        (pa.ArrowCancelled("interrupted"), pa.ArrowCancelled),
        (OSError(errno.EMFILE, "Too many open files"), StorageError),
        (PermissionError(errno.EACCES, "Permission denied"), StorageError),
        (pa.ArrowInvalid("invalid UTF-8"), CorruptLogError),
        (OSError("Couldn't deserialize thrift"), CorruptLogError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_file_is_called_damaged_only_if_its_content_shows_it(
    data_files: DataFiles, raised: Exception, expected: type[Exception]
) -> None:
    with pytest.raises(expected) as caught, DataFile(data_files.store, "file:///t/a.parquet", 1).errors():
        raise raised
    assert ("is damaged" in str(caught.value)) == (expected is CorruptLogError)


def test_a_file_of_128_bit_integers_is_not_called_damaged(data_files: DataFiles) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"c": polars.Series([1, None], dtype=polars.Int128)})
    path = data_files.add(pa.table({}), write=lambda _, target, **options: frame.write_parquet(target))
    with pytest.raises(UnsupportedFeatureError, match=path):
        data_files.read(columns(c=LONG))


def test_a_stored_time_is_refused_as_such(data_files: DataFiles) -> None:
    for stored in (pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        data_files.adds.clear()
        data_files.add(pa.table({"c": pa.array([1], stored)}))
        assert pq.ParquetFile(data_files.root / "part-00000.parquet").schema_arrow.field("c").type == stored
        with pytest.raises(CorruptLogError, match="is stored as time"):
            data_files.read(columns(c=LONG))
