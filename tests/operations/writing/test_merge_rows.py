"""MERGE with clauses: which rows change, and what is refused before anything is written."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, InvalidDataError, SchemaMismatchError
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.writing import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.protocol.schema.types import data_type_text
from tests.support.builders import TableBuilder

Build = Callable[..., TableBuilder]


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Build:
    def new(columns: str, *partitions: str, vectors: str = "true") -> TableBuilder:
        builder = TableBuilder(client, spark, columns, partition_by=partitions)
        return builder if vectors == "true" else builder.with_properties({"delta.enableDeletionVectors": vectors})

    return new


def _merge(builder: TableBuilder, frame: DataFrame, on: Any = "t.id = s.id") -> MergeBuilder:
    change = RowChange(source=frame, on=on, source_alias="s", target_alias="t")
    return MergeBuilder(builder.table, change=change)


@pytest.mark.requirements("DML-4")
@pytest.mark.parametrize(
    ("small_source", "vectors"),
    [
        (100_000, "true"),
        pytest.param(0, "true", marks=pytest.mark.slow),
        pytest.param(100_000, "false", marks=pytest.mark.slow),
        pytest.param(0, "false", marks=pytest.mark.slow),
    ],
)
def test_clauses_apply_in_order(build: Build, monkeypatch: pytest.MonkeyPatch, vectors: str, small_source: int) -> None:
    """Rows for which no clause applies stay; a matched source row is not inserted though no clause applies to it."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", small_source)
    builder = build("id long, v string, n int", vectors=vectors)
    builder.append(*[(i, f"v{i}", i) for i in range(8)])
    builder.append(*[(i, f"v{i}", i) for i in range(8, 16)])
    source = builder.frame(
        (1, "a", 1), (2, "b", 2), (3, "c", 3), (20, "d", 4), (21, "e", 5), columns="id long, w string, n int"
    )
    result = (
        _merge(builder, source)
        .when_matched_delete("s.w = 'a'")
        .when_matched_update({"v": "s.w || t.v"}, F.col("t.n") == 2)
        .when_not_matched_insert({"id": "id", "v": "w"}, "n = 4")
        .when_not_matched_by_source_update({"n": "n + 100"}, "id = 9")
        .when_not_matched_by_source_delete("id > 13")
        .execute()
    )
    expected = [(i, f"v{i}", i) for i in range(14) if i not in (1, 2, 9)]
    assert builder.rows() == sorted([*expected, (2, "bv2", 2), (9, "v9", 109), (20, "d", None)])
    counts = {name.removeprefix("numTargetRows"): value for name, value in result.metrics.items()}
    assert [
        counts[name]
        for name in (
            "numSourceRows",
            "Inserted",
            "MatchedUpdated",
            "MatchedDeleted",
            "NotMatchedBySourceUpdated",
            "NotMatchedBySourceDeleted",
            "Copied",
        )
    ] == ["5", "1", "1", "1", "1", "2", "0" if vectors == "true" else "11"]
    info = history(builder.table, limit=1)[0].commit_info
    assert info is not None
    assert info.operation_parameters["matchedPredicates"] == (
        '[{"predicate":"s.w = \'a\'","actionType":"delete"},{"predicate":"(`t`.`n` = 2)","actionType":"update"}]'
    )


@pytest.mark.slow
def test_any_condition_joins(build: Build) -> None:
    """Conditions without equal keys, on one side only, and NULL-safe ones."""
    builder = build("id long, v string")
    builder.append((1, "a"), (5, "b"), (None, "c"))
    ranges = builder.frame((0, 2, "x"), (4, 4, "y"), columns="low long, high long, w string")
    _merge(builder, ranges, "t.id BETWEEN low AND high").when_matched_update({"v": "w"}).when_not_matched_insert(
        {"id": "low", "v": "w"}
    ).execute()
    assert builder.rows() == [(None, "c"), (1, "x"), (4, "y"), (5, "b")]
    nulls = builder.frame((None, "z"), columns="id long, v string")
    _merge(builder, nulls, "t.id <=> s.id").when_matched_update_all().execute()
    _merge(builder, nulls, F.lit(False)).when_not_matched_insert_all().execute()
    assert builder.rows() == [(None, "z"), (None, "z"), (1, "x"), (4, "y"), (5, "b")]


@pytest.mark.requirements("DML-4")
def test_literals_of_clauses_are_times_in_the_zone_of_the_session(build: Build, spark: SparkSession) -> None:
    """Files are skipped by the same times by which Spark compares the rows, whatever zone the connection names."""
    builder = build("id long, at timestamp, v string", vectors="false")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for number, hour in ((1, 2), (2, 22)):
            builder.append((number, datetime(2024, 1, 1, hour, tzinfo=UTC), "old"))
        builder.table.time_zone = ZoneInfo("Asia/Tokyo")
        source = builder.frame((1, "new"), (2, "new"), columns="id long, v string")
        on = "t.id = s.id AND t.at < TIMESTAMP '2024-01-01 03:00:00'"
        _merge(builder, source, on).when_matched_update({"v": "s.v"}).execute()
        assert [(row[0], row[2]) for row in builder.rows()] == [(1, "new"), (2, "old")]
        clauses = _merge(builder, source.where("id = 2"))
        clauses.when_not_matched_by_source_update({"v": "'gone'"}, "t.at < '2024-01-01 03:00:00'").execute()
        assert [(row[0], row[2]) for row in builder.rows()] == [(1, "gone"), (2, "old")]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.slow
def test_values_of_a_merge_need_not_be_deterministic(build: Build) -> None:
    """They are computed once; the change feed records what was inserted."""
    builder = build("id long, v string").with_properties({"delta.enableChangeDataFeed": "true"}, "changeDataFeed")
    _merge(builder, builder.frame((1, "x"), (2, "y"))).when_not_matched_insert({"id": "s.id", "v": "uuid()"}).execute()
    rows = builder.rows()
    assert len({row[1] for row in rows}) == 2
    plain = build("id long, v string")
    plain.append((1, "a"))
    _merge(plain, plain.frame((1, "x"))).when_matched_update({"v": "CAST(rand() AS string)"}).execute()
    assert 0 <= float(plain.rows()[0][1]) < 1


@pytest.mark.requirements("DML-5")
@pytest.mark.slow
def test_two_matches_of_a_row_are_an_error_unless_it_is_deleted(build: Build) -> None:
    """The conditions of the clauses do not matter."""
    builder = build("id long, v string")
    builder.append((1, "a"), (2, "b"), (3, "c"))
    twice = builder.frame((1, "x"), (1, "y"), (4, "z"))
    for merge in (
        _merge(builder, twice).when_matched_update_all(),
        _merge(builder, twice).when_matched_delete("s.v = 'q'"),
        _merge(builder, twice).when_not_matched_by_source_delete(),
    ):
        with pytest.raises(InvalidDataError, match="match the same row"):
            merge.execute()
    _merge(builder, twice).when_not_matched_insert_all().execute()
    result = _merge(builder, twice).when_matched_delete().execute()
    assert builder.rows() == [(2, "b"), (3, "c")] and result.metrics["numTargetRowsDeleted"] == "2"


@pytest.mark.slow
def test_all_columns_with_and_without_schema_evolution(build: Build) -> None:
    """With evolution UPDATE * keeps nested fields that the source lacks, and new rows have NULL there."""
    builder = build("id long, st struct<a: int, b: int>, v string")
    builder.append((1, (1, 1), "a"))
    source = builder.spark.sql(
        "SELECT id, named_struct('a', 7, 'c', 8) AS st, 'n' AS new FROM VALUES (1L), (2L) AS x(id)"
    )
    merge = _merge(builder, source).when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(SchemaMismatchError, match=r"no column 'v'|field 'c'"):
        merge.execute()
    merge.with_schema_evolution().execute()
    assert builder.rows() == [(1, (7, 1, 8), "a", "n"), (2, (7, None, 8), None, "n")]


@pytest.mark.requirements("DML-4")
def test_a_struct_is_null_where_source_and_table_have_null(build: Build) -> None:
    """UPDATE * with evolution, of structs that have fields which the source lacks; delta-spark 4.4.0 gives the same rows."""
    builder = build("id long, st struct<a: int, b: string, n: struct<p: int, q: int>>")
    builder.append(
        (1, None), (2, (1, None, None)), (3, (1, "x", (1, None))), (4, (1, "x", (1, 2))), (5, None), (6, (1, "x", None))
    )
    source = builder.frame(
        (1, None), (2, None), (3, None), (4, (9, None)), (5, (None, None)), (7, None),
        columns="id long, st struct<a: int, n: struct<p: int>>",
    )  # fmt: skip
    merge = _merge(builder, source).when_matched_update_all().when_not_matched_insert_all()
    merge.with_schema_evolution().execute()
    assert builder.rows() == [
        (1, None), (2, (None, None, None)), (3, (None, "x", (None, None))), (4, (9, "x", (None, 2))),
        (5, (None, None, None)), (6, (1, "x", None)), (7, None),
    ]  # fmt: skip
    deeper = builder.frame(
        (1, None),
        (3, None),
        (4, ((7,), "r", 8)),
        (6, (None, "r", 8)),
        columns="id long, st struct<n: struct<p: int>, b: string, a: int>",
    )
    _merge(builder, deeper).when_matched_update_all().with_schema_evolution().execute()
    assert builder.rows() == [
        (1, None), (2, (None, None, None)), (3, (None, None, (None, None))), (4, (8, "r", (7, 2))),
        (5, (None, None, None)), (6, (8, "r", None)), (7, None),
    ]  # fmt: skip


@pytest.mark.requirements("UP-TW-3")
def test_schema_evolution_widens_and_adds_only_what_is_assigned(build: Build) -> None:
    """NOT NULL columns that the source lacks stay; a nested type that is not wider stays, and its values are cast."""
    builder = build("id long NOT NULL, n int, st struct<a: int>, d decimal(5,2)")
    builder.append((1, 1, (1,), None), (2, 2, (2,), None))
    source = builder.spark.sql(
        "SELECT 1 AS k, 5000000000 AS n, named_struct('a', 7L, 'b', 8) AS st, 1234.567BD AS d, 'x' AS new, 'y' AS other"
    )
    values = {"n": "s.n", "t.st.a": "s.st.a", "new": "s.new"}
    merge = _merge(builder, source, "t.id = s.k").when_matched_update(values).with_schema_evolution()
    with pytest.raises(InvalidDataError, match="5000000000"):
        merge.execute()
    assert builder.table.snapshot().schema.names == ("id", "n", "st", "d")
    builder.with_properties({"delta.enableTypeWidening": "true"}, "typeWidening")
    merge.execute()
    assert builder.rows() == [(1, 5_000_000_000, (7,), None, "x"), (2, 2, (2,), None, None)]
    found = builder.table.snapshot().schema
    assert [(item.name, data_type_text(item.type)) for item in found.fields] == [
        ("id", "bigint"), ("n", "bigint"), ("st", "struct<a:bigint>"), ("d", "decimal(5,2)"), ("new", "string"),
    ]  # fmt: skip
    assert found.fields[1].metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert not found.fields[0].nullable
    by_source = _merge(builder, source, "t.id = s.k").when_not_matched_by_source_update({"other": "'z'"})
    with pytest.raises(InvalidArgumentError, match="no column 'other'"):
        by_source.with_schema_evolution().execute()


def test_values_are_cast_as_they_are_stored(build: Build) -> None:
    """A value that the column cannot hold is an error; DEFAULT without a default is NULL."""
    builder = build("id long, b byte, s string")
    builder.append((1, 1, "a"))
    source = builder.frame((1, 300), columns="id long, n int")
    try:
        for ansi in ("false", "true"):
            builder.spark.conf.set("spark.sql.ansi.enabled", ansi)
            with pytest.raises(InvalidDataError, match="300"):
                _merge(builder, source).when_matched_update({"b": "s.n"}).execute()
    finally:
        builder.spark.conf.unset("spark.sql.ansi.enabled")
    _merge(builder, source).when_matched_update({"b": "s.n - 200", "t.s": "DEFAULT"}).execute()
    assert builder.rows() == [(1, 100, None)]


@pytest.mark.parametrize(
    ("condition", "is_cached"),
    [("s.c <=> double('NaN')", False), ("s.c > 1", False), ("s.c > 1", True)],
)
def test_rows_with_nan_are_inserted_under_a_condition(build: Build, condition: str, is_cached: bool) -> None:
    """NaN is the greatest number, also in a source that the merge or its caller has cached."""
    builder = build("id long, c double")
    builder.append((1, 0.0))
    source = builder.frame((2, float("nan")), (3, 0.5), columns="id long, c double NOT NULL").coalesce(1)
    if is_cached:
        source.persist()
    try:
        result = _merge(builder, source).when_not_matched_insert_all(condition).execute()
    finally:
        source.unpersist()
    assert sorted(row[0] for row in builder.rows()) == [1, 2]
    assert result.metrics["numTargetRowsInserted"] == "1"


def _data_files(builder: TableBuilder) -> list[str]:
    listed = builder.table.store.list_recursive(builder.table.location)
    return [status.name for status in listed if status.name.endswith((".parquet", ".bin"))]


REFUSED: dict[str, Callable[[MergeBuilder], MergeBuilder]] = {
    "no clause": lambda merge: merge,
    "can never apply": lambda merge: merge.when_matched_delete().when_matched_update({"v": "s.v"}),
    "no column 'q'": lambda merge: merge.when_matched_update({"q": "s.v"}),
    "Two values": lambda merge: merge.when_matched_update({"v": "s.v", "t.V": "s.v"}),
    "rand": lambda merge: merge.when_matched_update({"v": "s.v"}, "rand() > 0.5"),
    "not deterministic|rand": lambda merge: merge.when_matched_delete(F.rand() > 0.5),
    "does not accept": lambda merge: merge.when_matched_delete("v = 'a'"),
    "not of the type": lambda merge: merge.when_matched_update({"v": "rand()"}),
    "change feed": lambda merge: merge.when_matched_update({"v": "uuid()"}),
    "assigns no value": lambda merge: merge.when_not_matched_insert({}),
    "query": lambda merge: merge.when_matched_delete("t.id IN (SELECT 1)"),
    "sees only the table.*`s`.`v`": lambda merge: merge.when_not_matched_by_source_update({"v": "s.v"}),
    "sees only the table.*`s`.`id`": lambda merge: merge.when_not_matched_by_source_delete("s.id IS NULL"),
    "sees only the source.*`t`.`v`": lambda merge: merge.when_not_matched_insert({"id": "s.id", "v": "t.v"}),
    "sees only the source.*`t`.`id`": lambda merge: merge.when_not_matched_insert_all("t.id IS NULL"),
    "for each row by itself.*max": lambda merge: merge.when_matched_update({"v": "max(s.v)"}),
    "for each row by itself.*count": lambda merge: merge.when_matched_delete("count(*) > 1"),
    "for each row by itself.*window": lambda merge: merge.when_matched_update(
        {"id": "row_number() OVER (ORDER BY s.v)"}
    ),
    "for each row by itself.*explode": lambda merge: merge.when_not_matched_insert({"id": "explode(array(1, 2))"}),
    "not a boolean": lambda merge: merge.when_matched_delete("t.id + 1"),
    "None of type NoneType": lambda merge: merge.when_matched_update({"v": None}),  # type: ignore[dict-item]
    "True of type bool": lambda merge: merge.when_matched_delete(True),  # type: ignore[arg-type]
}


def test_what_cannot_be_resolved_is_refused_before_anything_is_written(build: Build) -> None:
    builder = build("id long, v string").with_properties({"delta.enableChangeDataFeed": "true"}, "changeDataFeed")
    builder.append((1, "a"))
    before = _data_files(builder)
    source = builder.frame((1, "b"))
    for message, clauses in REFUSED.items():
        with pytest.raises(CmDeltaError, match=message):
            clauses(_merge(builder, source)).execute()
    with pytest.raises(InvalidArgumentError, match="same alias"):
        MergeBuilder(
            builder.table, change=RowChange(source=source, on="t.id = t.id", source_alias="t", target_alias="t")
        ).when_matched_delete().execute()
    assert _data_files(builder) == before and builder.rows() == [(1, "a")]
