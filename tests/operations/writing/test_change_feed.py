"""The change feed of tables that this package writes: what DELETE, UPDATE, MERGE and overwrites record."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_changes_arrow import read_changes_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing import merge_rows
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.features.identity_columns import Identity
from tests.support.builders import TableBuilder, rows_of
from tests.support.creation import create_table

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    def new(columns: str, *partitions: str, vectors: str = "true") -> TableBuilder:
        builder = TableBuilder(client, spark, columns, partition_by=partitions, properties=FEED)
        return builder if vectors == "true" else builder.with_properties({"delta.enableDeletionVectors": vectors})

    return new


def _changes(builder: TableBuilder) -> list[tuple[Any, ...]]:
    """The changes of the latest version, with their kind first."""
    version = builder.table.snapshot().version
    found = read_changes_arrow(
        open_changes(builder.table, ChangeRange(starting_version=version, ending_version=version))
    )
    rows = found.drop_columns(["_commit_version", "_commit_timestamp"]).to_pylist()
    return sorted((row.pop("_change_type"), *row.values()) for row in rows)


def _num_change_files(builder: TableBuilder) -> int:
    return sum(
        "/_change_data/" in status.location for status in builder.table.store.list_recursive(builder.table.location)
    )


@pytest.mark.requirements("CDF-1", "CDF-2", "CDF-3", "CDF-4")
@pytest.mark.parametrize("vectors", [pytest.param("true", marks=pytest.mark.slow), "false"])
def test_each_verb_records_the_rows_that_it_changes(build: Callable[..., TableBuilder], vectors: str) -> None:
    """With deletion vectors and by rewriting files; a pure delete by vectors needs no change file."""
    builder = build("id long, p string, v string", "p", vectors=vectors)
    builder.append(*[(i, "a" if i < 6 else "b", "v") for i in range(9)])
    spark, table = builder.spark, builder.table

    delete(table, spark=spark, where="id = 1 OR p = 'b' AND id = 6")
    assert _changes(builder) == [("delete", 1, "a", "v"), ("delete", 6, "b", "v")]
    assert bool(_num_change_files(builder)) is (vectors == "false")

    result = update(table, spark=spark, assignments={"v": "'w'", "p": "'c'"}, where="id = 2")
    assert _changes(builder) == [("update_postimage", 2, "c", "w"), ("update_preimage", 2, "a", "v")]
    assert result.metrics["numAddedChangeFiles"] == "2"

    source = builder.frame((3, "a", "m"), (4, "a", "m"), (20, "b", "m"))
    MergeBuilder(
        table, change=RowChange(source=source, on="t.id = s.id", source_alias="s", target_alias="t")
    ).when_matched_update({"v": "s.v"}, "t.id = 3").when_matched_delete().when_not_matched_insert_all().execute()
    assert _changes(builder) == [
        ("delete", 4, "a", "v"),
        ("insert", 20, "b", "m"),
        ("update_postimage", 3, "a", "m"),
        ("update_preimage", 3, "a", "v"),
    ]

    overwrite(table, frame=builder.frame((0, "a", "o")), where="p = 'a' AND id < 4")
    assert _changes(builder) == [("delete", 0, "a", "v"), ("delete", 3, "a", "m"), ("insert", 0, "a", "o")]

    before = _num_change_files(builder)
    delete(table, spark=spark, where="p = 'b'")
    assert _changes(builder) == [("delete", 7, "b", "v"), ("delete", 8, "b", "v"), ("delete", 20, "b", "m")]
    assert _num_change_files(builder) == before


@pytest.mark.slow
def test_a_row_with_two_partners_is_recorded_once(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long", vectors="false")
    builder.append((1,), (2,), (3,))
    twice = builder.frame((1,), (1,), (9,))
    MergeBuilder(
        builder.table, change=RowChange(source=twice, on="t.id = s.id", source_alias="s", target_alias="t")
    ).when_matched_delete().when_not_matched_insert_all().execute()
    assert _changes(builder) == [("delete", 1), ("insert", 9)]


@pytest.mark.requirements("CDF-2", "IDENT-3", "DEF-2")
@pytest.mark.parametrize("limit", [100_000, 0])
def test_updated_rows_keep_computed_values_beside_inserted_rows(
    client: DeltaClient, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Only inserted rows get defaults and identity values, in whatever order the clauses stand."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", limit)
    columns = (
        Column("id", "bigint"),
        Column("key", "bigint", identity=Identity()),
        Column("v", "string", default="'new'"),
    )
    table = create_table(client, identifier="main.test.recorded", schema=schema_of_columns(columns), properties=FEED)
    append(table, frame=spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string").coalesce(1))
    source = spark.createDataFrame([(2,), (3,)], "id long")
    merge = MergeBuilder(table, change=RowChange(source=source, on="t.id = s.id", source_alias="s", target_alias="t"))
    merge = merge.when_not_matched_insert({"id": "s.id"}).when_matched_update({"v": "'m'"})
    version = merge.when_not_matched_by_source_update({"v": "'o'"}).execute().version
    expected = rows_of(read(open_scan(table), spark=spark))
    assert expected == [(1, 1, "o"), (2, 2, "m"), (3, expected[2][1], "new")] and expected[2][1] > 2
    found = read_changes_arrow(
        open_changes(table, ChangeRange(starting_version=version, ending_version=version))
    ).to_pylist()
    after = [row for row in found if row["_change_type"] in ("insert", "update_postimage")]
    assert sorted((row["id"], row["key"], row["v"]) for row in after) == expected
