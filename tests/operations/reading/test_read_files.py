"""Which files a read opens, what their deletion vectors take away, and what happens when one is damaged."""

import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import (
    CmDeltaError,
    CorruptLogError,
    InvalidArgumentError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.operations.reading.read import plan_read, read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.paths import encode_path
from cm_delta_dagster.protocol.features.deletion_vectors import encode_bitmap, encode_file, encode_inline
from cm_delta_dagster.spark.session.errors import spark_errors
from tests.support.builders import rows_of
from tests.support.foreign import ForeignTable, field, mapped, with_id

ROW_TRACKING = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}
TRACKED = ["rowTracking", "domainMetadata"]


def descriptor(value: DeletionVectorDescriptor) -> dict[str, Any]:
    found = {
        "storageType": value.storage_type,
        "pathOrInlineDv": value.path_or_inline_dv,
        "sizeInBytes": value.size_in_bytes,
        "cardinality": value.cardinality,
    }
    return found if value.offset is None else {**found, "offset": value.offset}


def _absolute(path: str, size: int, cardinality: int, offset: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="p", path_or_inline_dv=path, size_in_bytes=size, cardinality=cardinality, offset=offset
    )


def numbers(first: int, last: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, last), pa.int64())})


def bounds(first: int, last: int) -> dict[str, Any]:
    return {
        "numRecords": last - first,
        "minValues": {"id": first},
        "maxValues": {"id": last - 1},
        "nullCount": {"id": 0},
    }


def plain(root: Path, **arguments: Any) -> ForeignTable:
    return ForeignTable(root, field("id", "long"), **arguments)


@pytest.mark.requirements("SKIP-1")
def test_a_plan_shows_what_is_skipped(tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Before anything is opened, and in the log of the read."""
    table = plain(tmp_path)
    paths = [
        table.add(f"f{i}.parquet", numbers(10 * i, 10 * i + 10), stats=bounds(10 * i, 10 * i + 10)) for i in range(4)
    ]
    plan = plan_read(open_scan(table.open(), where="id >= 25"))
    assert (plan.files_total, plan.files_read, plan.files_skipped) == (4, 2, 2)
    assert plan.bytes_read == sum(path.stat().st_size for path in paths[2:])
    assert plan.bytes_total == sum(path.stat().st_size for path in paths)
    with caplog.at_level(logging.INFO, "cm_delta_dagster.operations.reading.read"):
        assert plan.frame(spark).count() == 15
    assert "version 4: 2 of 4 files" in caplog.text and "2 files skipped" in caplog.text


@pytest.mark.requirements("ROWTRK-10", "COLMAP-15")
def test_row_ids_are_fresh_or_materialized(spark: SparkSession, tmp_path: Path) -> None:
    """With deletion vectors, partitions, and column mapping that does not touch the hidden columns."""
    table = ForeignTable(
        tmp_path,
        mapped("id", "long", 1, "c1"),
        mapped("p", "string", 2, "c2"),
        partitions=["p"],
        features=["deletionVectors", "columnMapping"],
        writer_features=TRACKED,
        properties={**ROW_TRACKING, "delta.columnMapping.mode": "id"},
    )
    key = with_id("c1", pa.int64(), 1)
    hidden = [pa.field("_row-id-col-1", pa.int64()), pa.field("_row-commit-version-col-1", pa.int64())]
    fresh = pa.table([[10, 11, 12]], schema=pa.schema([key]))
    kept = pa.table([[20, 21, 22], [5, None, 7], [1, None, None]], schema=pa.schema([key, *hidden]))
    table.add("a.parquet", fresh, values={"c2": "a"}, baseRowId=100, defaultRowCommitVersion=1)
    table.add(
        "b.parquet",
        kept,
        values={"c2": "b"},
        baseRowId=200,
        defaultRowCommitVersion=2,
        deletionVector=descriptor(encode_inline([0])),
    )
    frame = read(open_scan(table.open(), columns=["id", "p", "_row_id", "_row_commit_version"]), spark=spark)
    assert rows_of(frame) == [
        (10, "a", 100, 1), (11, "a", 101, 1), (12, "a", 102, 1), (21, "b", 201, 2), (22, "b", 7, 2)
    ]  # fmt: skip
    some = read(open_scan(table.open(), columns=["_row_id"], where="id > 11 AND p = 'a'"), spark=spark)
    assert rows_of(some) == [(102,)]
    assert read(open_scan(table.open()), spark=spark).columns == ["id", "p"]


@pytest.mark.requirements("ROWTRK-16")
def test_row_ids_are_refused_where_they_mean_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Supported but not enabled; and a file without an id while it is."""
    table = plain(tmp_path / "t", writer_features=TRACKED)
    table.add("a.parquet", numbers(0, 1), baseRowId=0, defaultRowCommitVersion=1)
    with pytest.raises(InvalidArgumentError, match="Row ids"):
        read(open_scan(table.open(), columns=["_row_id"]), spark=spark)
    broken = plain(tmp_path / "u", writer_features=TRACKED, properties=ROW_TRACKING)
    broken.add("a.parquet", numbers(0, 1))
    with pytest.raises(CorruptLogError, match=r"a\.parquet.*baseRowId"):
        read(open_scan(broken.open(), columns=["_row_id"]), spark=spark)


@pytest.mark.requirements("TF-1", "DV-22", "COLMAP-9", "NTZ-1")
def test_reader_features_that_only_the_list_of_writers_has_are_respected(spark: SparkSession, tmp_path: Path) -> None:
    """Both readers give the rows that delta-spark gives."""
    table = ForeignTable(
        tmp_path,
        mapped("id", "long", 1, "c1"),
        mapped("at", "timestamp_ntz", 2, "c2"),
        writer_features=["deletionVectors", "columnMapping", "timestampNtz"],
        properties={"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
    )
    moment = datetime(2024, 7, 1, 12)
    content = pa.table({"c1": [1, 2, 3], "c2": pa.array([moment] * 3, pa.timestamp("us"))})
    table.add("f.parquet", content, deletionVector=descriptor(encode_inline([1])))
    assert rows_of(read(open_scan(table.open()), spark=spark)) == [(1, moment), (3, moment)]
    assert read_arrow(open_scan(table.open())).to_pylist() == [{"id": number, "at": moment} for number in (1, 3)]


@pytest.mark.requirements("TF-5", "CM-1")
@pytest.mark.parametrize(
    ("readers", "writers"),
    [([], ["deletionVectors", "catalogManaged"]), (["catalogManaged"], []), (["deletionVectors"], [])],
)
def test_features_only_for_readers_and_half_listed_catalogs_are_refused(
    spark: SparkSession, tmp_path: Path, readers: list[str], writers: list[str]
) -> None:
    """By both readers."""
    table = plain(tmp_path)
    table.add("f.parquet", numbers(0, 1))
    table.commit(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": readers,
                "writerFeatures": [*writers, "inCommitTimestamp"],
            }
        }
    )
    for reading in (lambda: read(open_scan(table.open()), spark=spark), lambda: read_arrow(open_scan(table.open()))):
        with pytest.raises(CorruptLogError, match=r"The protocol action of table .* is not valid"):
            reading()


@pytest.mark.requirements("PATH-3", "DV-9")
def test_files_and_deletion_vectors_of_another_table_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """A shallow clone names both by absolute paths, in each spelling of a local file."""
    origin = plain(tmp_path / "the origin%", features=["deletionVectors"])
    data = [origin.add(f"d {i}+ü%.parquet", numbers(10 * i, 10 * i + 10)) for i in range(3)]
    encoded, offsets = encode_file([encode_bitmap([0, 9]), encode_bitmap([5])])
    vectors = origin.root / "deletion vector.bin"
    vectors.write_bytes(encoded)

    def vector(prefix: str, which: int) -> dict[str, Any]:
        count = (2, 1)[which]
        size = len(encode_bitmap(([0, 9], [5])[which]))
        path = prefix + encode_path(str(vectors))
        return descriptor(_absolute(path, size, count, offsets[which]))

    clone = plain(tmp_path / "clone", features=["deletionVectors"])
    for path, prefix, extra in (
        (data[0], "file:", {"deletionVector": vector("file:", 0)}),
        (data[1], "file://", {"deletionVector": vector("file://", 1)}),
        (data[2], "", {}),
    ):
        clone.register(prefix + encode_path(str(path)), size=path.stat().st_size, **extra)
    expected = [(n,) for n in range(30) if n not in (0, 9, 15)]
    assert rows_of(read(open_scan(clone.open()), spark=spark)) == expected


def damaged(table: ForeignTable, spark: SparkSession) -> CmDeltaError:
    with pytest.raises(CmDeltaError) as raised:
        read(open_scan(table.open()), spark=spark)
    assert f"{table.root} version {table.version}" in str(raised.value)
    return raised.value


@pytest.mark.requirements("TT-6")
def test_a_missing_or_cut_data_file_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    """Also one without a byte, which Spark takes for a file without rows, and beside files that are well."""
    for number, cut in enumerate((0, 3, 200)):
        table = plain(tmp_path / str(number))
        table.add("well.parquet", numbers(0, 5))
        target = table.add("cut.parquet", numbers(5, 9))
        target.write_bytes(target.read_bytes()[:cut])
        with pytest.raises(Exception, match=r"cut\.parquet is damaged: the log says \d+ bytes, storage has \d+"):
            read(open_scan(table.open()), spark=spark).collect()
        target.unlink()
        with pytest.raises(Exception, match=r"cut\.parquet( is missing\. It is part of|: check the location)"):
            read(open_scan(table.open()), spark=spark).collect()


@pytest.mark.file_index
def test_a_missing_data_file_is_an_error_of_pyspark_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    table = plain(tmp_path)
    table.add("well.parquet", numbers(0, 5))
    table.add("f.parquet", numbers(5, 9)).unlink()
    with pytest.raises(SparkRuntimeException, match=r"f\.parquet is missing\. It is part of") as raised:
        read(open_scan(table.open()), spark=spark).collect()
    assert len(str(raised.value).strip().splitlines()) == 1
    with pytest.raises(ObjectNotFoundError, match=r"f\.parquet"), spark_errors("reading"):
        read(open_scan(table.open()), spark=spark).collect()


def test_a_page_that_contradicts_its_checksum_is_an_error_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Without compression any bytes decode to some values."""
    table = plain(tmp_path)
    target = tmp_path / "f.parquet"
    pq.write_table(numbers(0, 9), target, compression="none", write_page_checksum=True)
    table.register("f.parquet", size=target.stat().st_size)
    assert rows_of(read(open_scan(table.open()), spark=spark)) == [(n,) for n in range(9)]
    chunk = pq.read_metadata(target).row_group(0).column(0)
    last = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1
    content = bytearray(target.read_bytes())
    content[last] ^= 1
    target.write_bytes(content)
    with pytest.raises(Exception, match=r"f\.parquet|page integrity"):
        rows_of(read(open_scan(table.open()), spark=spark))


def test_a_wrong_size_in_the_log_alone_is_no_damage(spark: SparkSession, tmp_path: Path) -> None:
    table = plain(tmp_path)
    target = table.add("f.parquet", numbers(0, 3))
    table.register("f.parquet", size=target.stat().st_size + 7)
    assert read(open_scan(table.open()), spark=spark).count() == 3


@pytest.mark.requirements("DV-19")
def test_a_missing_or_cut_deletion_vector_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    """The data file is never returned unfiltered."""
    table = plain(tmp_path, features=["deletionVectors"])
    encoded, (offset,) = encode_file([encode_bitmap([1])])
    vectors = tmp_path / "vectors.bin"
    vectors.write_bytes(encoded[:-5])
    found = _absolute(f"file://{vectors}", len(encode_bitmap([1])), 1, offset)
    table.add("f.parquet", numbers(0, 3), deletionVector=descriptor(found))
    assert isinstance(damaged(table, spark), CorruptLogError)
    vectors.unlink()
    error = damaged(table, spark)
    assert isinstance(error, ObjectNotFoundError) and "vectors.bin" in str(error)


def test_reading_runs_no_job_and_changes_no_setting(spark: SparkSession, tmp_path: Path) -> None:
    table = ForeignTable(
        tmp_path,
        mapped("id", "long", 1, "c1", nullable=False),
        features=["columnMapping", "deletionVectors"],
        properties={"delta.columnMapping.mode": "id"},
    )
    for number in range(40):
        content = pa.table([[number, -1]], schema=pa.schema([with_id("c1", pa.int64(), 1)]))
        vector = {"deletionVector": descriptor(encode_inline([1]))} if number % 2 else {}
        table.add(f"f{number}.parquet", content, **vector)
    before = spark.sparkContext._jsc.sc().conf().getAll()
    settings = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    tracker = spark.sparkContext.statusTracker()
    jobs = len(tracker.getJobIdsForGroup(None))
    frame = read(open_scan(table.open()), spark=spark)
    assert len(tracker.getJobIdsForGroup(None)) == jobs
    assert settings == {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    assert list(before) == list(spark.sparkContext._jsc.sc().conf().getAll())
    assert frame.where("id >= 0").count() == 40


@pytest.mark.requirements("PATH-1")
@pytest.mark.parametrize(
    ("name", "path"),
    [("a:b.parquet", "a%3Ab.parquet"), ("a:b.parquet", "a:b.parquet"), ("d/a:b.parquet", "d/a:b.parquet"),
     ("d:e/f[1].parquet", "d:e/f%5B1%5D.parquet"), ("2020-01-01 00:00.parquet", "2020-01-01%2000%3A00.parquet")],
)  # fmt: skip
def test_a_file_whose_colon_spark_cannot_open_is_refused_by_name_and_read_without_spark(
    spark: SparkSession, tmp_path: Path, name: str, path: str
) -> None:
    """Encoded or not; Hadoop takes what stands before the colon for a scheme."""
    table = ForeignTable(tmp_path, field("id", "long"))
    written = table.add("plain.parquet", numbers(0, 2))
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(written.read_bytes())
    table.register(path, size=target.stat().st_size)
    with pytest.raises(UnsupportedFeatureError) as raised:
        read(open_scan(table.open()), spark=spark)
    for part in (str(tmp_path), "version 2", name, "colon", "to_arrow"):
        assert part in str(raised.value)
    assert sorted(read_arrow(open_scan(table.open()))["id"].to_pylist()) == [0, 0, 1, 1]


@pytest.mark.requirements("PATH-1")
def test_a_colon_in_a_directory_and_in_the_place_of_the_table_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Only the name of the file itself is looked at again by Hadoop."""
    table = ForeignTable(tmp_path / "t:1", field("id", "long"))
    table.add("at 10:00/f.parquet", numbers(0, 2))
    table.add("plain.parquet", numbers(2, 3), deletionVector=descriptor(encode_inline([0])))
    assert rows_of(read(open_scan(table.open()), spark=spark)) == [(0,), (1,)]
    assert read_arrow(open_scan(table.open()))["id"].to_pylist() == [0, 1]
