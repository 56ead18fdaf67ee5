"""What this package writes, read by delta-spark and deltalake: equal rows at every version, whatever the log is read
from."""

import datetime
import decimal
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import DeltaTable, SchemaMode, connect
from tests.differential.peers import (
    DeltaSpark,
    canonical,
    copy_from_checkpoint,
    copy_without,
    deltalake_rows,
    published_copy,
)

AWKWARD = ("a b", "50%", "x/y", "ü", "a+b", "k=v", "#1", "a:b?c", "€'\"\\", None, "")

SCHEMA = """id long, p string, amount decimal(20,4), day date, at timestamp, local timestamp_ntz, x double, f float,
    flag boolean, raw binary, small short, tiny byte, tags array<string>, pairs map<string,int>,
    s struct<a:int,b:struct<c:string,d:date>>"""


def rows() -> list[tuple[Any, ...]]:
    """One row for each awkward partition value, and rare values in every column."""
    days = (datetime.date(1500, 1, 1), datetime.date(1582, 10, 4), datetime.date(9999, 12, 31), None)
    utc = datetime.UTC
    times = (
        datetime.datetime(2013, 1, 1, 5, 0, 0, 123456, utc),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, utc),
        datetime.datetime(1400, 2, 28, 1, 2, 3, 1, utc),
        None,
    )
    numbers = (float("nan"), -0.0, 1.5, float("inf"), None, float("-inf"), 5e-324)
    amounts = ("12.3000", "-0.0001", "9999999999999999.9999", None)
    made = []
    for index, value in enumerate(AWKWARD):
        at, amount, x = times[index % 4], amounts[index % 4], numbers[index % 7]
        made.append(
            (
                index,
                value,
                None if amount is None else decimal.Decimal(amount),
                days[index % 4],
                at,
                None if at is None else at.replace(tzinfo=None),
                x,
                None if x is None or abs(x) < 1e-300 else x,
                None if index % 3 == 2 else index % 3 == 0,
                None if index % 5 == 4 else bytes(range(index)),
                index - 5,
                None if index == 0 else index,
                None if index % 4 == 1 else [value, None, "x"][: index % 4],
                None if index % 4 == 2 else {"k": index, "none": None},
                None if index % 5 == 3 else (index, None if index % 2 else (value, days[index % 4])),
            )
        )
    return made


@dataclass(frozen=True, kw_only=True)
class Written:
    """A table of ours: its readable copy, and its rows at each version as we read them from the original."""

    copy: Path
    expected: dict[int, list[str]]
    offered: list[str]


def _history(table: DeltaTable, frame: DataFrame, spark: SparkSession) -> None:
    table.append(frame.where("id < 6"))
    table.overwrite(frame)
    table.overwrite(frame.where("p = 'a b'").withColumn("x", frame["id"] + 0.25), where="p = 'a b'")
    changed = frame.where("id in (1, 9)").withColumn("small", frame["tiny"].cast("short"))
    table.upsert(changed.union(frame.where("id = 2").withColumn("id", frame["id"] + 100)), on=["id"])
    table.delete("id in (4, 6)")
    wider = frame.where("id < 3").selectExpr(
        "id + 200 as id", "p", "named_struct('a', 1, 'b', s.b, 'e', 'new') as s", "cast(id as double) as extra"
    )
    table.append(wider, schema_mode=SchemaMode.MERGE)
    table.optimize()
    table.delete("p = 'x/y'")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Written]:
    home = tmp_path_factory.mktemp("ours")
    frame = spark.createDataFrame(rows(), SCHEMA).coalesce(1)
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        connection.maintenance.set_policy("main", "data_reorganization")
        table = connection.create_table(
            "main.test.t", frame.schema, partition_by=["p"], properties={"delta.checkpointInterval": "3"}
        )
        _history(table, frame, spark)
        connection.client.wait_for_background()
        table.maintenance.compact_log(1, 2)
        last = table.version()
        expected = {version: canonical(table.to_df(version=version).toArrow()) for version in range(last + 1)}
        location = table.location
    yield Written(copy=published_copy(location, home / "copy"), expected=expected, offered=canonical(frame.toArrow()))


def test_the_history_covers_what_it_is_meant_to_cover(written: Written) -> None:
    """The empty string is null as a partition value (PART-5); everything else comes back as it was handed over."""
    assert len(written.expected) == 9
    assert written.expected[2] == sorted(line.replace("('p', '')", "('p', None)") for line in written.offered)
    states = ["\n".join(lines) for lines in written.expected.values()]
    assert len(set(states)) == 8, "all versions differ but OPTIMIZE's"
    assert written.expected[7] == written.expected[6]
    log = written.copy / "_delta_log"
    names = {file.name for file in log.iterdir()}
    assert {f"{version:020d}.crc" for version in range(1, 9)} <= names
    assert len(list(log.glob("*.checkpoint.*.parquet"))) == 2
    assert len(list(log.glob("*.compacted.json"))) == 1
    text = "".join(file.read_text() for file in [*log.glob("*.json"), *log.glob("*.crc")])
    assert "catalogManaged" not in text


@pytest.mark.client("delta-spark", "read", "read a version", by="path")
@pytest.mark.requirements("LOG-1", "PATH-4", "PART-3", "PART-5", "DML-7")
@pytest.mark.peers
def test_delta_spark_reads_every_version_from_commits(
    written: Written, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    location = copy_without(written.copy, tmp_path / "t", "*.crc", "*.checkpoint*", "*.compacted.json", "_last*")
    for version, expected in written.expected.items():
        assert canonical(delta_spark.rows(location, version)) == expected, version


@pytest.mark.requirements("CKPT-1", "CKPT-7", "CKPT-12")
@pytest.mark.peers
def test_delta_spark_reads_from_our_checkpoint(written: Written, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """The commits before the checkpoint are gone."""
    location, start = copy_from_checkpoint(written.copy, tmp_path / "t")
    assert start == 6
    for version in range(start, 9):
        assert canonical(delta_spark.rows(location, version)) == written.expected[version], version


@pytest.mark.requirements("STATS-7", "CKPT-12")
@pytest.mark.peers
def test_delta_spark_skips_files_by_the_statistics_of_our_checkpoint(
    written: Written, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """Each condition gives the rows that it gives when nothing can be skipped."""
    location, version = copy_from_checkpoint(written.copy, tmp_path / "t")
    conditions = [
        "x > 1", "amount = 9999999999999999.9999", "day < date'1582-10-15'", "p is null", "s.b.c = 'x/y'",
        "at = timestamp'2013-01-01 05:00:00.123456'", "local = timestamp_ntz'1400-02-28 01:02:03.000001'",
    ]  # fmt: skip
    counts = ", ".join(f"(select count(*) from t where {condition}) as c{i}" for i, condition in enumerate(conditions))
    # A condition inside an expression over all rows is no filter: nothing can be skipped for it.
    sums = ", ".join(f"count_if({condition}) as c{i}" for i, condition in enumerate(conditions))
    source = f"with t as (select * from delta.`{location}` version as of {version})"
    skipping = delta_spark.sql(f"{source} select {counts}").to_pylist()[0]
    assert skipping == delta_spark.sql(f"{source} select {sums} from t").to_pylist()[0]
    assert all(skipping.values()), skipping


@pytest.mark.requirements("CRC-1", "CRC-2", "CRC-3", "CRC-4", "CRC-5")
@pytest.mark.peers
def test_delta_spark_finds_our_checksums_right(written: Written, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """Delta-spark's own reconstruction of a version equals its checksum file; a false one is seen."""
    versions = (1, 3, 6, 8)
    assert delta_spark.validate_checksums(written.copy, versions) == dict.fromkeys(versions, "equal")
    damaged = copy_without(written.copy, tmp_path / "t")
    file = damaged / "_delta_log" / f"{8:020d}.crc"
    file.write_text(json.dumps({**json.loads(file.read_text()), "numFiles": 1000}))
    with pytest.raises(RuntimeError, match=r"(?i)checksum|mismatch|reconstruct"):
        delta_spark.validate_checksums(damaged, [8])


@pytest.mark.requirements("LC-1", "LC-2", "LC-3", "LC-4", "LC-5")
@pytest.mark.peers
def test_delta_spark_reads_with_our_compaction(written: Written, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """That the compaction is what it reads shows when its files are taken out of it."""
    location = copy_without(written.copy, tmp_path / "t", "*.crc", "*.checkpoint*", "_last*")
    assert canonical(delta_spark.rows(location, 2)) == written.expected[2]
    emptied = copy_without(location, tmp_path / "emptied")
    (compaction,) = (emptied / "_delta_log").glob("*.compacted.json")
    lines = [line for line in compaction.read_text().splitlines() if "add" not in json.loads(line)]
    compaction.write_text("\n".join(lines) + "\n")
    assert canonical(delta_spark.rows(emptied, 2)) != written.expected[2]


@pytest.mark.client("deltalake", "read", "read a version", by="path")
@pytest.mark.requirements("LOG-1", "PATH-4", "PART-5")
def test_deltalake_reads_every_version(written: Written, tmp_path: Path) -> None:
    """Commits alone, and the log as it is."""
    commits = copy_without(written.copy, tmp_path / "t", "*.crc", "*.checkpoint*", "*.compacted.json", "_last*")
    for version, expected in written.expected.items():
        assert canonical(deltalake_rows(commits, version)) == expected, version
        assert canonical(deltalake_rows(written.copy, version)) == expected, version


@pytest.mark.requirements("CKPT-1", "CKPT-7")
def test_deltalake_reads_from_our_checkpoint(written: Written, tmp_path: Path) -> None:
    """The commits before the checkpoint are gone."""
    location, start = copy_from_checkpoint(written.copy, tmp_path / "t")
    for version in range(start, 9):
        assert canonical(deltalake_rows(location, version)) == written.expected[version], version


def _bounds(location: Path, version: int) -> dict[str, Any]:
    file = location / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line, parse_float=decimal.Decimal) for line in file.read_text().splitlines()]
    (stats,) = [action["add"]["stats"] for action in actions if "add" in action]
    return dict(json.loads(stats, parse_float=decimal.Decimal))


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


@pytest.mark.requirements("STATS-1", "STATS-2", "STATS-3", "STATS-4", "STATS-5", "STATS-6", "STATS-7", "STATS-8")
@pytest.mark.peers
@pytest.mark.parametrize("special", ["ordinary", "rare"])
def test_our_statistics_bound_what_those_of_delta_spark_bound(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, special: str
) -> None:
    """Equal counts, equal bounds; where they differ, ours are the wider ones or left out:

    - the footer counts empty lists and maps with the null ones, so there is no null count of them;
    - a NaN hides what else a column of floats holds from the footer's bounds, and an infinite bound is no JSON number,
      so there are none of such a column;
    - a timestamp is cut to milliseconds by both; as an upper bound ours is the next one, theirs the cut value, which
      readers have to allow for.
    """
    frame = spark.createDataFrame(rows(), SCHEMA)
    if special == "ordinary":
        frame = frame.where("id in (2, 4, 6, 9)")
    frame = frame.coalesce(1)
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/ware", spark=spark) as connection:
        table = connection.create_table("main.test.t", frame.schema)
        table.append(frame)
        copy = published_copy(table.location, tmp_path / "copy")
    theirs_at = tmp_path / "theirs"
    delta_spark.sql(f"create table delta.`{theirs_at}` using delta as select /*+ coalesce(1) */ * from delta.`{copy}`")
    ours, theirs = _bounds(copy, 1), _bounds(theirs_at, 0)
    assert ours["numRecords"] == theirs["numRecords"]
    our_counts, their_counts = _leaves(ours["nullCount"]), _leaves(theirs["nullCount"])
    assert set(their_counts) - set(our_counts) == {"tags", "pairs"}
    assert our_counts == {name: their_counts[name] for name in our_counts}
    for kind, wider in (("minValues", lambda a, b: a <= b), ("maxValues", lambda a, b: a >= b)):
        our_bounds, their_bounds = _leaves(ours[kind]), _leaves(theirs[kind])
        assert set(our_bounds) <= set(their_bounds), kind
        missing = set(their_bounds) - set(our_bounds)
        assert missing == ({"x", "f"} if special == "rare" else set()), (kind, their_bounds)
        for name, bound in our_bounds.items():
            if name in ("x", "f"):  # One double has several decimal spellings.
                bound, their_bounds[name] = float(bound), float(their_bounds[name])
            assert wider(bound, their_bounds[name]), (kind, name, bound, their_bounds[name])
            if name not in ("at", "local"):
                assert bound == their_bounds[name], (kind, name)


def test_rows_compare_by_value() -> None:
    """The comparison itself distinguishes -0.0 and 0.0, null and empty, and two instants."""
    assert canonical(pa.table({"x": [-0.0]})) != canonical(pa.table({"x": [0.0]}))
    assert canonical(pa.table({"x": [None, "a"]})) != canonical(pa.table({"x": ["", "a"]}))
    assert canonical(pa.table({"x": [1, 2]})) == canonical(pa.table({"x": [2, 1]}))
    utc, other = (pa.array([0], pa.timestamp("us", zone)) for zone in ("UTC", "Europe/Zurich"))
    assert canonical(pa.table({"x": utc})) == canonical(pa.table({"x": other}))
