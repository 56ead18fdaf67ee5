"""What delta-spark and deltalake write, read by this package: equal rows at every version, whatever the log is read
from."""

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.differential.peers import (
    DeltaSpark,
    canonical,
    copy_from_checkpoint,
    deltalake_rows,
    our_rows,
)

_ROWS = """select id, element_at(array('a b', '50%', 'x/y', 'ü+k=v#1', null, ''), cast(id % 6 as int) + 1) as p,
    cast(id as double) / 3 as x, cast(id as string) as name from range(0, 24, 1, 2)"""


def _delta_spark_table(location: Path, properties: str, *steps: str) -> list[str]:
    """Statements that make a table partitioned by awkward values and change it; ``{t}`` in a step is the table."""
    create = (
        "create table {t} (id long, p string, x double, name string) using delta partitioned by (p) "
        f"tblproperties ({properties})"
    )
    return [step.format(t=f"delta.`{location}`", rows=_ROWS) for step in (create, *steps)]


_CHANGES = (
    "insert into {t} {rows}",
    "delete from {t} where id % 5 = 1",
    "update {t} set x = -x where id in (2, 3, 9)",
    "insert into {t} select id + 100, p, x, name from ({rows}) where id < 8",
    "delete from {t} where p = 'x/y'",
    "merge into {t} using (select * from ({rows}) where id in (0, 7, 23)) s on {t}.id = s.id "
    "when matched and s.id = 7 then delete when matched then update set name = 'merged' when not matched then insert *",
    "insert into {t} replace where p = '50%' select 500, '50%', 5.0, 'replaced'",
    "delete from {t} where id > 100 and id % 2 = 0",
)

_V2 = "'delta.enableDeletionVectors'='true', 'delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='3'"
_FORMAT = "set spark.databricks.delta.checkpointV2.topLevelFileFormat"
_PARTS = "spark.databricks.delta.checkpoint.partSize"

_TYPES = """id int, d date, ts timestamp, ntz timestamp_ntz, n decimal(12,3), big decimal(38,10), x double, f float,
    b boolean, raw binary, sm smallint, ti tinyint, l array<struct<a:int,b:array<string>>>,
    m map<string,struct<v:date>>"""
_TYPED = """
    select 1, date'1500-02-28', timestamp'1582-10-04 23:59:59.999999', timestamp_ntz'0001-01-01 00:00:00', 1.5,
        12345678901234567890123456.0123456789, double('nan'), float('-inf'), true, x'00ff', 7S, -7Y,
        array(named_struct('a', 1, 'b', array('x', null))), map('k', named_struct('v', date'0001-01-01'))
    union all select 2, date'9999-12-31', timestamp'9999-12-31 23:59:59.999999', timestamp_ntz'2038-01-19 03:14:08.1',
        -0.001, -1, -0.0D, float('nan'), false, x'', -1S, 127Y, array(null), map()
    union all select 3, null, null, null, null, null, null, null, null, null, null, null, null, null"""
_TYPED_PARTITIONS = """
    select 1 as id, date'1500-02-28' as d, timestamp'2013-01-01 05:00:00.123456' as ts,
        timestamp_ntz'2013-01-01 05:00:00' as ntz, 1.50BD as n, true as b, 0.5D as x, 9L as l
    union all select 2, date'9999-12-31', timestamp'1969-12-31 23:59:59', timestamp_ntz'1969-12-31 23:59:59.5', -0.01BD,
        false, 1e300D, -9L
    union all select 3, null, null, null, null, null, null, null"""


def _statements(name: str, location: Path) -> list[str]:
    table = f"delta.`{location}`"
    match name:
        case "deletion_vectors":
            return _delta_spark_table(location, "'delta.enableDeletionVectors'='true'", *_CHANGES)
        case "classic_checkpoints":
            off = "'delta.enableDeletionVectors'='false', 'delta.checkpointInterval'='3'"
            return _delta_spark_table(location, off, *_CHANGES[:4], "insert overwrite {t} {rows}")
        case "multi_part_checkpoints":
            properties = "'delta.enableDeletionVectors'='true', 'delta.checkpointInterval'='3'"
            made = _delta_spark_table(location, properties, *_CHANGES[:5])
            return [f"set {_PARTS}=3", *made, f"reset {_PARTS}"]
        case "v2_parquet_checkpoints":
            return [f"{_FORMAT}=parquet", *_delta_spark_table(location, _V2, *_CHANGES[:5])]
        case "v2_json_checkpoints":
            return [f"{_FORMAT}=json", *_delta_spark_table(location, _V2, *_CHANGES[:5])]
        case "types":
            return [
                f"create table {table} ({_TYPES}) using delta",
                f"insert into {table} {_TYPED}",
                f"alter table {table} add columns (late string, later struct<a:int,b:string>)",
                f"insert into {table} select *, 'late', named_struct('a', 1, 'b', null) from ({_TYPED}) t",
                f"delete from {table} where id = 2 and late is null",
            ]
        case "typed_partitions":
            return [
                f"create table {table} using delta partitioned by (d, ts, ntz, n, b, x, l) as {_TYPED_PARTITIONS}",
                f"insert into {table} {_TYPED_PARTITIONS}",
                f"delete from {table} where d = date'1500-02-28'",
            ]
        case "padded":
            return [
                f"create table {table} (id int, c char(5), v varchar(5), p char(3)) using delta partitioned by (p)",
                "set spark.sql.legacy.charVarcharAsString=true",
                f"insert into {table} values (1, 'ab', 'ab', 'x'), (2, 'ü', null, null), (3, null, '', 'xyz')",
                "reset spark.sql.legacy.charVarcharAsString",
                f"insert into {table} values (4, 'ab', 'ab', 'x')",
            ]
    raise ValueError(name)


def _last_version(location: Path) -> int:
    return max(int(file.stem) for file in (location / "_delta_log").glob("*.json") if file.stem.isdigit())


@pytest.mark.requirements(
    "DV-1",
    "DV-2",
    "DV-3",
    "DV-4",
    "DV-5",
    "DV-6",
    "DV-7",
    "DV-8",
    "DV-9",
    "DV-10",
    "DV-11",
    "DV-12",
    "DV-13",
    "DV-14",
    "DV-15",
    "DV-16",
    "DV-17",
    "DV-18",
    "DV-19",
    "DV-20",
    "DV-21",
    "DV-22",
    "PART-3",
    "PART-5",
    "PATH-4",
    "REC-1",
)
@pytest.mark.peers
@pytest.mark.parametrize(
    "name",
    [
        "deletion_vectors",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("types", "typed_partitions", "padded")),
    ],
)
def test_we_read_every_version_that_delta_spark_wrote(
    name: str, delta_spark: DeltaSpark, spark: SparkSession, tmp_path: Path
) -> None:
    location = tmp_path / "t"
    delta_spark.sql(*_statements(name, location))
    expected = {
        version: canonical(delta_spark.rows(location, version)) for version in range(_last_version(location) + 1)
    }
    assert len({"\n".join(lines) for lines in expected.values()}) >= len(expected) - 1
    for version, lines in expected.items():
        assert canonical(our_rows(spark, location, version)) == lines, version


@pytest.mark.exhaustive
@pytest.mark.requirements(
    "CKPT-2",
    "CKPT-3",
    "CKPT-4",
    "CKPT-5",
    "CKPT-6",
    "CKPT-7",
    "CKPT-8",
    "CKPT-9",
    "CKPT-10",
    "CKPT-11",
    "CKPT-12",
    "CKPT-13",
    "CKPT-14",
)
@pytest.mark.peers
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("classic_checkpoints", "*.checkpoint.parquet"),
        ("multi_part_checkpoints", "*.checkpoint.0000000002.*.parquet"),
        ("v2_parquet_checkpoints", "*.checkpoint.*-*.parquet"),
        ("v2_json_checkpoints", "*.checkpoint.*-*.json"),
    ],
)
def test_we_read_from_the_checkpoints_of_delta_spark(
    name: str, file: str, delta_spark: DeltaSpark, spark: SparkSession, tmp_path: Path
) -> None:
    """The commits before the checkpoint are gone; those after it remove files that it lists."""
    location = tmp_path / "t"
    delta_spark.sql(*_statements(name, location))
    assert list((location / "_delta_log").glob(file))
    bare, start = copy_from_checkpoint(location, tmp_path / "bare")
    assert start >= 3
    for version in range(start, _last_version(location) + 1):
        expected = canonical(delta_spark.rows(location, version))
        assert expected
        assert canonical(our_rows(spark, bare, version)) == expected, version


def _arrow(ids: range) -> pa.Table:
    values = ["a b", "50%", "x/y", "ü+k=v#1", None, "plain"]
    utc = datetime.UTC
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": pa.array([values[i % 6] for i in ids], pa.string()),
            "day": pa.array([datetime.date(1500 + 40 * (i % 13), 2, 28) for i in ids], pa.date32()),
            "at": pa.array(
                [datetime.datetime(1960 + i, 1, 1, 1, 2, 3, i, utc) for i in ids], pa.timestamp("us", "UTC")
            ),
            "amount": pa.array([decimal.Decimal(i).scaleb(-2) for i in ids], pa.decimal128(10, 2)),
            "x": pa.array([float("nan") if i % 4 == 0 else -i / 7 for i in ids], pa.float64()),
            "tags": pa.array([None if i % 3 == 0 else ["t", None][: i % 3] for i in ids], pa.list_(pa.string())),
        }
    )


@pytest.fixture
def deltalake_table(tmp_path: Path) -> Iterator[Path]:
    location = tmp_path / "theirs"
    deltalake.write_deltalake(str(location), _arrow(range(12)), partition_by=["p", "day"])
    deltalake.write_deltalake(str(location), _arrow(range(12, 20)), mode="append")
    deltalake.DeltaTable(str(location)).delete("id % 5 = 1")
    source = pa.concat_tables([_arrow(range(2, 4)), _arrow(range(40, 43))])
    merger = deltalake.DeltaTable(str(location)).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"x": "s.x + 1"}).when_not_matched_insert_all().execute()
    deltalake.DeltaTable(str(location)).create_checkpoint()
    deltalake.DeltaTable(str(location)).update({"x": "0.5"}, predicate="p = '50%'")
    deltalake.DeltaTable(str(location)).optimize.compact()
    deltalake.write_deltalake(str(location), _arrow(range(60, 66)), mode="overwrite")
    yield location


@pytest.mark.requirements("PART-3", "PATH-4", "CKPT-2")
def test_we_read_what_deltalake_wrote(deltalake_table: Path, spark: SparkSession, tmp_path: Path) -> None:
    """Every version, then from the checkpoint alone."""
    last = _last_version(deltalake_table)
    expected = {version: canonical(deltalake_rows(deltalake_table, version)) for version in range(last + 1)}
    assert last >= 5
    for version, lines in expected.items():
        assert canonical(our_rows(spark, deltalake_table, version)) == lines, version
    bare, start = copy_from_checkpoint(deltalake_table, tmp_path / "bare")
    assert start == 3
    assert last > start
    for version in range(start, last + 1):
        assert canonical(our_rows(spark, bare, version)) == expected[version], version
