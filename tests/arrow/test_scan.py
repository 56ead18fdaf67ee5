"""Rows of data files without a JVM: what the log says, what the files hold, and what is wrong with them."""

import datetime as dt
import threading
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidDataError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.deletion_vectors import encode_bitmap, encode_file, encode_relative_name
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.predicates.predicates import And, Comparison, ComparisonOperator, IsNull, Or
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from cm_delta_dagster.storage.memory_store import MemoryStore
from tests.arrow.data_files import DataFiles, columns, mapped, numbered
from tests.support.actions import add_file
from tests.support.waiting import until

_ROW_IDS = RowIdColumns(row_id="_row-id-col-1", row_commit_version="_row-commit-version-col-1")


def _ids(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count), pa.int64())})


# --- what the log says ------------------------------------------------------------------------------------------------


@pytest.mark.requirements("PART-1", "PART-3", "PART-4", "PART-5", "PART-6", "PART-7", "PART-8")
def test_partition_values_come_from_the_log(data_files: DataFiles) -> None:
    """Of every type, whatever a column of that name in the file holds."""
    types = {
        "s": (STRING, "x", "x"),
        "e": (STRING, "", None),
        "i": (INTEGER, "-5", -5),
        "d": (DATE, "1969-12-31", dt.date(1969, 12, 31)),
        "n": (DecimalType(5, 2), "12.3", Decimal("12.30")),
        "f": (DOUBLE, "NaN", None),
        "t": (TIMESTAMP, "2020-01-01T00:00:00.5Z", dt.datetime(2020, 1, 1, microsecond=500000, tzinfo=dt.UTC)),
        "z": (TIMESTAMP_NTZ, "2020-01-01 00:00:00", dt.datetime(2020, 1, 1)),
        "b": (BINARY, "\u0001\u00ff", b"\x01\xff"),
        "missing": (LONG, None, None),
    }
    values = {name: text for name, (_, text, _) in types.items()}
    data_files.add(pa.table({"id": [1, 2], "s": ["wrong", "wrong"]}), partition=values)
    schema = columns(id=LONG, **{name: data_type for name, (data_type, _, _) in types.items()})

    rows = data_files.read(schema, list(types)).to_pylist()

    assert [row["id"] for row in rows] == [1, 2]
    assert np.isnan(rows[0].pop("f"))
    assert {name: rows[0][name] for name in types if name != "f"} == {
        name: value for name, (_, _, value) in types.items() if name != "f"
    }


@pytest.mark.requirements("SKIP-1")
def test_files_are_left_out_by_their_exact_partition_values(data_files: DataFiles) -> None:
    """A condition on partitions is decided for whole files; this one is not even there."""
    data_files.add(_ids(2), partition={"p": "a"})
    data_files.add(_ids(2, 10), partition={"p": None})
    (data_files.root / data_files.add(_ids(2, 20), partition={"p": "c"})).unlink()
    schema = columns(id=LONG, p=STRING)
    wanted = Or((Comparison("P", ComparisonOperator.EQ, "a"), IsNull("p")))

    assert [row[0] for row in data_files.rows(schema, ["p"], predicate=wanted)] == [0, 1, 10, 11]


@pytest.mark.requirements("DV-3", "DV-4", "DV-5")
@pytest.mark.parametrize("groups", [1000, 7, 1])
def test_deleted_rows_are_left_out_by_their_position_in_the_file(data_files: DataFiles, groups: int) -> None:
    """Across row groups, and where a row group is not read at all."""
    deleted = {0, 6, 7, 13, 20, 21, 22, 23, 24, 25, 26, 27, 99}
    data_files.add(_ids(100), deleted=deleted, row_group_size=groups)
    data_files.add(_ids(3, 100))
    schema = columns(id=LONG)
    left = [number for number in range(103) if number not in deleted]

    assert [row[0] for row in data_files.rows(schema)] == left
    above = Comparison("id", ComparisonOperator.GE, 21)
    assert [row[0] for row in data_files.rows(schema, predicate=above)] == [n for n in left if n >= 21]


@pytest.mark.requirements("DV-27")
def test_a_deletion_vector_of_another_file_is_refused(data_files: DataFiles) -> None:
    """Also where the log has no row count."""
    path = data_files.add(_ids(3), deleted=[1, 3])
    with pytest.raises(CorruptLogError, match=path):
        data_files.read(columns(id=LONG))


@pytest.mark.requirements("ROWTRK-10", "COLMAP-15", "DV-5")
def test_row_ids_are_materialized_or_fresh(data_files: DataFiles) -> None:
    """Positions count deleted and filtered rows, over all row groups."""
    data_files.add(_ids(6), deleted=[1], base_row_id=100, row_commit_version=3, row_group_size=2)
    moved = _ids(3, 10).append_column("_row-id-col-1", pa.array([7, None, 9], pa.int64()))
    data_files.add(
        moved.append_column("_row-commit-version-col-1", pa.array([None, 1, 2], pa.int64())),
        base_row_id=200,
        row_commit_version=5,
    )
    schema = columns(id=LONG)

    assert data_files.rows(schema, row_tracking=_ROW_IDS) == [
        *((0, 100, 3), (2, 102, 3), (3, 103, 3), (4, 104, 3), (5, 105, 3)),
        *((10, 7, 5), (11, 201, 1), (12, 9, 2)),
    ]
    above = Comparison("id", ComparisonOperator.GE, 5)
    wanted = data_files.rows(schema, row_tracking=_ROW_IDS, columns=["_row_id", "ID"], predicate=above)
    assert wanted == [(105, 5), (7, 10), (201, 11), (9, 12)]
    data_files.add(_ids(1))
    with pytest.raises(CorruptLogError, match="baseRowId"):
        data_files.read(schema, row_tracking=_ROW_IDS)


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_columns_are_found_ignoring_case_and_returned_in_the_order_asked(data_files: DataFiles) -> None:
    data_files.add(pa.table({"id": [1], "v": ["a"], "w": [2.0]}))
    schema = columns(id=LONG, v=STRING, w=DOUBLE)
    table = data_files.read(schema, columns=["W", "Id"])
    assert (table.column_names, table.to_pylist()) == (["w", "id"], [{"w": 2.0, "id": 1}])


@pytest.mark.parametrize("wrong", [["x"], ["id", "ID"], "id", []])
def test_columns_that_make_no_sense_are_refused(data_files: DataFiles, wrong: object) -> None:
    with pytest.raises(InvalidArgumentError):
        data_files.stream(columns(id=LONG), columns=wrong)


@pytest.mark.requirements("SCHEMA-7")
def test_the_schema_of_the_result_is_the_tables(data_files: DataFiles) -> None:
    """Nullability, comments and other metadata at every level, also of a table without files."""
    inner = StructField("a", INTEGER, False, {"comment": "inside"})
    schema = StructType(
        (
            StructField("id", LONG, False, {"comment": "the id", "delta.identity.start": 1, "list": ["x"]}),
            StructField("s", StructType((inner,))),
            StructField("m", MapType(STRING, ArrayType(TIMESTAMP, False), False)),
            StructField("v", VOID, False),
        )
    )
    found = data_files.stream(schema).schema

    assert found.field("id").metadata == {b"comment": b"the id", b"delta.identity.start": b"1", b"list": b'["x"]'}
    assert not found.field("id").nullable
    assert found.field("v").nullable
    struct = found.field("s").type.field("a")
    assert (struct.nullable, struct.metadata) == (False, {b"comment": b"inside"})
    assert str(found.field("m").type) == "map<string, list<element: timestamp[us, tz=UTC] not null>>"
    assert data_files.read(schema).num_rows == 0


@pytest.mark.requirements("UP-VOID-1", "COLMAP-10")
def test_columns_without_data_are_null(data_files: DataFiles) -> None:
    """Void, added later at any level, and all of them at once."""
    rows = pa.table({"s": [{"a": 1}, None, {"a": None}], "l": [[{"a": 1}], [], None]})
    data_files.add(rows)
    within = StructType((StructField("A", LONG), StructField("b", ArrayType(STRING)), StructField("v", VOID)))
    only_other = StructType((StructField("b", STRING), StructField("v", VOID)))
    schema = columns(s=within, l=ArrayType(within), x=MapType(STRING, LONG), v=VOID)

    assert data_files.rows(schema) == [
        ({"A": 1, "b": None, "v": None}, [{"A": 1, "b": None, "v": None}], None, None),
        (None, [], None, None),
        ({"A": None, "b": None, "v": None}, None, None, None),
    ]
    assert data_files.rows(columns(x=LONG, v=VOID)) == [(None, None)] * 3
    # A struct stays what it is when none of its fields are in the file.
    assert data_files.rows(columns(s=only_other)) == [({"b": None, "v": None},), (None,), ({"b": None, "v": None},)]


def test_blanks_that_belong_to_a_char_are_there(data_files: DataFiles) -> None:
    """As Spark reads ``char(n)``: in files and in partition values."""
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    schema = StructType((StructField("c", STRING, True, metadata), StructField("p", STRING, True, metadata)))
    data_files.add(pa.table({"c": ["a", None, "abcd", "äö"]}), partition={"p": "x"})
    assert data_files.rows(schema, ["p"]) == [("a  ", "x  "), (None, "x  "), ("abcd", "x  "), ("äö ", "x  ")]


# --- what is wrong with files -----------------------------------------------------------------------------------------


@pytest.mark.requirements("LOG-10")
def test_files_may_lie_anywhere_below_the_table(data_files: DataFiles) -> None:
    """No layout is taken for granted; one file of deletion vectors serves files of several partitions."""
    bitmaps = [encode_bitmap(positions) for positions in ([0], [1, 2])]
    content, offsets = encode_file(bitmaps)
    unique = uuid.UUID("5b0c6a2e-9e0f-4f0e-9a3e-0c5f1f0f9a11")
    (data_files.root / "ab").mkdir()
    (data_files.root / "ab" / f"deletion_vector_{unique}.bin").write_bytes(content)
    for count, name in enumerate(("x/y/z.parquet", "p=9/z.parquet"), start=1):
        (data_files.root / name).parent.mkdir(parents=True)
        pq.write_table(_ids(4), data_files.root / name)
        vector = DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline_dv="ab" + encode_relative_name(unique),
            offset=offsets[count - 1],
            size_in_bytes=len(bitmaps[count - 1]),
            cardinality=count,
        )
        data_files.adds.append(add_file(name, partition_values={"p": name[0]}, deletion_vector=vector))

    rows = data_files.rows(columns(id=LONG, p=STRING), ["p"])
    assert rows == [(1, "x"), (2, "x"), (3, "x"), (0, "p"), (3, "p")]


@pytest.mark.requirements("DEF-4")
def test_a_default_is_no_value_of_rows_that_were_written_before_it(data_files: DataFiles) -> None:
    data_files.add(_ids(2))
    schema = StructType((StructField("id", LONG), StructField("n", LONG, True, {"CURRENT_DEFAULT": "7"})))
    assert data_files.rows(schema) == [(0, None), (1, None)]


def test_a_missing_file_is_named(data_files: DataFiles) -> None:
    data_files.add(_ids(3))
    path = data_files.add(_ids(3))
    (data_files.root / path).unlink()
    with pytest.raises(ObjectNotFoundError, match=path):
        data_files.read(columns(id=LONG))


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_named_and_costs_no_rows(data_files: DataFiles, fraction: float) -> None:
    path = data_files.root / data_files.add(_ids(10_000))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(CorruptLogError, match=path.name):
        data_files.read(columns(id=LONG))


@pytest.mark.requirements("STATS-1", "STATS-3")
@pytest.mark.parametrize("rows", [4, 9])
def test_a_file_with_another_number_of_rows_than_was_written_is_named(data_files: DataFiles, rows: int) -> None:
    """``numRecords`` counts all rows, whether the bounds are tight or not."""
    stats = {"numRecords": 5, "tightBounds": False}
    data_files.add(_ids(5), stats=stats, deleted=[1])
    assert data_files.read(columns(id=LONG)).num_rows == 4

    path = data_files.add(_ids(rows), stats=stats)
    with pytest.raises(CorruptLogError, match=rf"{path} has {rows} rows, and the log says .* 5"):
        data_files.read(columns(id=LONG))


@pytest.mark.parametrize("position", [300, 5000, 20000])
def test_a_page_that_contradicts_its_checksum_is_an_error(data_files: DataFiles, position: int) -> None:
    """Without compression any bytes decode to some values."""
    path = data_files.root / data_files.add(_ids(10_000), compression="none", write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptLogError, match=path.name):
        data_files.read(columns(id=LONG))


@pytest.mark.requirements("INV-1")
@pytest.mark.parametrize(
    ("schema", "rows", "field"),
    [
        (StructType((StructField("id", LONG, False),)), {"id": [1, None]}, "id"),
        (StructType((StructField("id", LONG, False),)), {"other": [1]}, "id"),
        (columns(s=StructType((StructField("a", LONG, False),))), {"s": [None, {"a": None}]}, "s.a"),
        (columns(l=ArrayType(LONG, False)), {"l": [None, [1, None]]}, "l.element"),
        (
            columns(m=MapType(STRING, LONG, False)),
            {"m": pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64()))},
            "m.value",
        ),
    ],
)
def test_a_null_where_none_may_be_is_an_error(
    data_files: DataFiles, schema: StructType, rows: dict[str, list[object]], field: str
) -> None:
    """Consumers of the result rely on NOT NULL."""
    path = data_files.add(pa.table(rows))
    with pytest.raises(InvalidDataError, match=f"'{field}'") as caught:
        data_files.read(schema)
    assert path in str(caught.value)


@pytest.mark.requirements("SCHEMA-9")
def test_nothing_below_a_null_breaks_a_promise(data_files: DataFiles) -> None:
    """NOT NULL inside a struct says nothing about structs that are null."""
    data_files.add(pa.table({"s": [None, {"a": 1}], "l": [None, [{"a": 2}]]}))
    inner = StructType((StructField("a", LONG, False),))
    assert data_files.rows(columns(s=inner, l=ArrayType(inner, False))) == [(None, None), ({"a": 1}, [{"a": 2}])]


def test_a_column_of_another_type_is_refused(data_files: DataFiles) -> None:
    path = data_files.add(pa.table({"id": ["a"]}))
    with pytest.raises(CorruptLogError, match="cannot be read as bigint") as caught:
        data_files.read(columns(id=LONG))
    assert path in str(caught.value)


@pytest.mark.requirements("UP-TW-5")
def test_an_unknown_type_change_is_refused() -> None:
    change = {"fromType": "string", "toType": "integer"}
    schema = StructType((StructField("id", INTEGER, True, {"delta.typeChanges": [change]}),))
    with pytest.raises(UnsupportedFeatureError, match="string to integer"):
        DataFiles(Path("/nowhere")).stream(schema)


# --- streams ----------------------------------------------------------------------------------------------------------


def test_small_files_give_few_batches_in_the_order_of_the_files(data_files: DataFiles) -> None:
    for number in range(100):
        data_files.add(_ids(10, number * 10))
    batches = list(data_files.stream(columns(id=LONG)))
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == list(range(1000))
    assert len(batches) == 1


class _CountingStore(MemoryStore):
    """A memory store that says how many objects were read."""

    reads = 0

    def read(self, location: str) -> bytes:
        self.reads += 1
        return super().read(location)


def test_a_stream_reads_no_further_ahead_than_a_few_files(tmp_path: Path) -> None:
    """Bounded memory: a reader that stops early has not paid for the table, and leaves no thread behind."""
    store = _CountingStore()
    data_files = DataFiles(tmp_path, store)
    rows = _ids(20_000)
    for number in range(200):
        data_files.add(rows)
        path = f"part-{number:05d}.parquet"
        store.write(f"memory://t/{path}", (tmp_path / path).read_bytes())
    data_files.location = "memory://t"

    stream = data_files.stream(columns(id=LONG))
    assert stream.read_next_batch().num_rows == 20_000
    assert store.reads < 60
    del stream
    until(lambda: not any("cm-delta-scan" in thread.name for thread in threading.enumerate()))
    assert sum(batch.num_rows for batch in data_files.stream(columns(id=LONG))) == 200 * 20_000


def test_large_objects_are_read_range_by_range(tmp_path: Path) -> None:
    """Only the wanted column of a large object is fetched."""
    rng = np.random.default_rng(0)
    rows = pa.table({"id": rng.integers(0, 2**60, 600_000), "other": rng.integers(0, 2**60, 600_000)})
    store = _CountingStore()
    data_files = DataFiles(tmp_path, store)
    data_files.add(rows, row_group_size=200_000)
    store.write("memory://t/part-00000.parquet", (tmp_path / "part-00000.parquet").read_bytes())
    data_files.location = "memory://t"

    assert data_files.read(columns(id=LONG)).column("id").combine_chunks() == rows["id"].combine_chunks()
    assert store.reads == 0


@pytest.mark.requirements("DV-5")
def test_a_large_row_group_is_read_in_pieces(data_files: DataFiles) -> None:
    """Positions go on from piece to piece."""
    count = 2_500_000
    rng = np.random.default_rng(0)
    rows = pa.table({"id": np.arange(count), **{name: rng.random(count) for name in "abcdefg"}})
    deleted = range(0, count, 1000)
    data_files.add(rows, deleted=deleted, row_group_size=count, compression="none", use_dictionary=False)
    assert pq.ParquetFile(data_files.root / "part-00000.parquet").metadata.num_row_groups == 1
    above = Comparison("id", ComparisonOperator.GE, count - 1500)

    batches = list(data_files.stream(columns(id=LONG), predicate=above))
    ids = [value for batch in batches for value in batch.column(0).to_pylist()]
    assert ids == [number for number in range(count - 1500, count) if number % 1000]


def test_conditions_on_columns_that_are_not_returned_are_applied(data_files: DataFiles) -> None:
    """Columns of the condition are read first; one column may be needed for both."""
    rows = pa.table(
        {"id": range(100), "s": [{"a": n, "b": n % 3} for n in range(100)], "t": [str(n) for n in range(100)]}
    )
    data_files.add(rows, row_group_size=10)
    schema = columns(id=LONG, s=StructType((StructField("a", LONG), StructField("b", LONG))), t=STRING)
    predicate = And(
        (Comparison("s.b", ComparisonOperator.EQ, 1), Comparison("id", ComparisonOperator.LT, 20)),
    )

    assert data_files.rows(schema, columns=["t"], predicate=predicate) == [
        ("1",),
        ("4",),
        ("7",),
        ("10",),
        ("13",),
        ("16",),
        ("19",),
    ]
    first = data_files.rows(schema, columns=["s", "id"], predicate=predicate)[0]
    assert first == ({"a": 1, "b": 1}, 1)


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("mapping", list(ColumnMappingMode))
def test_columns_of_any_type_are_tested_for_null(data_files: DataFiles, mapping: ColumnMappingMode) -> None:
    """A struct of nulls is none; rows that a file without the column has are null."""
    schema = StructType(
        (
            mapped("id", LONG, 1, "id"),
            mapped(
                "s",
                StructType((mapped("a", LONG, 3, "a"), mapped("t", StructType((mapped("b", LONG, 5, "b"),)), 4, "t"))),
                2,
                "s",
            ),
            mapped("l", ArrayType(LONG), 6, "l"),
            mapped("m", MapType(STRING, LONG), 7, "m"),
        )
    )
    inner = pa.struct([numbered("a", pa.int64(), 3), numbered("t", pa.struct([numbered("b", pa.int64(), 5)]), 4)])
    arrow = pa.schema(
        [
            numbered("id", pa.int64(), 1),
            numbered("s", inner, 2),
            numbered("l", pa.list_(pa.int64()), 6),
            numbered("m", pa.map_(pa.string(), pa.int64()), 7),
        ]
    )
    rows = [
        {"id": 1, "s": None, "l": [], "m": None},
        {"id": 2, "s": {"a": None, "t": None}, "l": None, "m": []},
        {"id": 3, "s": {"a": 1, "t": {"b": None}}, "l": [None], "m": [("k", None)]},
    ]
    data_files.add(pa.Table.from_pylist(rows, schema=arrow))
    data_files.add(pa.table({"id": pa.array([4])}, schema=pa.schema([arrow.field(0)])))
    for text, expected in {
        "s is null": [1, 4],
        "s <=> null": [1, 4],
        "l is not distinct from null": [2, 4],
        "null <=> m": [1, 4],
        "m is distinct from null": [2, 3],
        "s is not null": [2, 3],
        "s.t is null": [1, 2, 4],
        "l is null": [2, 4],
        "m is null": [1, 4],
        "not (m is null or l is null)": [3],
    }.items():
        predicate = parse_predicate(text, schema)
        found = data_files.rows(schema, mapping=mapping, predicate=predicate, columns=["id"])
        assert found == [(value,) for value in expected], text


@pytest.mark.requirements("PART-8")
def test_what_a_file_says_of_a_partition_column_leaves_out_nothing(data_files: DataFiles) -> None:
    """A condition that mixes partition and data columns is not decided by a column of the file's own."""
    data_files.add(pa.table({"id": [1], "p": ["theirs"]}), partition={"p": "ours"})
    predicate = Or((Comparison("p", ComparisonOperator.EQ, "ours"), Comparison("id", ComparisonOperator.EQ, 7)))
    assert data_files.rows(columns(id=LONG, p=STRING), ["p"], predicate=predicate) == [(1, "ours")]


def test_blanks_that_a_file_leaves_out_leave_out_no_rows(data_files: DataFiles) -> None:
    """The bounds in a footer are of the stored text; the condition is on the text with its blanks."""
    schema = StructType((StructField("c", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),))
    data_files.add(pa.table({"c": ["a", "b"]}))
    for text in ("b", "b  ", "b     "):
        assert data_files.rows(schema, predicate=Comparison("c", ComparisonOperator.EQ, text)) == [("b  ",)]


def test_files_whose_maps_and_lists_differ_only_in_the_names_of_groups_are_read(data_files: DataFiles) -> None:
    """Parquet leaves these names to writers, and Arrow's schemas do not show them."""
    rows = pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "l": [[2]], "id": [3]})
    data_files.add(rows)
    other = data_files.root / data_files.add(rows)
    # Of the same length as the names that pyarrow gives, so that no offset in the file moves.
    other.write_bytes(other.read_bytes().replace(b"key_value", b"map_entry").replace(b"\x04list", b"\x04bags"))
    assert pq.ParquetFile(other).schema.column(0).path == "m.map_entry.key"
    schema = columns(m=MapType(STRING, LONG, True), l=ArrayType(LONG, True), id=LONG)
    assert data_files.rows(schema) == [([("k", 1)], [2], 3)] * 2


def test_a_column_that_is_named_with_a_dot_is_no_field_of_a_struct(data_files: DataFiles) -> None:
    data_files.add(pa.table({"a.b": [1], "a": [{"b": 2, "c": 3}]}))
    assert data_files.rows(columns(**{"a.b": LONG, "a": StructType((StructField("c", LONG),))})) == [(1, {"c": 3})]
    assert data_files.rows(columns(**{"a.b": PrimitiveType("long")})) == [(1,)]


@pytest.mark.requirements("PART-5")
def test_moments_without_a_zone_are_those_of_the_zone_that_is_given(data_files: DataFiles) -> None:
    """In partition values only, and only where the text has none."""
    data_files.add(_ids(1), partition={"t": "2020-07-01 00:00:00"})
    data_files.add(_ids(1), partition={"t": "2020-07-01T00:00:00Z"})
    schema = columns(id=LONG, t=TIMESTAMP)
    zone = zoneinfo.ZoneInfo("America/Los_Angeles")
    assert [row[1].hour for row in data_files.rows(schema, ["t"])] == [0, 0]
    assert [row[1].hour for row in data_files.rows(schema, ["t"], zone=zone)] == [7, 0]
    early = Comparison("t", ComparisonOperator.LT, dt.datetime(2020, 7, 1, 1, tzinfo=dt.UTC))
    assert data_files.read(schema, ["t"], zone=zone, predicate=early).num_rows == 1
