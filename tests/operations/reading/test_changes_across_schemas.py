"""Row changes of a range in which columns were renamed, added, widened or dropped: the rows have the newest schema."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.operations.reading.change_query import (
    ChangeRange,
    ChangeScan,
    find_changes_of_one_schema,
    open_changes,
)
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_change_batches, read_changes_arrow
from tests.support.foreign import ForeignTable, array, mapped, mapping, struct, with_id
from tests.support.foreign import field as plain

CHANGES = {"delta.enableChangeDataFeed": "true"}
MAPPED = {**CHANGES, "delta.columnMapping.mode": "name"}
BY_ID = {**CHANGES, "delta.columnMapping.mode": "id"}
FEATURES = ("columnMapping", "typeWidening", "timestampNtz")

Step = Callable[[ForeignTable], None]


def insert(values: Mapping[str, str] | None = None, **columns: Sequence[Any] | pa.Array) -> Step:
    """A commit that adds a file with these columns."""
    return lambda table: _add(table, pa.table({**columns}), values)


def _add(table: ForeignTable, content: pa.Table, values: Mapping[str, str] | None) -> None:
    table.add(f"{table.version + 1}.parquet", content, values=values)


def with_ids(*columns: tuple[int, pa.DataType, Any]) -> Step:
    """A commit that adds a file of one row, whose columns have these ids, and names that no column of the table has."""
    schema = pa.schema([with_id(f"file{number}", kind, number) for number, kind, _ in columns])
    content = pa.table([[value] for _, _, value in columns], schema=schema)
    return lambda table: _add(table, content, None)


def update(values: Mapping[str, str] | None = None, **columns: Sequence[Any] | pa.Array) -> Step:
    """A commit with a change file; its rows are the images before and after."""

    def step(table: ForeignTable) -> None:
        content = pa.table({**columns})
        kinds = ["update_preimage", "update_postimage"] * (content.num_rows // 2)
        target = table.root / f"change-{table.version + 1}.parquet"
        pq.write_table(content.append_column("_change_type", pa.array(kinds)), target)
        size = target.stat().st_size
        table.commit(
            {"cdc": {"path": target.name, "partitionValues": dict(values or {}), "size": size, "dataChange": False}}
        )

    return step


def remove(version: int, values: Mapping[str, str] | None = None) -> Step:
    """A commit that removes the file which a version has added."""
    action = {"path": f"{version}.parquet", "partitionValues": dict(values or {}), "extendedFileMetadata": True}
    return lambda table: table.commit({"remove": {**action, "size": 1, "dataChange": True, "deletionTimestamp": 1}})


def evolve(*fields: dict[str, Any], partitions: Sequence[str] | None = None, **properties: str) -> Step:
    """A commit with another schema."""

    def step(table: ForeignTable) -> None:
        table.properties.update(properties)
        table.partitions = table.partitions if partitions is None else list(partitions)
        table.evolve(*fields)

    return step


@dataclass(frozen=True)
class Case:
    """A table, and the rows of its changes from version 1 on, in the order of their versions."""

    begin: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...]
    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=lambda: MAPPED)

    def make(self, path: Path) -> ForeignTable:
        table = ForeignTable(
            path,
            *self.begin,
            partitions=self.partitions,
            features=FEATURES,
            writer_features=("changeDataFeed",),
            properties=self.properties,
        )
        for step in self.steps:
            step(table)
        return table


def ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


ID, A, B = mapped("id", "long", 1, "c1"), mapped("a", "string", 2, "c2"), mapped("b", "string", 3, "c3")


def named(item: dict[str, Any], name: str, kind: Any = None) -> dict[str, Any]:
    """The same column with another name, or another type."""
    return {**item, "name": name, "type": item["type"] if kind is None else kind}


def within(wrap: Callable[[dict[str, Any]], Any], *fields: dict[str, Any]) -> dict[str, Any]:
    return mapped("s", wrap(struct(*fields)), 9, "c9")


def alike(item: dict[str, Any]) -> dict[str, Any]:
    return item


N = mapped("n", "integer", 4, "c4")
D = mapped("d", "decimal(5,2)", 5, "c5")
DAY = mapped("day", "date", 6, "c6")

CASES: dict[str, Case] = {
    "a renamed column": Case(
        (ID, A),
        (
            insert(c1=[1], c2=["x"]),
            update(c1=[1, 1], c2=["x", "y"]),
            evolve(ID, named(A, "z")),
            insert(c1=[2], c2=["w"]),
            remove(1),
        ),
        ("id", "z"),
        (
            (1, "x", "insert", 1),
            (1, "x", "update_preimage", 2),
            (1, "y", "update_postimage", 2),
            (2, "w", "insert", 4),
            (1, "x", "delete", 5),
        ),
    ),
    "a column renamed twice, found by id": Case(
        (ID, A),
        (
            with_ids((1, pa.int64(), 1), (2, pa.string(), "x")),
            evolve(ID, named(A, "y")),
            evolve(ID, named(A, "z")),
        ),
        ("id", "z"),
        ((1, "x", "insert", 1),),
        properties=BY_ID,
    ),
    "two columns that swap their names": Case(
        (ID, A, B),
        (insert(c1=[1], c2=["in a"], c3=["in b"]), evolve(ID, named(A, "b"), named(B, "a"))),
        ("id", "b", "a"),
        ((1, "in a", "in b", "insert", 1),),
    ),
    "a column that gets the name of a dropped one": Case(
        (ID, A, B),
        (insert(c1=[1], c2=["in a"], c3=["in b"]), evolve(ID, B), evolve(ID, named(B, "a"))),
        ("id", "a"),
        ((1, "in b", "insert", 1),),
    ),
    "a new column with the former name of another": Case(
        (ID, A),
        (insert(c1=[1], c2=["x"]), evolve(ID, named(A, "z")), evolve(ID, named(A, "z"), named(B, "a"))),
        ("id", "z", "a"),
        ((1, "x", None, "insert", 1),),
    ),
    "a renamed field of a struct": Case(
        (ID, within(alike, A, B)),
        (
            insert(c1=[1], c9=[{"c2": "x", "c3": "y"}]),
            evolve(ID, within(alike, named(A, "z"), B)),
            insert(c1=[2], c9=[{"c2": "v", "c3": "w"}]),
        ),
        ("id", "s"),
        ((1, {"z": "x", "b": "y"}, "insert", 1), (2, {"z": "v", "b": "w"}, "insert", 3)),
    ),
    "fields of structs in an array": Case(
        (ID, within(array, A, B)),
        (insert(c1=[1], c9=[[{"c2": "x", "c3": "y"}]]), evolve(ID, within(array, named(B, "a"), named(A, "b")))),
        ("id", "s"),
        ((1, [{"a": "y", "b": "x"}], "insert", 1),),
    ),
    "fields of structs in a map, one of them widened and one new": Case(
        (ID, within(lambda kind: mapping("string", kind), A, N)),
        (
            lambda table: _add(
                table,
                pa.table(
                    {
                        "c1": [1],
                        "c9": pa.array(
                            [[("k", {"c2": "x", "c4": 7})]],
                            pa.map_(pa.string(), pa.struct([("c2", pa.string()), ("c4", pa.int32())])),
                        ),
                    }
                ),
                None,
            ),
            evolve(ID, within(lambda kind: mapping("string", kind), named(A, "z"), named(N, "n", "long"), B)),
        ),
        ("id", "s"),
        ((1, [("k", {"z": "x", "n": 7, "b": None})], "insert", 1),),
    ),
    "widened columns": Case(
        (ID, N, D, DAY),
        (
            insert(
                c1=[1],
                c4=ints(7),
                c5=pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
                c6=pa.array([dt.date(2024, 5, 1)]),
            ),
            evolve(ID, named(N, "n", "long"), named(D, "d", "decimal(10,4)"), named(DAY, "day", "timestamp_ntz")),
            insert(c1=[2], c4=[2**40]),
        ),
        ("id", "n", "d", "day"),
        (
            (1, 7, Decimal("1.2500"), dt.datetime(2024, 5, 1), "insert", 1),
            (2, 2**40, None, None, "insert", 3),
        ),
    ),
    "an integer that became a double, and one that became a decimal": Case(
        (ID, N, named(mapped("m", "integer", 7, "c7"), "m")),
        (
            insert(c1=[1], c4=ints(7), c7=ints(8)),
            evolve(ID, named(N, "n", "double"), mapped("m", "decimal(20,2)", 7, "c7")),
            update(c1=[1, 1], c4=[7.0, 7.5], c7=pa.array([Decimal(8), Decimal("8.5")], pa.decimal128(20, 2))),
        ),
        ("id", "n", "m"),
        (
            (1, 7.0, Decimal("8.00"), "insert", 1),
            (1, 7.0, Decimal("8.00"), "update_preimage", 3),
            (1, 7.5, Decimal("8.50"), "update_postimage", 3),
        ),
    ),
    "a widened column without column mapping": Case(
        (plain("id", "long"), plain("n", "integer")),
        (
            insert(id=[1], n=ints(7)),
            evolve(plain("id", "long"), plain("n", "long")),
            update(id=[1, 1], n=[7, 2**40]),
            evolve(plain("id", "long"), plain("n", "long"), plain("more", "string")),
        ),
        ("id", "n", "more"),
        (
            (1, 7, None, "insert", 1),
            (1, 7, None, "update_preimage", 3),
            (1, 2**40, None, "update_postimage", 3),
        ),
        properties=CHANGES,
    ),
    "column mapping enabled, and a rename": Case(
        (plain("id", "long"), plain("a", "string")),
        (
            insert(id=[1], a=["x"]),
            evolve(
                mapped("id", "long", 1, "id"), mapped("a", "string", 2, "a"), **{"delta.columnMapping.mode": "name"}
            ),
            insert(id=[2], a=["y"]),
            evolve(mapped("id", "long", 1, "id"), mapped("z", "string", 2, "a"), named(B, "a")),
            insert(id=[3], a=["v"], c3=["w"]),
            remove(1),
        ),
        ("id", "z", "a"),
        (
            (1, "x", None, "insert", 1),
            (2, "y", None, "insert", 3),
            (3, "v", "w", "insert", 5),
            (1, "x", None, "delete", 6),
        ),
        properties=CHANGES,
    ),
    "a renamed and widened partition column": Case(
        (ID, N, A),
        (
            insert({"c4": "7"}, c1=[1], c2=["x"]),
            update({"c4": "7"}, c1=[1, 1], c2=["x", "y"]),
            evolve(ID, named(N, "part", "long"), A, partitions=["part"]),
            insert({"c4": "1099511627776"}, c1=[2], c2=["z"]),
            remove(1, {"c4": "7"}),
        ),
        ("id", "part", "a"),
        (
            (1, 7, "x", "insert", 1),
            (1, 7, "x", "update_preimage", 2),
            (1, 7, "y", "update_postimage", 2),
            (2, 2**40, "z", "insert", 4),
            (1, 7, "x", "delete", 5),
        ),
        partitions=("n",),
    ),
    "a dropped column": Case(
        (ID, A, B),
        (insert(c1=[1], c2=["x"], c3=["y"]), evolve(ID, B), insert(c1=[2], c3=["z"])),
        ("id", "b"),
        ((1, "y", "insert", 1), (2, "z", "insert", 3)),
    ),
    "several changes in one range": Case(
        (ID, A, N),
        (
            insert(c1=[1], c2=["x"], c4=ints(1)),
            evolve(ID, named(A, "z"), N),
            insert(c1=[2], c2=["y"], c4=ints(2)),
            evolve(ID, named(A, "z"), named(N, "n", "long"), B),
            insert(c1=[3], c2=["v"], c4=[3], c3=["w"]),
            evolve(named(A, "n"), named(N, "z", "long"), ID, B),
            remove(1),
        ),
        ("n", "z", "id", "b"),
        (
            ("x", 1, 1, None, "insert", 1),
            ("y", 2, 2, None, "insert", 3),
            ("v", 3, 3, "w", "insert", 5),
            ("x", 1, 1, None, "delete", 7),
        ),
    ),
}


def tuples(changes: pa.Table) -> list[tuple[Any, ...]]:
    """The rows without the time of their commit, by version."""
    assert changes.schema.names[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    rows = [tuple(row.values())[:-1] for row in changes.to_pylist()]
    return sorted(rows, key=lambda row: (row[-1], row[-2] == "update_postimage"))


@pytest.mark.requirements("CDF-6", "COLMAP-15")
@pytest.mark.parametrize("name", CASES)
def test_rows_before_a_change_of_the_schema_are_mapped_to_the_newest_one(tmp_path: Path, name: str) -> None:
    """Column mapping identifies each column."""
    case = CASES[name]
    changes = read_changes_arrow(open_changes(case.make(tmp_path / "t").open(), ChangeRange(starting_version=1)))
    assert tuple(changes.schema.names[:-3]) == case.names
    assert tuples(changes) == list(case.rows)


QUICK = ("a renamed and widened partition column", "fields of structs in a map, one of them widened and one new")


@pytest.mark.requirements("CDF-6", "COLMAP-15")
@pytest.mark.parametrize("names", [QUICK, pytest.param(tuple(CASES), marks=pytest.mark.slow)], ids=["few", "all"])
def test_spark_maps_the_rows_as_arrow_does(tmp_path: Path, spark: SparkSession, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        table = CASES[name].make(tmp_path / str(number)).open()
        frame = read_changes(open_changes(table, ChangeRange(starting_version=1)), spark=spark)
        found = frame.toArrow()
        assert tuple(found.schema.names[:-3]) == CASES[name].names, name
        assert tuples(found) == list(CASES[name].rows), name


# --- what cannot be mapped --------------------------------------------------------------------------------------------


def replace_all(*fields: dict[str, Any], removes: int, unmapped: bool = False, **columns: Any) -> Step:
    """A commit that replaces schema and rows, as an overwrite with another schema does; ``unmapped`` as a restore does."""

    def step(table: ForeignTable) -> None:
        table.schema = struct(*fields)
        table.properties.update({"delta.columnMapping.mode": "none"} if unmapped else {})
        target = table.root / f"{table.version + 1}.parquet"
        pq.write_table(pa.table({**columns}), target)
        common = {"partitionValues": {}, "dataChange": True}
        removed = {
            **common,
            "path": f"{removes}.parquet",
            "deletionTimestamp": 1,
            "extendedFileMetadata": True,
            "size": 1,
        }
        added = {**common, "path": target.name, "size": target.stat().st_size, "modificationTime": 0}
        table.commit(table.metadata(), {"remove": removed}, {"add": added})

    return step


PLAIN = (plain("id", "long"), plain("a", "integer"))
ADDED_AGAIN = Case(
    (ID, A),
    (insert(c1=[1], c2=["x"]), evolve(ID), evolve(ID, named(B, "a")), insert(c1=[2], c3=["y"])),
    ("id", "a"),
    (),
)
RETYPED = Case(
    PLAIN,
    (
        insert(id=[1], a=ints(5)),
        replace_all(plain("id", "long"), plain("a", "string"), removes=1, id=[2], a=["x"]),
        insert(id=[3], a=["y"]),
    ),
    ("id", "a"),
    (),
    properties=CHANGES,
)
REPLACED = Case(
    (ID, A),
    (
        insert(c1=[1], c2=["x"]),
        replace_all(ID, named(B, "a"), removes=1, c1=[2], c3=["y"]),
        insert(c1=[3], c3=["z"]),
    ),
    ("id", "a"),
    (),
)
REPLACED_AND_UNMAPPED = Case(
    (ID, A),
    (
        insert(c1=[1], c2=["x"]),
        replace_all(plain("id", "long"), plain("a", "string"), removes=1, unmapped=True, id=[2], a=["y"]),
        insert(id=[3], a=["z"]),
    ),
    ("id", "a"),
    (),
)
DROPPED_UNMAPPED = Case(
    PLAIN,
    (insert(id=[1], a=ints(5)), replace_all(plain("id", "long"), removes=1, id=[2])),
    ("id",),
    (),
    properties=CHANGES,
)
NARROWED_LATER = Case(
    PLAIN,
    (
        insert(id=[1], a=ints(5)),
        replace_all(plain("id", "long"), removes=1, id=[2]),
        evolve(plain("id", "long"), plain("a", "string")),
        insert(id=[3], a=["y"]),
    ),
    ("id", "a"),
    (),
    properties=CHANGES,
)


MAPPING_REMOVED = Case(
    (mapped("id", "long", 1, "id"), mapped("a", "string", 2, "a")),
    (
        insert(id=[1], a=["x"]),
        evolve(plain("id", "long"), plain("a", "string"), **{"delta.columnMapping.mode": "none"}),
        insert(id=[2], a=["y"]),
        remove(1),
    ),
    ("id", "a"),
    (),
)


@pytest.mark.requirements("CDF-6")
@pytest.mark.parametrize(
    ("case", "reason", "pieces"),
    [
        (MAPPING_REMOVED, "the column mapping mode changed from name to none", [(1, 2), (2, None)]),
        (ADDED_AGAIN, "'a' was dropped, and another column of that name was added", [(1, 2), (2, None)]),
        (DROPPED_UNMAPPED, "'a' is missing", [(1, 2), (2, None)]),
        (NARROWED_LATER, "'a' is missing", [(1, 2), (2, 3), (3, None)]),
    ],
)
def test_a_range_ends_where_a_schema_cannot_represent_the_rows_before_it(
    tmp_path: Path, case: Case, reason: str, pieces: list[tuple[int, int | None]]
) -> None:
    """Read piece by piece, each with its own schema, no change is missed or repeated."""
    table = case.make(tmp_path / "t").open()
    with pytest.raises(SchemaMismatchError, match=f"before version 2 .*{reason}.*and those from it on, separately"):
        read_changes_arrow(open_changes(table, ChangeRange(starting_version=1)))
    read = []
    for start, end in pieces:
        changes = find_changes_of_one_schema(table, ChangeRange(starting_version=start))
        assert (None if changes.stopped_before is None else changes.stopped_before.version) == end
        read += read_change_batches(ChangeScan(table=table, changes=changes)).read_all().to_pylist()
        if end is not None:
            whole = read_changes_arrow(open_changes(table, ChangeRange(starting_version=start, ending_version=end - 1)))
            assert (
                whole.to_pylist()
                == read_change_batches(ChangeScan(table=table, changes=changes)).read_all().to_pylist()
            )
    ids = [(row["id"], row["_change_type"]) for row in read]
    assert [number for number, kind in ids if kind == "insert"] == sorted({number for number, _ in ids})
    assert sum(kind == "delete" for _, kind in ids) == (case is not ADDED_AGAIN)


@pytest.mark.requirements("CDF-6")
@pytest.mark.parametrize(
    ("case", "before", "reason", "after"),
    [
        (RETYPED, 5, "the type of 'a' changed", "y"),
        (REPLACED, "x", "'a' was dropped, and another column of that name was added", "z"),
        (REPLACED_AND_UNMAPPED, "x", "'id' was dropped, and another column of that name was added", "z"),
    ],
)
def test_deleted_rows_that_the_schema_of_their_commit_cannot_represent_are_refused(
    tmp_path: Path, case: Case, before: object, reason: str, after: str
) -> None:
    """The versions before and after that commit can be read."""
    table = case.make(tmp_path / "t").open()
    first = read_changes_arrow(open_changes(table, ChangeRange(starting_version=1, ending_version=1)))
    assert first["a"].to_pylist() == [before]
    changes = find_changes_of_one_schema(table, ChangeRange(starting_version=1))
    assert changes.stopped_before is not None and changes.stopped_before.version == 2
    with pytest.raises(SchemaMismatchError, match=rf"version 2 of .*{reason}.*changes from version 3 on"):
        read_changes_arrow(open_changes(table, ChangeRange(starting_version=2)))
    assert read_changes_arrow(open_changes(table, ChangeRange(starting_version=3)))["a"].to_pylist() == [after]
