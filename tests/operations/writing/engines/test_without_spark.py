"""Changes of rows and compaction in a process without a Spark session."""

from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.arrow import joined_rows
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.errors import (
    CommitConflictError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
)
from cm_delta_dagster.operations.writing.engines import arrow_join
from tests.operations.writing.engines.large_changes import every_source_is_large

pytestmark = pytest.mark.fast


@pytest.fixture(params=["memory", "files"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Sources of merges are in memory, and in temporary files."""
    sources = every_source_is_large(monkeypatch) if request.param == "files" else nullcontext()
    with (
        sources,
        connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=lambda: None) as lake,
    ):  # type: ignore[arg-type,return-value]
        yield lake


def _table(lake: Connection, columns: str = "id BIGINT, name STRING, price DOUBLE", **more: Any) -> DeltaTable:
    table = lake.create_table("main.s.t", columns, **more)
    table.append(pa.table({"id": range(6), "name": [f"n{i}" for i in range(6)], "price": [float(i) for i in range(6)]}))
    return table


def _rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.mark.requirements("DML-1", "DML-2", "DV-21")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_are_deleted_updated_and_merged(lake: Connection, vectors: str) -> None:
    table = _table(lake, properties={"delta.enableDeletionVectors": vectors})
    assert table.delete("id = 0 OR name = 'n1'").metrics["numDeletedRows"] == "2"
    updated = table.update({"price": "price * 1.5 + id / 2", "name": "concat(name, '!')"}, "id >= 4")
    assert updated.metrics["numUpdatedRows"] == "2"
    merged = table.upsert(pa.table({"id": [2, 9], "price": [20.5, 90.0]}), on="id")
    assert [merged.metrics[f"numTargetRows{kind}"] for kind in ("Updated", "Inserted")] == ["1", "1"]
    assert _rows(table) == [
        (2, "n2", 20.5),
        (3, "n3", 3.0),
        (4, "n4!", 8.0),
        (5, "n5!", 10.0),
        (9, None, 90.0),
    ]


@pytest.mark.requirements("DML-2")
def test_slices_and_keys_are_replaced(lake: Connection) -> None:
    table = _table(lake)
    table.overwrite(pa.table({"id": [1, 1], "name": ["a", "b"], "price": [0.5, 0.5]}), keys="id")
    table.overwrite(pa.table({"id": [7], "name": ["c"], "price": [0.25]}), where="price < 1 OR price > 4")
    assert _rows(table) == [(2, "n2", 2.0), (3, "n3", 3.0), (4, "n4", 4.0), (7, "c", 0.25)]
    with pytest.raises(PartitionMismatchError, match="price"):
        table.overwrite(pa.table({"id": [8], "name": ["d"], "price": [2.0]}), where="price < 1")
    with pytest.raises(InvalidDataError, match="NULL in the key column 'id'"):
        table.overwrite(pa.table({"id": pa.array([None], pa.int64()), "name": ["d"], "price": [2.0]}), keys="id")


@pytest.mark.requirements("DML-2")
def test_the_modes_of_a_merge(lake: Connection) -> None:
    """Rows of the table outside of the slice stay as they are, although their keys match."""
    table = _table(lake)
    source = pa.table({"id": [1, 2, 8], "name": ["x", "y", "z"]})
    table.upsert(source, on=["id"], mode="insert_only")
    table.upsert(source.slice(1, 1), on=["id"], mode="update_only")
    table.upsert(pa.table({"id": [4], "price": [40.0]}), on=["id"], mode="delete_unmatched", where="id > 2 AND id < 8")
    assert _rows(table) == [(0, "n0", 0.0), (1, "n1", 1.0), (2, "y", 2.0), (4, "n4", 40.0), (8, "z", None)]
    with pytest.raises(InvalidDataError, match="Several rows of the source have the key id = 1"):
        table.upsert(pa.table({"id": [1, 1], "price": [1.0, 2.0]}), on="id")
    with pytest.raises(PartitionMismatchError, match="id = 9"):
        table.upsert(pa.table({"id": [9]}), on="id", where="id < 9")
    keys = pa.array([None, 0], pa.int64())
    assert table.upsert(pa.table({"id": keys, "price": [7.0, 5.0]}), on="id").metrics["numTargetRowsInserted"] == "1"


@pytest.mark.requirements("DML-2", "DML-4")
def test_clauses_of_a_merge(lake: Connection) -> None:
    """The first clause of its kind applies; columns are named by aliases, or without one where only one side is seen."""
    table = _table(lake)
    source = pa.table({"key": [1, 2, 3, 8, 9], "price": [1.0, 20.0, None, 8.0, -9.0]})
    merge = table.merge(source, "t.id = s.key AND t.price < 3.5D", source_alias="s", target_alias="t")
    result = (
        merge.when_matched_delete("s.price IS NULL")
        .when_matched_update({"price": "t.price + s.price", "name": "concat(name, '!')"}, "s.price > t.price")
        .when_not_matched_insert({"id": "key", "name": "'new'"}, "price > 0D")
        .when_not_matched_insert({"id": "key * 10", "price": "-price"}, "s.key = 9")
        .when_not_matched_by_source_update({"name": "DEFAULT"}, "id = 4")
        .when_not_matched_by_source_delete("id > 4")
        .execute()
    )
    expected = [(0, "n0", 0.0), (1, "n1", 1.0), (2, "n2!", 22.0), (4, None, 4.0), (8, "new", None), (90, None, 9.0)]
    assert _rows(table) == expected
    counts = {
        name.removeprefix("numTargetRows"): int(value) for name, value in result.metrics.items() if "TargetRows" in name
    }
    assert counts == {
        "Inserted": 2,
        "Updated": 2,
        "MatchedUpdated": 1,
        "NotMatchedBySourceUpdated": 1,
        "Deleted": 2,
        "MatchedDeleted": 1,
        "NotMatchedBySourceDeleted": 1,
        "Copied": counts["Copied"],
    }


@pytest.mark.requirements("DML-2", "DML-4", "SCHEVO-3")
def test_all_columns_of_the_source(lake: Connection) -> None:
    """A key of a wider integer type finds its row, and a column that the table lacks is added if that is asked for."""
    table = lake.create_table("main.s.t", "id INT, v STRING")
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]}))
    source = pa.table({"id": [2, 3, 2**40], "v": ["B", "C", "D"], "w": [1.5, 2.5, 3.5]}).slice(0, 2)
    with pytest.raises(SchemaMismatchError, match="no column 'v'"):
        table.merge(source.drop(["v"]), "id").when_matched_update_all().execute()
    merge = table.merge(source, "id").with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert _rows(table) == [(1, "a", None), (2, "B", 1.5), (3, "C", 2.5)]
    wide = pa.table({"id": [2**40], "v": ["D"]})
    with pytest.raises(InvalidDataError, match="1099511627776 not in range"):
        table.merge(wide, "id").when_matched_update({"v": "source.v"}).when_not_matched_insert(
            {"id": "source.id", "v": "source.v"}
        ).execute()
    table.merge(wide, "id").when_matched_delete().execute()
    assert len(_rows(table)) == 3


@pytest.mark.requirements("DML-2", "DML-4")
def test_rows_with_several_partners(lake: Connection) -> None:
    """They are refused, unless nothing depends on which partner is taken."""
    table = _table(lake)
    twice = pa.table({"id": [1, 1, 7, 7, None], "name": ["x", "y", "p", "q", "r"]})
    with pytest.raises(InvalidDataError, match="Several rows of the source match the same row"):
        table.merge(twice, "id").when_matched_update({"name": "source.name"}).execute()
    merge = table.merge(twice, "target.id = source.id AND source.name <> 'y'")
    merge.when_matched_update({"name": "source.name"}).execute()
    assert (1, "x", 1.0) in _rows(table)
    table.merge(twice, "id").when_matched_delete().when_not_matched_insert({"id": "id", "name": "name"}).execute()
    ids = [row["id"] for row in table.to_arrow().to_pylist()]
    assert sorted(key for key in ids if key is not None) == [0, 2, 3, 4, 5, 7, 7] and ids.count(None) == 1


@pytest.mark.requirements("DML-2", "DML-4")
def test_fields_of_structs(lake: Connection) -> None:
    """Other fields stay, and a struct that was NULL has them as NULL."""
    table = lake.create_table("main.s.t", "id INT, st STRUCT<a: BIGINT, b: STRUCT<c: STRING, d: BIGINT>>")
    table.append([{"id": 1, "st": {"a": 1, "b": {"c": "x", "d": 2}}}, {"id": 2, "st": None}])
    table.update({"st.a": "id * 10", "st.b.c": "concat(st.b.c, '!')"})
    source = pa.table({"id": pa.array([2], pa.int32()), "n": pa.array([7], pa.int32())})
    table.merge(source, "id").when_matched_update({"st.b.d": "source.n + target.st.a"}).execute()
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "st": {"a": 10, "b": {"c": "x!", "d": 2}}},
        {"id": 2, "st": {"a": 20, "b": {"c": None, "d": 27}}},
    ]
    with pytest.raises(InvalidArgumentError, match=r"Two values are assigned to 'st\.b\.c'"):
        table.update({"st.b": "NULL", "st.b.c": "'x'"})


@pytest.mark.requirements("DML-2", "DML-4")
def test_null_keys(lake: Connection) -> None:
    """NULL equals NULL by <=>, also in a partition column that stores the empty text as NULL, and nothing by =."""
    table = lake.create_table("main.s.t", "id INT, p STRING, v STRING", partition_by=["p"])
    table.append([{"id": None, "p": None, "v": "a"}, {"id": 5, "p": "x", "v": "b"}, {"id": None, "p": "x", "v": "c"}])
    source = pa.table(
        {"id": pa.array([None, 5, None, 6], pa.int32()), "p": ["", "x", "x", None], "v": ["A", "B", "C", "D"]}
    )
    merge = table.merge(source, "source.id <=> target.id AND target.p <=> source.p")
    result = merge.when_matched_update({"v": "source.v"}).when_not_matched_insert_all().execute()
    assert [result.metrics[f"numTargetRows{kind}"] for kind in ("Updated", "Inserted")] == ["3", "1"]
    rows = [(row["id"], row["p"], row["v"]) for row in table.to_arrow().to_pylist()]
    assert sorted(rows, key=repr) == [(5, "x", "B"), (6, None, "D"), (None, "x", "C"), (None, None, "A")]
    result = table.merge(source, "source.id = target.id AND target.p <=> source.p").when_matched_delete().execute()
    assert result.metrics["numTargetRowsDeleted"] == "2"


@pytest.mark.requirements("DML-2", "DML-4", "COLMAP-8")
def test_columns_of_the_source_are_stored_as_by_an_append(lake: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Structs under column mapping, and narrower decimals, named or with all columns; rows are taken in parts of bounded size."""
    monkeypatch.setattr(joined_rows, "_PART_BYTES", 40)
    monkeypatch.setattr(arrow_join, "_SEARCHED_BYTES", 1)
    properties = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}
    table = lake.create_table(
        "main.s.t", "id INT, st STRUCT<a: BIGINT>, d DECIMAL(10, 2), s STRING", properties=properties
    )
    kind = pa.schema(
        [("id", pa.int32()), ("st", pa.struct([("a", pa.int64())])), ("d", pa.decimal128(5, 1)), ("s", pa.string())]
    )
    rows = [{"id": i, "st": {"a": i}, "d": Decimal(i), "s": "x" * i} for i in range(12)]
    table.append(pa.Table.from_pylist(rows[:6], kind))
    new = [{**row, "st": {"a": 100}, "d": Decimal("7.5"), "s": row["s"] + "!"} for row in rows]
    source = pa.Table.from_pylist(new, kind)
    merge = table.merge(source, "target.id = source.id AND source.s <> target.s")
    merge.when_matched_update(
        {"st": "source.st", "d": "source.d", "s": "source.s"}
    ).when_not_matched_insert_all().execute()
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == new
    changes = table.changes(starting_version=2).to_arrow()["_change_type"].to_pylist()
    assert sorted(changes) == ["insert"] * 6 + ["update_postimage"] * 6 + ["update_preimage"] * 6
    table.merge(source, "id").when_matched_update_all().execute()
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == new


@pytest.mark.requirements("DML-2", "DML-4")
@pytest.mark.parametrize(
    ("condition", "merged"),
    [
        ("target.d = source.d", [0, 1, 2]),
        ("target.f <=> source.f", [0, 1, 2]),
        ("target.c = source.c", [1, 2]),
        ("target.c = source.c AND target.n = source.d", []),
        ("target.d = source.d AND target.n < source.d", [2]),
        ("target.d = source.d AND target.t LIKE '_#_%' ESCAPE '#'", [1]),
        ("target.d = source.d AND source.n > 7 AND target.t NOT LIKE 'a%'", [2]),
    ],
)
def test_keys_with_fractions_and_blanks_and_conditions_besides_keys(
    lake: Connection, condition: str, merged: list[int]
) -> None:
    """NaN equals NaN, -0.0 equals 0.0, and a text equals a ``char(n)`` without its blanks."""
    table = lake.create_table("main.s.t", "d DOUBLE, f FLOAT, c CHAR(3), n INT, t STRING")
    numbers, nan = [0.0, -0.0, float("nan"), 1.5], float("nan")
    kind = pa.schema({"d": pa.float64(), "f": pa.float32(), "c": pa.string(), "n": pa.int32(), "t": pa.string()})
    columns = {"d": numbers, "f": numbers, "c": ["a", "b ", "c", None], "n": range(4), "t": ["a", "a_", "b", "c"]}
    table.append(pa.table(columns, kind))
    source = pa.table({"d": [-0.0, nan], "f": [0.0, nan], "c": ["b", "c  "], "n": [7, 8], "t": ["x", "y"]}, kind)
    table.merge(source, condition).when_matched_update({"n": "source.n"}).execute()
    assert [row["n"] > 3 for row in sorted(table.to_arrow().to_pylist(), key=lambda row: row["t"])] == [
        number in merged for number in range(4)
    ]


@pytest.mark.parametrize(("kind", "values"), [("BOOLEAN", [True, False]), ("BINARY", [b"\xff", b"a"])])
def test_files_of_other_partitions_are_not_read(lake: Connection, tmp_path: Path, kind: str, values: list[Any]) -> None:
    """Also if the partition column is a boolean or binary one."""
    table = lake.create_table("main.s.t", f"id INT, p {kind}", partition_by=["p"])
    for number, value in enumerate(values):
        table.append(pa.table({"id": pa.array([1], pa.int32()), "p": [value]}))
        if not number:
            for path in (tmp_path / "warehouse").rglob("*.parquet"):
                path.unlink()
    source = pa.table({"id": pa.array([1], pa.int32()), "p": [values[1]]})
    result = table.merge(source, "target.id = source.id AND target.p = source.p").when_matched_delete().execute()
    assert result.metrics["numTargetRowsDeleted"] == "1"


_REFUSED_MERGES = (
    (
        "no column of the table with a column of the source by =",
        lambda table, rows: table.merge(rows, "target.id < source.id"),
    ),
    ("ILIKE", lambda table, rows: table.merge(rows, "target.id = source.id AND source.name ILIKE 'a'")),
    ("only Spark compares the column 'price'", lambda table, rows: table.merge(rows, "target.price = source.id")),
    (
        "names the column source.x",
        lambda table, rows: table.merge(rows, "target.id = source.id AND source.x = 1"),
    ),
)


@pytest.mark.parametrize(("message", "act"), _REFUSED_MERGES)
def test_merges_that_need_spark_or_are_wrong_are_refused(lake: Connection, message: str, act: Any) -> None:
    table = _table(lake)
    rows = pa.table({"id": [1], "name": ["a"], "price": [1.0]})
    with pytest.raises(InvalidArgumentError, match=message):
        act(table, rows).when_matched_delete().execute()
    with pytest.raises(InvalidArgumentError, match="only Spark evaluates the value upper"):
        table.merge(rows, "id").when_matched_update({"name": "upper(source.name)"}).execute()
    with pytest.raises(InvalidArgumentError, match="has no column 'x'"):
        table.merge(rows, "id").when_matched_update({"x": "1"}).execute()
    with pytest.raises(InvalidArgumentError, match=r"a builtins\.int was given"):
        table.merge(5, "id")
    assert (table.version(), len(_rows(table))) == (1, 6)


@pytest.mark.requirements("DML-2")
def test_columns_that_the_table_computes(lake: Connection) -> None:
    table = lake.create_table(
        "main.s.t",
        "id BIGINT, name STRING DEFAULT 'new', price DOUBLE, doubled DOUBLE GENERATED ALWAYS AS (price * 2.0), "
        "n BIGINT GENERATED ALWAYS AS IDENTITY",
        properties={"delta.feature.allowColumnDefaults": "supported"},
    )
    table.append(pa.table({"id": [1, 2], "price": [1.0, 2.0]}))
    table.update({"price": "10.25", "name": "'old'"}, "id = 1")
    table.update({"name": "DEFAULT"}, "id = 1")
    table.upsert(pa.table({"id": [2, 3], "price": [4.0, 6.0]}), on="id")
    rows = [(row["id"], row["name"], row["price"], row["doubled"]) for row in table.to_arrow().to_pylist()]
    assert sorted(rows) == [(1, "new", 10.25, 20.5), (2, "new", 4.0, 8.0), (3, "new", 6.0, 12.0)]
    assert len({row["n"] for row in table.to_arrow().to_pylist()}) == 3
    with pytest.raises(InvalidArgumentError, match="sets the identity column 'n'"):
        table.update({"n": "5"})


_REFUSED = (
    (
        "main.s.t.*needs Spark, because only Spark evaluates the value upper",
        lambda table: table.update({"name": "upper(name)"}),
    ),
    ("only Spark evaluates the condition upper", lambda table: table.delete("upper(name) = 'N1'")),
    ("has no column or alias 'x'", lambda table: table.update({"x.y": "1"})),
    ("has no column 'missing'", lambda table: table.update({"missing": "1"})),
    ("missing", lambda table: table.delete("missing = 1")),
    ("Two values are assigned to 'id'", lambda table: table.update({"id": "1", "ID": "2"})),
    ("The value of 'id' is 5 of type int", lambda table: table.update({"id": 5})),
    ("needs a condition", lambda table: table.delete(None)),
    ("only Spark evaluates the value 9223372036854775808", lambda table: table.update({"id": "9223372036854775808"})),
    ("Arrow was chosen", lambda table: table.delete("upper(name) = 'N1'", engine="arrow")),
    ("it was chosen, and no Spark session runs", lambda table: table.delete("id = 1", engine="spark")),
    ("is not in the table", lambda table: table.upsert(pa.table({"k": [1]}), on="k")),
)


@pytest.mark.parametrize(("message", "act"), _REFUSED)
def test_what_needs_spark_or_is_wrong_is_refused(lake: Connection, message: str, act: Any) -> None:
    table = _table(lake)
    with pytest.raises(InvalidArgumentError, match=message):
        act(table)
    assert (table.version(), len(_rows(table))) == (1, 6)


@pytest.mark.requirements("DML-2")
def test_a_failing_row_leaves_the_table_as_it_was(lake: Connection, tmp_path: Path) -> None:
    table = _table(lake, "id BIGINT NOT NULL, name STRING, price DOUBLE")
    files = sorted(path.name for path in (tmp_path / "warehouse").rglob("*.parquet"))
    acts: tuple[Any, ...] = (
        lambda: table.update({"id": "id + 9223372036854775807"}, "id > 2"),
        lambda: table.update({"price": "price / (id - 3)"}),
        lambda: table.update({"id": "NULL"}, "id = 2"),
        lambda: table.upsert(pa.table({"id": pa.array([None], pa.int64()), "price": [1.0]}), on="id"),
    )
    for act in acts:
        with pytest.raises(InvalidDataError, match=r"[Nn]othing was committed"):
            act()
    with pytest.raises(SchemaMismatchError):
        table.upsert(pa.table({"id": [1], "price": ["x"]}), on="id")
    assert (table.version(), len(_rows(table))) == (1, 6)
    assert sorted(path.name for path in (tmp_path / "warehouse").rglob("*.parquet")) == files


def test_names_that_are_not_there_or_not_clear_are_refused(lake: Connection) -> None:
    table = _table(lake)
    rows = pa.table({"id": [1], "name": ["a"], "key": [1]})
    for condition, message in (
        ("target.id = source.id AND source.x = 1", "names the column source.x, and the source has id, name, key"),
        ("target.id = source.id AND target.key > 1", "names the column target.key, and the table has id, name, price"),
        ("target.id = source.id AND name = 'a'", "names the column name, which table and source have"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            table.merge(rows, condition).when_matched_delete().execute()
    with pytest.raises(InvalidArgumentError, match="need Spark"):
        table.merge(rows, "id").when_not_matched_insert({"id": "target.id"}).execute()
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "ID"])
    with pytest.raises(SchemaMismatchError, match="names that differ only in case"):
        table.merge(twice, "id").when_matched_update({"name": "'x'"}).execute()
    assert (table.version(), len(_rows(table))) == (1, 6)


def test_a_batch_with_other_columns_than_its_stream(lake: Connection) -> None:
    table = lake.create_table("main.s.t", "id BIGINT, v BIGINT")
    stream = pa.schema([("id", pa.int64()), ("v", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1], "v": [2]})
        yield pa.record_batch({"a": [1]})

    for act in (table.append, lambda new: table.upsert(new, on="id"), lambda new: table.overwrite(new)):
        with pytest.raises(InvalidDataError, match="A batch of the stream of the rows has the columns a int64"):
            act(pa.RecordBatchReader.from_batches(stream, batches()))
    assert table.version() == 0


def test_null_in_a_nested_field_and_a_stream_that_fails(lake: Connection) -> None:
    table = lake.create_table("main.s.t", "id BIGINT, s STRUCT<a: INT NOT NULL>")
    kind = pa.struct([("a", pa.int32())])
    table.append(pa.table({"id": [1], "s": pa.array([{"a": 1}], kind)}))
    for key in (1, 10):
        with pytest.raises(InvalidDataError, match=rf"'s.a' is NOT NULL .* The row has id = {key}"):
            table.upsert(pa.table({"id": [key], "s": pa.array([{"a": None}], kind)}), on="id")

    rows = table.to_arrow().to_batches()[0]

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows
        raise KeyError("lost")

    for act in (table.append, lambda new: table.upsert(new, on="id"), lambda new: table.overwrite(new, keys="id")):
        with pytest.raises(InvalidDataError, match=r"The stream of the rows failed: 'lost'"):
            act(pa.RecordBatchReader.from_batches(rows.schema, failing()))
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": {"a": 1}}]


def test_a_zero_without_fraction_has_the_sign_that_spark_gives_it(lake: Connection) -> None:
    table = lake.create_table_as("main.s.t", pa.table({"d": [1.0]}))
    for text, value in (("coalesce(d - d, 1.0) * -0.0", "0.0"), ("CAST(-0.0 AS DOUBLE)", "0.0"), ("-0.0D", "-0.0")):
        table.update({"d": text})
        assert repr(table.to_arrow()["d"][0].as_py()) == value, text
    with pytest.raises(InvalidArgumentError, match="only Spark evaluates the value -0"):
        table.update({"d": "-0.0"})


def test_a_column_with_the_name_of_row_ids_is_left_to_spark(lake: Connection) -> None:
    table = lake.create_table("main.s.t", "`_ROW_ID` BIGINT, v INT")
    table.append([{"_ROW_ID": 1, "v": 1}])
    for act in (table.upsert, lambda rows, on: table.overwrite(rows, keys=on)):
        with pytest.raises(InvalidArgumentError, match="need Spark, because the table has a column named '_row_id'"):
            act([{"v": 1, "_ROW_ID": 7}], on="v")


@pytest.mark.requirements("CDF-2", "ROWTRK-13")
def test_ids_and_change_feed(lake: Connection) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"}
    table = _table(lake, properties={**properties, "delta.enableDeletionVectors": "false"})
    table.update({"name": "'u'"}, "id = 1")
    table.upsert(pa.table({"id": [2, 9], "name": ["m", "i"]}), on="id")
    table.delete("id = 3")
    table.overwrite(pa.table({"id": [5], "name": ["k"], "price": [5.5]}), keys="id")
    changes = table.changes(starting_version=2).to_arrow().to_pylist()
    kinds = sorted((row["_commit_version"], row["_change_type"], row["id"], row["name"]) for row in changes)
    assert kinds == [
        (2, "update_postimage", 1, "u"),
        (2, "update_preimage", 1, "n1"),
        (3, "insert", 9, "i"),
        (3, "update_postimage", 2, "m"),
        (3, "update_preimage", 2, "n2"),
        (4, "delete", 3, "n3"),
        (5, "delete", 5, "n5"),
        (5, "insert", 5, "k"),
    ]


def test_a_change_conflicts_with_a_change_of_the_same_rows(lake: Connection) -> None:
    table = _table(lake)
    with pytest.raises(CommitConflictError), lake.transaction() as transaction:
        transaction.table("main.s.t").update({"price": "0.5"}, "id = 1")
        table.delete("id = 1")
    assert [row[0] for row in _rows(table)] == [0, 2, 3, 4, 5]


@pytest.mark.requirements("OPT-1")
def test_small_files_are_joined(lake: Connection) -> None:
    table = _table(lake, partition_by=["name"])
    table.append(pa.table({"id": [10, 11], "name": ["n1", "n2"], "price": [1.0, None]}))
    table.delete("id = 1")
    lake.maintenance.set_policy("main", MaintenanceKind.DATA_REORGANIZATION)
    before = _rows(table)
    result = table.optimize()
    assert (result.num_removed_files, result.num_added_files) == (2, 1)
    assert _rows(table) == before
    info = table.history()[0].commit_info
    assert info is not None and info.operation == "OPTIMIZE"
