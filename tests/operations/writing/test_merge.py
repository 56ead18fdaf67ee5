"""MERGE by key, compared with the same merge of dictionaries."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.errors import (
    CommitConflictError,
    IllegalCommitError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
)
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.write import WriteOutcome, append
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from tests.operations.writing.test_write import Interleaved
from tests.support.builders import TableBuilder
from tests.support.covering import covering


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    return lambda columns, *partitions, **properties: TableBuilder(
        client,
        spark,
        columns,
        partition_by=partitions,
        properties={k.replace("__", "."): v for k, v in properties.items()},
    )


def counts(metrics: Any) -> tuple[int, ...]:
    return tuple(int(metrics[f"numTargetRows{name}"]) for name in ("Inserted", "Updated", "Deleted", "Copied"))


TARGET = [(1, "a", 10), (2, "a", 20), (3, "b", 30), (4, "b", 40), (None, "a", 50)]
SOURCE = [(2, "a", 200), (3, "b", 300), (7, "a", 700), (None, "a", 0)]
EXPECTED = {
    MergeMode.UPSERT: (
        [(None, "a", 0), (None, "a", 50), (1, "a", 10), (2, "a", 200), (3, "b", 300), (4, "b", 40), (7, "a", 700)],
        (2, 2, 0, 3),
    ),
    MergeMode.INSERT_ONLY: (
        [(None, "a", 0), (None, "a", 50), (1, "a", 10), (2, "a", 20), (3, "b", 30), (4, "b", 40), (7, "a", 700)],
        (2, 0, 0, 0),
    ),
    MergeMode.UPDATE_ONLY: (
        [(None, "a", 50), (1, "a", 10), (2, "a", 200), (3, "b", 300), (4, "b", 40)],
        (0, 2, 0, 3),
    ),
    MergeMode.DELETE_UNMATCHED: (
        [(None, "a", 0), (2, "a", 200), (3, "b", 300), (7, "a", 700)],
        (2, 2, 3, 0),
    ),
}


COPY_ON_WRITE = {"delta.enableDeletionVectors": "false"}


@pytest.mark.requirements("DML-4", "DML-5")
@pytest.mark.parametrize("mode", MergeMode)
@pytest.mark.parametrize("partitions", [(), ("p",)])
def test_every_merge_mode_changes_the_documented_rows(
    build: Callable[..., TableBuilder], mode: MergeMode, partitions: tuple[str, ...]
) -> None:
    """NULL keys do not match, not even other NULL keys."""
    builder = build("id long, p string, v long", *partitions).with_properties(COPY_ON_WRITE)
    builder.append(*TARGET)
    result = merge(builder.table, frame=builder.frame(*SOURCE), keys=["ID"], mode=mode)
    rows, expected = EXPECTED[mode]
    assert builder.rows() == rows
    assert counts(result.metrics) == expected
    info = history(builder.table, limit=1)[0].commit_info
    assert info is not None and info.operation == "MERGE"


@pytest.mark.requirements("DML-2")
def test_files_without_a_match_are_not_rewritten(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long").with_properties(COPY_ON_WRITE)
    for number in range(4):
        builder.append((10 * number, 0), (10 * number + 5, 0))
    result = merge(builder.table, frame=builder.frame((15, 1), (17, 1)), keys=["id"])
    assert (result.num_removed_files, counts(result.metrics)) == (1, (1, 1, 0, 1))
    assert len(builder.rows()) == 9


@pytest.mark.requirements("DML-4")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_random_merges_agree_with_dictionaries(build: Callable[..., TableBuilder], seed: int) -> None:
    """Two keys, several files, all modes one after the other."""
    chance = random.Random(seed)
    builder = build("a long, b string, v long", "b")
    rows: dict[tuple[int, str], int] = {}
    for _ in range(3):
        batch = {(chance.randrange(30), chance.choice("xyz")): chance.randrange(100) for _ in range(12)}
        batch = {key: value for key, value in batch.items() if key not in rows}
        builder.append(*[(*key, value) for key, value in batch.items()])
        rows.update(batch)
    for mode in chance.sample(list(MergeMode), 4):
        source = {(chance.randrange(30), chance.choice("xyz")): chance.randrange(100) for _ in range(8)}
        merge(builder.table, frame=builder.frame(*[(*k, v) for k, v in source.items()]), keys=["a", "b"], mode=mode)
        if mode is MergeMode.DELETE_UNMATCHED:
            rows = {key: value for key, value in rows.items() if key in source}
        for key, value in source.items():
            wanted = {MergeMode.INSERT_ONLY: key not in rows, MergeMode.UPDATE_ONLY: key in rows}.get(mode, True)
            if wanted:
                rows[key] = value
        assert builder.rows() == sorted((*key, value) for key, value in rows.items())


KEYS: dict[str, list[str]] = {
    "date": ["DATE '1969-12-31'", "DATE '2024-02-29'", "DATE '2030-01-01'"],
    "timestamp": ["timestamp_micros(-1)", "timestamp_micros(1604217600123456)", "timestamp_micros(1900000000000001)"],
    "timestamp_ntz": [f"TIMESTAMP_NTZ '20{year}-03-10 02:30:00.00000{year % 10}'" for year in (20, 24, 31)],
    "decimal(38,10)": ["-1.5BD", "0BD", "12345678901234567890.0000000001BD"],
    "string": ["''", "'a%b/ü'", "repeat('z', 50)"],
    "double": ["double('-Infinity')", "0.1D", "double('NaN')"],
    "boolean": ["true", "false", "cast(null as boolean)"],
}


# The empty string, which is among the keys, cannot be stored in a partition column.
@pytest.mark.requirements("DML-4", "SKIP-1")
@pytest.mark.parametrize(
    ("kind", "partitions"),
    [
        *covering([kind for kind in KEYS if kind != "string"], [(), ("k",)]),
        ("string", ()),
    ],
)
def test_keys_of_every_type_find_their_rows(
    build: Callable[..., TableBuilder], spark: SparkSession, kind: str, partitions: tuple[str, ...]
) -> None:
    """The range of the source's keys prunes no file that holds a match, in any session zone."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        builder = build(f"k {kind}, v long", *partitions)
        for value in KEYS[kind]:
            append(builder.table, frame=spark.sql(f"SELECT cast({value} AS {kind}) k, 1L v"))
        source = spark.sql(" UNION ALL ".join(f"SELECT cast({value} AS {kind}) k, 2L v" for value in KEYS[kind][1:]))
        result = merge(builder.table, frame=source, keys=["k"])
        matched = 1 if kind == "boolean" else 2
        assert counts(result.metrics) == (2 - matched, matched, 0, 0)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_delete_unmatched_deletes_only_within_the_slice(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string, v long", "p")
    builder.append(*TARGET)
    frame = builder.frame((2, "a", 200))
    result = merge(builder.table, frame=frame, keys=["id"], mode=MergeMode.DELETE_UNMATCHED, where="p = 'a'")
    assert builder.rows() == [(2, "a", 200), (3, "b", 30), (4, "b", 40)]
    assert counts(result.metrics) == (0, 1, 2, 0)


def test_rows_outside_of_the_slice_are_unchanged_in_rewritten_files(build: Callable[..., TableBuilder]) -> None:
    """A row outside of the slice is not merged, although its key is in the source and its file is rewritten."""
    builder = build("id long, v long").with_properties(COPY_ON_WRITE)
    builder.append((1, 5), (2, 50), (3, 6), (4, None))
    frame = builder.frame((1, 7), (2, 8), (4, 9))
    result = merge(builder.table, frame=frame, keys=["id"], mode=MergeMode.DELETE_UNMATCHED, where="v < 10")
    assert builder.rows() == [(1, 7), (2, 8), (2, 50), (4, None), (4, 9)]
    assert counts(result.metrics) == (2, 1, 1, 2)


@pytest.mark.requirements("DML-3")
def test_an_empty_source_clears_the_slice_or_does_nothing(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string, v long", "p")
    builder.append(*TARGET)
    for mode in (MergeMode.UPSERT, MergeMode.INSERT_ONLY, MergeMode.UPDATE_ONLY):
        assert merge(builder.table, frame=builder.frame(), keys=["id"], mode=mode).outcome is WriteOutcome.NOTHING_TO_DO
    merge(builder.table, frame=builder.frame(), keys=["id"], mode=MergeMode.DELETE_UNMATCHED, where="p = 'a'")
    assert builder.rows() == [(3, "b", 30), (4, "b", 40)]


@pytest.mark.requirements("DML-5")
def test_duplicate_source_keys_are_refused_with_an_example(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long")
    builder.append((1, 1))
    with pytest.raises(InvalidDataError, match="id = 1"):
        merge(builder.table, frame=builder.frame((1, 2), (1, 3), (None, 1), (None, 1)), keys=["id"])
    assert builder.rows() == [(1, 1)]


def test_source_rows_outside_of_the_slice_are_refused(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string, v long", "p")
    with pytest.raises(PartitionMismatchError, match="id = 2"):
        merge(builder.table, frame=builder.frame((1, "a", 1), (2, None, 1)), keys=["id"], where="p = 'a'")


def test_unusable_keys_are_refused(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v array<int>")
    frame = builder.frame((1, [1]))
    for keys in ([], ["nope"], ["id", "ID"], ["v"]):
        with pytest.raises(InvalidArgumentError):
            merge(builder.table, frame=frame, keys=keys)
    with pytest.raises(InvalidArgumentError, match="source"):
        merge(builder.table, frame=frame.drop("id"), keys=["id"])


@pytest.mark.requirements("SCHEVO-2")
def test_columns_that_the_source_lacks_keep_their_value(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long, w string")
    builder.append((1, 1, "keep"))
    merge(builder.table, frame=builder.frame((9, 1), (8, 2), columns="V int, id int"), keys=["id"])
    assert builder.rows() == [(1, 9, "keep"), (2, 8, None)]


@pytest.mark.requirements("SCHEVO-3")
def test_new_columns_are_added_when_asked_for(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long")
    builder.append((1, 1), (2, 2))
    frame = builder.frame((1, 5, "n"), columns="id long, v long, `new.one` string")
    with pytest.raises(SchemaMismatchError):
        merge(builder.table, frame=frame, keys=["id"])
    merge(builder.table, frame=frame, keys=["id"], schema_mode=SchemaMode.MERGE)
    assert builder.rows() == [(1, 5, "n"), (2, 2, None)]


@pytest.mark.requirements("TT-8")
def test_a_source_computed_from_the_table_itself_works(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long")
    builder.append((1, 1), (2, 2))
    frame = read(open_scan(builder.table), spark=builder.spark).withColumn("v", F.col("v") + 1)
    merge(builder.table, frame=frame, keys=["id"])
    assert builder.rows() == [(1, 2), (2, 3)]


@pytest.mark.requirements("TT-8")
def test_an_older_version_of_the_table_itself_is_a_source(build: Callable[..., TableBuilder]) -> None:
    """Each side keeps its own version."""
    builder = build("id long, v long")
    builder.append((1, 1), (2, 2))
    builder.append((3, 3))
    older = read(open_scan(builder.table, version=1), spark=builder.spark).withColumn("v", F.col("v") + 10)
    merge(builder.table, frame=older, keys=["id"])
    assert builder.rows() == [(1, 11), (2, 12), (3, 3)]


def test_the_source_is_evaluated_once(build: Callable[..., TableBuilder], spark: SparkSession) -> None:
    """A source that is not deterministic must not be seen differently by two passes."""
    builder = build("id long, v double")
    builder.append(*[(number, 0.0) for number in range(20)])
    seen = spark.sparkContext.accumulator(0)

    def note(value: int) -> int:
        seen.add(1)
        return value

    frame = spark.range(10).select(
        F.udf(note, "long", useArrow=False).asNondeterministic()("id").alias("id"), F.rand().alias("v")
    )
    merge(builder.table, frame=frame, keys=["id"])
    assert seen.value == 10
    assert not frame.storageLevel.useMemory
    assert len(builder.rows()) == 20


def test_a_source_that_the_caller_keeps_stays_kept(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long")
    frame = builder.frame((1, 1)).persist()
    merge(builder.table, frame=frame, keys=["id"])
    assert frame.storageLevel.useMemory
    frame.unpersist()


@pytest.mark.requirements("TXN-4")
def test_a_repeated_merge_happens_once(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long")
    batch = Idempotency(app_id="m", version=1)
    merge(builder.table, frame=builder.frame((1, 1)), keys=["id"], options=CommitOptions(idempotency=batch))
    again = merge(builder.table, frame=builder.frame((1, 2)), keys=["id"], options=CommitOptions(idempotency=batch))
    assert (again.outcome, again.version) == (WriteOutcome.ALREADY_COMMITTED, 1)
    assert builder.rows() == [(1, 1)]


@pytest.mark.requirements("OCC-8")
def test_merges_of_different_partitions_both_commit(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string, v long", "p")
    builder.append(*TARGET)
    table = Interleaved(
        builder.table, lambda: merge(builder.table, frame=builder.frame((3, "b", 1)), keys=["id"], where="p = 'b'")
    )
    result = merge(table, frame=builder.frame((2, "a", 1)), keys=["id"], where="p = 'a'")
    assert result.retries == 1
    assert {(2, "a", 1), (3, "b", 1)} <= set(builder.rows())


@pytest.mark.requirements("OCC-8", "OCC-9")
def test_merges_whose_keys_imply_different_partitions_both_commit(
    build: Callable[..., TableBuilder],
) -> None:
    """The source decides what a merge reads, also if the other partition lies between its partitions."""
    builder = build("id long, p string, v long", "p")
    builder.append((1, "a", 0), (1, "b", 0), (1, "c", 0))
    table = Interleaved(
        builder.table, lambda: merge(builder.table, frame=builder.frame((1, "b", 1), (2, "b", 1)), keys=["id", "p"])
    )
    source = builder.frame((1, "a", 2), (2, "c", 2))
    result = merge(table, frame=source, keys=["id", "p"])
    assert result.retries == 1
    assert builder.rows() == [(1, "a", 2), (1, "b", 1), (1, "c", 0), (2, "b", 1), (2, "c", 2)]


@pytest.mark.requirements("OCC-8", "OCC-9")
def test_merges_of_distant_keys_both_commit_without_partitions(build: Callable[..., TableBuilder]) -> None:
    """Files whose statistics exclude the keys of the source were not read."""
    builder = build("id long, v long")
    builder.append((1, 0), (2, 0))
    builder.append((101, 0), (102, 0))
    table = Interleaved(builder.table, lambda: merge(builder.table, frame=builder.frame((1, 1), (3, 1)), keys=["id"]))
    result = merge(table, frame=builder.frame((102, 2), (103, 2)), keys=["id"])
    assert result.retries == 1
    assert builder.rows() == [(1, 1), (2, 0), (3, 1), (101, 0), (102, 2), (103, 2)]


@pytest.mark.requirements("OCC-8", "OCC-10")
def test_merges_of_one_key_conflict(build: Callable[..., TableBuilder]) -> None:
    """The second insert of one key is not committed."""
    builder = build("id long, v long")
    builder.append((1, 0))
    table = Interleaved(builder.table, lambda: merge(builder.table, frame=builder.frame((5, 1)), keys=["id"]))
    with pytest.raises(CommitConflictError):
        merge(table, frame=builder.frame((5, 2)), keys=["id"])
    assert builder.rows() == [(1, 0), (5, 1)]


@pytest.mark.requirements("APPEND-2", "APPEND-3")
def test_append_only_tables_take_new_rows_only(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long", delta__appendOnly="true")
    builder.append((1, 1))
    with pytest.raises(IllegalCommitError, match="append-only"):
        merge(builder.table, frame=builder.frame((1, 2)), keys=["id"])
    merge(builder.table, frame=builder.frame((1, 2), (2, 2)), keys=["id"], mode=MergeMode.INSERT_ONLY)
    assert builder.rows() == [(1, 1), (2, 2)]
