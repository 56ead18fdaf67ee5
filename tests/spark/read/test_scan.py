"""Scanning data files: exactly the given files, values from the log, deletion vectors applied."""

import datetime as dt
import shutil
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.actions.paths import decode_path, encode_path, file_key
from cm_delta_dagster.protocol.features.deletion_vectors import encode_bitmap, encode_file, encode_inline
from cm_delta_dagster.protocol.features.table_layout import RowPositions, ScanRequest, TableLayout
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec
from cm_delta_dagster.protocol.statistics.statistics import schema_leaves
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.spark.read.scan import FILE_COLUMN, scan, scan_with_files, spark_file_key
from cm_delta_dagster.spark.session.session import temporary_settings
from cm_delta_dagster.spark.write.write import write_files
from cm_delta_dagster.storage.local_store import LocalStore
from tests.support.builders import rows_of
from tests.support.covering import covering


class Files:
    """Data files of one make-believe table below ``root``."""

    def __init__(self, spark: SparkSession, root: Path, columns: str, *partitions: str) -> None:
        self.spark, self.root, self.partitions = spark, root, partitions
        self.columns = columns
        self.schema = from_spark(spark.createDataFrame([], columns).schema)
        self.adds: list[AddFile] = []

    @property
    def location(self) -> str:
        return f"file://{self.root}"

    def write(self, *rows: tuple[Any, ...]) -> list[AddFile]:
        return self.write_frame(self.spark.createDataFrame(list(rows), self.columns).coalesce(1))

    def write_frame(self, frame: DataFrame) -> list[AddFile]:
        written = write_files(
            frame,
            store=LocalStore(),
            layout=self.layout(),
            spec=WriteSpec(statistics_columns=schema_leaves(self.schema)),
        )
        self.adds += written.adds
        return list(written.adds)

    def place(self, path: str, table: pa.Table, **values: str | None) -> AddFile:
        """A file of another writer at a decoded relative path."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target)
        add = AddFile(path=encode_path(path), partition_values=values, size=target.stat().st_size, modification_time=0)
        self.adds.append(add)
        return add

    def layout(self, schema: StructType | None = None, **more: Any) -> TableLayout:
        return TableLayout(
            location=self.location, schema=schema or self.schema, partition_columns=self.partitions, **more
        )

    def scan(
        self, adds: Iterable[AddFile] | None = None, schema: StructType | None = None, **request: Any
    ) -> DataFrame:
        files = adds_to_table(self.adds if adds is None else adds)
        return scan(
            self.spark,
            store=LocalStore(),
            layout=self.layout(schema),
            request=ScanRequest(files=files, **request),
        )

    def rows(self, adds: Iterable[AddFile] | None = None, **arguments: Any) -> list[tuple[Any, ...]]:
        return rows_of(self.scan(adds, **arguments))


def test_no_files_give_an_empty_frame_with_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long, p date", "p")
    frame = files.scan()
    assert frame.collect() == []
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [("id", "bigint"), ("p", "date")]


def test_written_rows_come_back_in_the_order_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "p string, id long", "p")
    files.write(("a", 1), ("b", 2), (None, 3))
    files.write(("a", 4))
    assert files.rows() == [(None, 3), ("a", 1), ("a", 4), ("b", 2)]
    assert files.rows(columns=["ID", "p"]) == [(1, "a"), (2, "b"), (3, None), (4, "a")]
    with pytest.raises(InvalidArgumentError, match="id"):
        files.scan(columns=["nope"])


VALUES: dict[str, list[Any]] = {
    "string": ["a b", "50%", "x/y", "ü", "a+b", "k=v", "#1", "a b", "日本", "{}[]*?\\^'\":", "1e5", None],
    "date": [dt.date(1, 1, 1), dt.date(2020, 2, 29), None],
    "long": [-(2**63), 2**63 - 1, 0, None],
    "byte": [-128, 127],
    "boolean": [True, False, None],
    "decimal(38,18)": [Decimal("-0.000000000000000001"), Decimal("12345678901234567890.5"), None],
    "double": [0.1, 1e300, float("inf"), None],
    "timestamp": [dt.datetime(2020, 3, 29, 1, 30, 0, 7), None],
    "timestamp_ntz": [dt.datetime(2020, 3, 29, 2, 30, 0, 120000), dt.datetime(1500, 1, 1), None],
}


@pytest.mark.requirements("PART-1", "PART-2", "PART-3", "PART-4", "PART-5", "PART-6", "PATH-4", "NTZ-3")
@pytest.mark.parametrize(("kind", "ansi"), covering(VALUES, ["true", "false"]))
def test_partition_values_of_every_type_round_trip(spark: SparkSession, tmp_path: Path, kind: str, ansi: str) -> None:
    """Through directories, and through the log alone."""
    files = Files(spark, tmp_path, f"id long, p {kind}", "p")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        files.write(*enumerate(VALUES[kind]))
        files.write(*enumerate(VALUES[kind]))
        expected = sorted(2 * [(i, v) for i, v in enumerate(VALUES[kind])], key=lambda row: row[0])
        found = sorted((tuple(row) for row in files.scan().collect()), key=lambda row: row[0])
        assert found == expected
        moved = [moved_to_a_plain_directory(tmp_path, add) for add in files.adds]
        found = sorted((tuple(row) for row in files.scan(moved).collect()), key=lambda row: row[0])
        assert found == expected
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def moved_to_a_plain_directory(root: Path, add: AddFile) -> AddFile:
    source = root / decode_path(add.path)
    target = root / f"x{abs(hash(add.path))}" / source.name
    target.parent.mkdir()
    shutil.copy(source, target)
    return replace(add, path=encode_path(str(target.relative_to(root))))


@pytest.mark.requirements("LOG-11", "PART-8")
def test_the_log_decides_about_values_not_the_directories(spark: SparkSession, tmp_path: Path) -> None:
    """Misleading directories, absolute paths, null against empty, other spellings, values inside the
    file."""
    files = Files(spark, tmp_path / "t", "id long, p string, q int", "p", "q")
    one = pa.table({"id": [1]})
    files.place("p=a/q=1/right.parquet", one, p="a", q="1")
    files.place("p=b/q=1/wrong.parquet", one, p="a", q="1")
    files.place("q=1/p=a/order.parquet", one, p="a", q="1")
    files.place("flat.parquet", one, p="a", q="1")
    files.place("P=a/q=1/case.parquet", one, p="a", q="1")
    files.place("p=a/q=01/spelling.parquet", one, p="a", q="01")
    files.place("p=__HIVE_DEFAULT_PARTITION__/q=1/null.parquet", one, p=None, q="1")
    files.place("p=/q=1/empty.parquet", one, p="", q="1")
    files.place(
        "p=a/q=2/inside.parquet", pa.table({"id": [1], "p": ["no"], "q": pa.array([9], pa.int32())}), p="a", q="2"
    )
    outside = tmp_path / "elsewhere" / "p=z" / "q=7"
    outside.mkdir(parents=True)
    pq.write_table(one, outside / "far.parquet")
    files.adds.append(
        AddFile(
            path=f"file://{outside}/far.parquet", partition_values={"p": "a", "q": "3"}, size=1, modification_time=0
        )
    )
    expected = 6 * [("a", 1)] + 2 * [(None, 1)] + [("a", 2), ("a", 3)]
    assert sorted(files.rows(columns=["p", "q"]), key=str) == sorted(expected, key=str)


@pytest.mark.requirements("LOG-11")
def test_many_partition_values_without_directories_come_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """More values than scans are worth, so they are joined to the rows."""
    files = Files(spark, tmp_path, "id long, p string", "p")
    for number in range(40):
        files.place(f"d {number % 3}%+ü/f{number}.parquet", pa.table({"id": [number]}), p=f"v{number}")
    assert sorted(files.rows()) == [(number, f"v{number}") for number in range(40)]


@pytest.mark.requirements("LOG-19", "LIST-4")
def test_a_foreign_file_in_a_live_directory_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """The live set decides, whatever lies beside it."""
    files = Files(
        spark,
        tmp_path,
        "id long",
    )
    adds = files.write_frame(spark.range(100).repartition(10))
    assert len(adds) == 10
    assert len(files.rows()) == 100
    directory = (tmp_path / decode_path(adds[0].path)).parent
    shutil.copy(tmp_path / decode_path(adds[0].path), directory / "part-99999.parquet")
    assert files.rows() == [(number,) for number in range(100)]
    assert len(files.rows(adds[1:])) < 100


def test_a_foreign_file_in_a_live_partition_directory_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long, p long", "p")
    adds = files.write_frame(spark.range(24).selectExpr("id", "id % 12 AS p").coalesce(1))
    assert len(adds) == 12
    assert len(files.rows()) == 24
    source = tmp_path / decode_path(adds[0].path)
    shutil.copy(source, source.parent / "again.parquet")
    shutil.copytree(source.parent, source.parent.parent / "p=77")
    assert files.rows() == [(number, number % 12) for number in range(24)]


def test_whole_live_directories_are_listed_once(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long")
    files.write_frame(spark.range(100).repartition(10))
    frame = files.scan()
    assert len(frame.inputFiles()) == 10


@pytest.mark.requirements("TT-6")
def test_a_file_with_a_hidden_name_is_refused_instead_of_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would leave it out silently."""
    files = Files(spark, tmp_path, "id long")
    files.place("_hidden.parquet", pa.table({"id": [1]}))
    with pytest.raises(UnsupportedFeatureError, match=r"_hidden\.parquet"):
        files.scan()


@pytest.mark.requirements("PATH-1")
@pytest.mark.parametrize("directory", ["t", "t[1]{a,b}*"])
@pytest.mark.parametrize("deleted", [False, True])
def test_names_are_no_patterns(spark: SparkSession, tmp_path: Path, directory: str, deleted: bool) -> None:
    """Names that are patterns for Hadoop, beside others and beside what they would stand for."""
    files = Files(spark, tmp_path / directory, "id long")
    names = ["a[b]{c}*?.parquet", "abc.parquet", "a\\*.parquet", "}.parquet", "{.parquet", "x?.parquet", "xy.parquet"]
    for number, name in enumerate(names):
        files.place(name, pa.table({"id": [number, -1]}))
    if deleted:
        files.adds = [replace(add, deletion_vector=encode_inline([1])) for add in files.adds]
    assert files.rows() == sorted([(number,) for number in range(7)] + ([] if deleted else 7 * [(-1,)]))


@pytest.mark.requirements("PART-8", "PATH-4")
@pytest.mark.parametrize("count", [1, 9])
def test_partition_directories_are_no_patterns(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """A closing brace stands in the name of a directory as it is; files named one by one, and directories
    that are listed whole."""
    files = Files(spark, tmp_path, "id long, p string", "p")
    for number in range(2):
        files.write(*[(number, f"{letter}}}{item}") for letter in "ab" for item in range(count)])
    expected = sorted(2 * [f"{letter}}}{item}" for letter in "ab" for item in range(count)])
    assert sorted(value for _, value in files.rows()) == expected


@pytest.mark.requirements("TT-6")
def test_a_missing_file_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long")
    (add,) = files.write((1,))
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = files.scan()
        (tmp_path / decode_path(add.path)).unlink()
        with pytest.raises(Exception, match=decode_path(add.path).rpartition("/")[2]):
            frame.collect()
        with pytest.raises(Exception, match=decode_path(add.path).rpartition("/")[2]):
            files.scan().collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.requirements("LOG-14", "LOG-16")
def test_absent_columns_are_null_and_foreign_columns_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long, extra string")
    files.place("a.parquet", pa.table({"id": [1], "_change_type": ["insert"]}))
    assert files.rows() == [(1, None)]


def deletion_vector_file(root: Path, *bitmaps: list[int]) -> list[DeletionVectorDescriptor]:
    data, offsets = encode_file([encode_bitmap(positions) for positions in bitmaps])
    target = root / "deletion vector.bin"
    target.write_bytes(data)
    return [
        DeletionVectorDescriptor(
            storage_type="p",
            path_or_inline_dv=f"file://{encode_path(str(target))}",
            size_in_bytes=len(encode_bitmap(positions)),
            cardinality=len(positions),
            offset=offset,
        )
        for positions, offset in zip(bitmaps, offsets, strict=True)
    ]


@pytest.mark.requirements("DV-3", "DV-4", "DV-5")
@pytest.mark.parametrize("partitions", [(), ("p",)])
def test_deleted_rows_are_not_returned(spark: SparkSession, tmp_path: Path, partitions: tuple[str, ...]) -> None:
    """Inline and in a file, beside files without one."""
    files = Files(spark, tmp_path / "a b", "id long, p string", *partitions)
    first = files.write_frame(spark.range(200).selectExpr("id", "'x%y' p").coalesce(1))[0]
    second = files.write_frame(spark.range(200, 400).selectExpr("id", "'x%y' p").coalesce(1))[0]
    third = files.write((1000, "z"))[0]
    (descriptor,) = deletion_vector_file(tmp_path, [0, 63, 64, 199])
    adds = [replace(first, deletion_vector=descriptor), replace(second, deletion_vector=encode_inline([5])), third]
    found = [row[0] for row in files.rows(adds)]
    assert found == [n for n in range(400) if n not in (0, 63, 64, 199, 205)] + [1000]
    kept = files.scan(adds).where("id >= 60 AND id < 70").collect()
    assert sorted(row[0] for row in kept) == [60, 61, 62, 65, 66, 67, 68, 69]


@pytest.mark.parametrize("partitions", [(), ("p",)])
def test_rows_are_picked_and_left_out_by_their_positions(
    spark: SparkSession, tmp_path: Path, partitions: tuple[str, ...]
) -> None:
    """Positions in files with a deletion vector and without, for a file that gives all its rows, and for one that gives none."""
    files = Files(spark, tmp_path / "a b", "id long, p string", *partitions)
    first, second, third = (
        files.write_frame(spark.range(start, start + 200).selectExpr("id", "'x%y' p").coalesce(1))[0]
        for start in (0, 200, 400)
    )
    adds = [replace(first, deletion_vector=encode_inline([5])), second, third]
    bitmaps = [BitMap64([5, 63, 64]), BitMap64([0, 199]), BitMap64()]
    by_path = {add.path: bitmap for add, bitmap in zip(adds, bitmaps, strict=True)}
    rest = files.rows(adds, positions=RowPositions(by_path=by_path, are_returned=False))
    assert [row[0] for row in rest] == [n for n in range(600) if n not in (5, 63, 64, 200, 399)]
    by_path[first.path] = BitMap64([63, 64])
    picked = files.rows(adds, positions=RowPositions(by_path=by_path, are_returned=True))
    assert [row[0] for row in picked] == [63, 64, 200, 399]


@pytest.mark.requirements("DV-4")
@pytest.mark.parametrize("last", [3, 40_000_000])
def test_deleted_rows_with_bits_in_each_task_and_with_bits_that_are_sent_once(
    spark: SparkSession, tmp_path: Path, last: int
) -> None:
    """Rows after the last deleted one, other files behind them; with generated code and without."""
    files = Files(spark, tmp_path, "id long")
    one, two, three = (files.place(f"{number}.parquet", numbers(100 * number)) for number in range(3))
    adds = [
        replace(one, stats=None, deletion_vector=encode_inline([1, last])),
        replace(two, deletion_vector=encode_inline([0, 7])),
        three,
    ]
    kept = [n for n in range(8) if n not in (1, last)] + list(range(101, 107)) + list(range(200, 208))
    for settings in ({}, {"spark.sql.codegen.maxFields": "0"}, {"spark.sql.parquet.enableVectorizedReader": "false"}):
        with temporary_settings(spark, settings):
            assert sorted(row[0] for row in files.rows(adds)) == kept


@pytest.mark.requirements("DV-4")
@pytest.mark.parametrize("name", ["__cm_delta_found", "__CM_DELTA_FILE", "_tmp_metadata_ROW_index"])
def test_a_column_that_is_called_like_one_of_the_scan_is_refused_where_it_would_be_mistaken(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Other writers know nothing of the names that are used here."""
    files = Files(spark, tmp_path, f"{name} long")
    add = files.place("a.parquet", pa.table({name: pa.array([7, 8], pa.int64())}))
    assert files.rows([add]) == [(7,), (8,)]
    with pytest.raises(UnsupportedFeatureError, match=f"'{name}'.*to_arrow"):
        files.scan([replace(add, deletion_vector=encode_inline([0]))])


@pytest.mark.requirements("DV-27")
def test_a_deletion_vector_beyond_the_file_is_corruption(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long")
    (add,) = files.write((1,))
    with pytest.raises(CorruptLogError, match="row 1"):
        files.scan([replace(add, deletion_vector=encode_inline([1]))])


@pytest.mark.requirements("DV-4", "LOG-11")
def test_deleted_rows_of_files_whose_directories_say_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Few and many partition values."""
    for count in (2, 40):
        files = Files(spark, tmp_path / str(count), "id long, p string", "p")
        for number in range(count):
            files.place(f"d/f{number}.parquet", pa.table({"id": [number, -1]}), p=f"v{number}")
        adds = [replace(add, deletion_vector=encode_inline([1])) for add in files.adds]
        assert sorted(files.rows(adds)) == [(number, f"v{number}") for number in range(count)]


def numbers(first: int, count: int = 8) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def place_plain(files: Files, path: str, table: pa.Table) -> AddFile:
    """A file whose size only depends on the number of its rows."""
    add = files.place(path, table)
    pq.write_table(table, files.root / path, compression="none", use_dictionary=False)
    return replace(add, size=(files.root / path).stat().st_size)


@pytest.mark.requirements("DV-4", "PATH-1", "PATH-3")
@pytest.mark.parametrize("repeated", [0, 2, 9])
def test_deleted_rows_are_found_whatever_the_sizes_of_the_files(
    spark: SparkSession, tmp_path: Path, repeated: int
) -> None:
    """No, some and many sizes that two files share; the same file name in two directories, names
    that are percent-encoded, absolute paths."""
    files = Files(spark, tmp_path / "a b%20ü", "id long")
    clone = Files(spark, tmp_path / "source of a clone", "id long")
    adds, kept = [], []
    for number in range(max(repeated, 2)):
        first = 100 * number
        shared = number < repeated
        one = place_plain(files, f"x/same name%2F+{number}.parquet", numbers(first, 8 + number))
        two = place_plain(
            clone, f"x/same name%2F+{number}.parquet", numbers(first + 50, 8 + number if shared else 1000 + number)
        )
        assert (one.size == two.size) == shared
        two = replace(two, path=f"file://{encode_path(str(clone.root / decode_path(two.path)))}")
        adds += [replace(one, deletion_vector=encode_inline([number % 8]))]
        adds += [replace(two, deletion_vector=encode_inline([7 - number % 8, *range(8, 1000)]))]
        kept += [n for n in range(first, first + 8 + number) if n != first + number % 8]
        kept += [n for n in range(first + 50, first + 58) if n != first + 57 - number % 8]
        if not shared:
            kept += range(first + 50 + 1000, first + 50 + 1000 + number)
    assert sorted(row[0] for row in files.rows(adds)) == sorted(kept)


@pytest.mark.requirements("DV-4")
def test_deleted_rows_are_found_where_the_log_is_wrong_about_sizes(spark: SparkSession, tmp_path: Path) -> None:
    """A size of the log is a hint; rows are not returned, and not lost, because of it."""
    files = Files(spark, tmp_path, "id long")
    one, two = files.place("1.parquet", numbers(0)), files.place("2.parquet", numbers(100, 1000))
    assert one.size != two.size
    vectors = {one.path: encode_inline([0]), two.path: encode_inline([1, *range(2, 1000)])}
    swapped = [
        replace(one, size=two.size, deletion_vector=vectors[one.path]),
        replace(two, size=one.size + 1, deletion_vector=vectors[two.path]),
    ]
    assert files.rows(swapped) == [(n,) for n in (1, 2, 3, 4, 5, 6, 7, 100)]
    exchanged = [swapped[0], replace(swapped[1], size=one.size)]
    assert files.rows(exchanged) == files.rows(swapped)


@pytest.mark.requirements("DV-27")
def test_a_deletion_vector_for_more_rows_than_a_file_can_have_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is allocated for it."""
    files = Files(spark, tmp_path, "id long")
    add = files.place("f.parquet", numbers(0))
    with pytest.raises(UnsupportedFeatureError, match=r"f\.parquet.* row 1099511627776"):
        files.scan([replace(add, deletion_vector=encode_inline([0, 2**40]))])


def test_no_job_runs_for_deletion_vectors_before_the_query(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long")
    adds = [replace(files.place(f"{n}.parquet", numbers(n)), deletion_vector=encode_inline([0])) for n in range(40)]
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    frame = files.scan(adds)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs
    kept = frame.where("id > 5 AND id < 9")
    plan = kept._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,5), LessThan(id,9)]" in plan
    # Of the eight files that hold a number, the one that begins with it has lost it.
    assert kept.count() == sum(min(n, 7) for n in (6, 7, 8))


def test_each_row_can_name_its_file(spark: SparkSession, tmp_path: Path) -> None:
    """The key is comparable with the log's path, whatever characters the path has."""
    files = Files(spark, tmp_path / "a b%20ü", "id long, _metadata string, p string", "p")
    adds = files.write(*[(i, "m", value) for i, value in enumerate(VALUES["string"])])
    frame = scan_with_files(
        spark, store=LocalStore(), layout=files.layout(), request=ScanRequest(files=adds_to_table(adds))
    )
    found = {row["p"]: spark_file_key(row[FILE_COLUMN]) for row in frame.collect()}
    assert found == {add.partition_values["p"]: file_key(files.location, add.path) for add in adds}


def test_the_result_has_the_metadata_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long, p string", "p")
    files.write((1, "a"))
    fields = tuple(replace(item, metadata={"comment": f"about {item.name}"}) for item in files.schema.fields)
    frame = files.scan(schema=StructType(fields))
    assert [f.metadata for f in frame.schema] == [{"comment": "about id"}, {"comment": "about p"}]


def test_listing_settings_are_restored(spark: SparkSession, tmp_path: Path) -> None:
    key = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    files = Files(spark, tmp_path, "id long")
    for number in range(40):
        files.place(f"f{number}.parquet", pa.table({"id": [number]}))
    before = spark.conf.get(key, None)
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    frame = files.scan()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs
    assert spark.conf.get(key, None) == before
    assert frame.count() == 40
