"""Data files as Spark writes them, with settings of all times: the same rows as Spark reads from them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.protocol.schema.types import VARIANT, StructType
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.arrow.data_files import DataFiles, columns
from tests.support.actions import add_file
from tests.support.variant_texts import variant_columns_to_json


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def _written(frame: DataFrame, tmp_path: Path, settings: Mapping[str, str]) -> DataFiles:
    data_files = DataFiles(tmp_path / "files")
    with _settings(frame.sparkSession, settings):
        frame.coalesce(1).write.parquet(str(data_files.root))
    for path in data_files.root.glob("*.parquet"):
        data_files.adds.append(add_file(path.name, size=path.stat().st_size))
    assert data_files.adds
    return data_files


def _as_spark_reads(spark: SparkSession, data_files: DataFiles, schema: pa.Schema) -> pa.Table:
    options = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
    return spark.read.options(**options).parquet(str(data_files.root)).toArrow().cast(schema)


_OLD = """
    SELECT id, timestamp_micros(micros + 123456) AS t, array(timestamp_micros(micros)) AS l,
      date_add(DATE '1970-01-01', cast(floor(micros / 86400000000) AS int)) AS d
    FROM (SELECT id, id * 1234567890123 - 62135596800000000 + 864000000000 AS micros FROM range(0, 51000, 97))
"""


@pytest.mark.requirements("PQ-2")
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
def test_old_dates_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path, kind: str, mode: str) -> None:
    """Every timestamp type, in the old calendar and the one of today, from the first year to the last century."""
    settings = {
        "spark.sql.parquet.outputTimestampType": kind,
        "spark.sql.parquet.datetimeRebaseModeInWrite": mode,
        "spark.sql.parquet.int96RebaseModeInWrite": mode,
        "spark.sql.session.timeZone": "America/Los_Angeles",
    }
    frame = spark.sql(_OLD)
    data_files = _written(frame, tmp_path, settings)
    footer = pq.read_metadata(data_files.root / data_files.adds[0].path).metadata
    assert (b"org.apache.spark.legacyDateTime" in footer) == (mode == "LEGACY")
    found = data_files.read(from_spark(frame.schema))

    expected = _as_spark_reads(spark, data_files, found.schema)
    assert found.equals(expected)


@pytest.mark.requirements("PQ-2")
def test_the_legacy_form_of_lists_and_decimals_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Lists of two levels with their old names, decimals as fixed bytes."""
    frame = spark.sql(
        """SELECT id, IF(id = 1, NULL, array(id, id + 1)) AS l, array(IF(id = 2, NULL, id), 5) AS n,
             array(named_struct('a', id, 'b', array('x'))) AS s, map('k', array(cast(id AS decimal(7,2)))) AS m,
             cast(id AS decimal(5,1)) AS small, cast(-id AS decimal(20,3)) AS big, array() AS e
           FROM range(4)"""
    ).selectExpr("*", "cast(e AS array<string>) AS empty")
    data_files = _written(frame.drop("e"), tmp_path, {"spark.sql.parquet.writeLegacyFormat": "true"})
    found = data_files.read(from_spark(frame.drop("e").schema))
    assert found.to_pylist() == _as_spark_reads(spark, data_files, found.schema).to_pylist()


_VARIANTS = (
    '{"a":1,"b":"x","c":[1,2,"three"]}',
    '{"a":"no","z":{"deep":[1.5,null,{"q":true}]}}',
    '{"b":null}',
    "5",
    '"text"',
    "null",
    "[]",
    '{"a":12345678901234567890,"c":[],"d":1e300}',
    "1.10",
    json.dumps({f"key{number}": number for number in range(300)}),
    json.dumps(["x" * 100] * 300),
)
_SHREDDING = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.forceShreddingSchemaForTest": "a bigint, b string, c array<bigint>, z struct<deep array<variant>>",
}


@pytest.mark.requirements("UP-VAR-1", "UP-VAR-2", "UP-VSH-1")
@pytest.mark.parametrize("settings", [{}, _SHREDDING], ids=["plain", "shredded"])
def test_variants_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path, settings: dict[str, str]) -> None:
    texts = spark.createDataFrame([(number, text) for number, text in enumerate(_VARIANTS)], "id long, text string")
    more = spark.sql(
        """SELECT 100 AS id, to_variant_object(named_struct('a', 7, 'd', DATE '0001-01-01', 'e', 1.250BD, 'f', 1.5F,
             't', TIMESTAMP '2020-01-01 00:00:00.5+00:00', 'n', TIMESTAMP_NTZ '2020-01-01 00:00:00', 'x', X'00FF')) AS v"""
    )
    frame = texts.selectExpr("id", "parse_json(text) AS v").union(more)
    frame = frame.union(spark.sql("SELECT 200, CAST(NULL AS variant)"))
    data_files = _written(frame, tmp_path, settings)
    is_shredded = "typed_value" in str(pq.ParquetFile(data_files.root / data_files.adds[0].path).schema)
    assert is_shredded == bool(settings)
    schema: StructType = columns(id=from_spark(frame.schema).fields[0].type, v=VARIANT)
    found = variant_columns_to_json(data_files.read(schema), schema).to_pylist()

    with _settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        expected = spark.read.parquet(str(data_files.root)).selectExpr("id", "to_json(v) AS v").toArrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
