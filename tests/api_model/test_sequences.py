"""Sequences of calls in which several parts of the API meet; a sequence with which the model finds a fault is added here.

``python -m tests.api_model.reduce FILE`` makes the steps that a failure prints as few as possible.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.api_model.conditions import Compare, Condition
from tests.api_model.sequence import run_sequence
from tests.api_model.steps import (
    AddColumn,
    Adopt,
    Append,
    Assign,
    Begin,
    Clause,
    Clone,
    ColumnSpec,
    Commit,
    Create,
    CreateByPath,
    Decide,
    Delete,
    Drop,
    DropColumn,
    LogStep,
    Merge,
    MergeKeys,
    Optimize,
    Overwrite,
    PassTime,
    Read,
    Rename,
    RenameColumn,
    Restore,
    Rows,
    Rule,
    SetProperty,
    Step,
    Stream,
    Undrop,
    Update,
    Vacuum,
    WidenColumn,
)
from tests.api_model.values import Value, nan

_COLUMNS = (ColumnSpec("id", "bigint"), ColumnSpec("p", "string"))
_PROPERTIES = (
    ("delta.enableRowTracking", "true"),
    ("delta.enableChangeDataFeed", "true"),
    ("delta.columnMapping.mode", "name"),
    ("delta.enableTypeWidening", "true"),
)
_TABLE = Create("a", _COLUMNS, properties=_PROPERTIES)
_PARTITIONED = Create("a", _COLUMNS, partition_by=("p",), properties=_PROPERTIES)


def _rows(*values: tuple[Value, Value]) -> Rows:
    return Rows((("id", "bigint"), ("p", "string")), values)


def _id(value: int) -> Compare:
    return Compare("id", "=", value)


def _null_safe_merge(*values: tuple[Value, Value]) -> Merge:
    clauses = (Clause("matched", "update_all"), Clause("not_matched", "insert_all"))
    return Merge("a", _rows(*values), ("p",), clauses, null_safe=True)


def _numbers(*values: tuple[Value, Value]) -> Rows:
    return Rows((("id", "bigint"), ("c", "double")), values)


def _insert(condition: Condition, *values: tuple[Value, Value]) -> Merge:
    clauses = (
        Clause("not_matched", "insert_all", condition, on_source=True),
        Clause("not_matched_by_source", "delete"),
    )
    return Merge("a", _numbers(*values), ("id",), clauses)


_IDS = Rows((("id", "bigint"),), ((4,), (None,)))
_THREE = Append("a", _rows((1, "x"), (2, "y"), (3, None)))

SEQUENCES: dict[str, list[Step]] = {
    "vacuum after a transaction that waited": [
        _TABLE,
        _THREE,
        Begin((Delete("a", Compare("id", ">", 0)),)),
        PassTime(30),
        Commit(),
        Vacuum("a", 24),
    ],
    "approvals, conflicts and vacuum": [
        _TABLE,
        _THREE,
        Rule("a", "max_removed_rows", approval=True),
        Delete("a", _id(1)),
        Append("a", _rows((4, "w"))),
        PassTime(100),
        Decide(approve=True),
        PassTime(100),
        Vacuum("a"),
        Delete("a", _id(2)),
        Update("a", (Assign("p", "literal", "v"),), _id(2)),
        Decide(approve=True),
        Delete("a", _id(3)),
        Optimize("a"),
        PassTime(30),
        Vacuum("a", 0),
        Decide(approve=True),
    ],
    "clones of clones keep what they read": [
        _PARTITIONED,
        _THREE,
        Clone("a", "b"),
        Clone("b", "c"),
        Overwrite("a", _rows((7, "q"))),
        PassTime(200),
        Vacuum("a", 0),
        Delete("b", _id(1)),
        Drop("b"),
        PassTime(200),
        Vacuum("a", 0),
        Undrop("b"),
        Restore("b", 1),
        Optimize("c"),
        PassTime(30),
        Vacuum("c", 24),
        Vacuum("b", 24),
    ],
    "writers behind other commits": [
        _PARTITIONED,
        _THREE,
        Begin((Overwrite("a", _rows((1, "x")), replace_using=("id",)),)),
        Append("a", _rows((1, "zz"))),
        Commit(),
        Begin((MergeKeys("a", _rows((1, "x"), (8, "x")), ("id",), "delete_unmatched"),)),
        Append("a", _rows((10, "zz"))),
        Commit(),
        Begin((Overwrite("a", _rows((1, "x")), dynamic=True),)),
        Append("a", _rows((11, "y"))),
        Commit(),
        Begin((Update("a", (Assign("p", "literal", "y"),), _id(11)),)),
        Delete("a", _id(10)),
        Commit(),
        Begin((Delete("a", _id(11)),)),
        Restore("a", 1),
        Commit(),
    ],
    "a transaction over tables that are renamed and dropped": [
        _TABLE,
        _THREE,
        Create("b", _COLUMNS),
        Begin((Delete("a", _id(1)), Append("b", _rows((1, "b"))))),
        Rename("a", "c"),
        Commit(),
        Begin((Delete("c", _id(2)), Append("b", _rows((2, "b"))))),
        Drop("b"),
        Commit(),
        Undrop("b"),
    ],
    "row ids of a table that gets them later and is restored": [
        Create("a", _COLUMNS),
        _THREE,
        Delete("a", _id(1)),
        SetProperty("a", "delta.enableRowTracking", "true"),
        Update("a", (Assign("p", "literal", "u"),), _id(2)),
        Restore("a", 4),
        Append("a", _rows((4, "w"))),
        SetProperty("a", "delta.enableRowTracking", "true"),
        Update("a", (Assign("p", "literal", "v"),)),
        Optimize("a"),
        Restore("a", 2),
        Append("a", _rows((5, "k"))),
    ],
    "an adopted table is restored to versions before its adoption": [
        CreateByPath("b", _rows((1, "x"), (2, "y"))),
        Adopt("b", "b"),
        Restore("b", 1),
        Append("b", _rows((5, "z"))),
        Restore("b", 2),
        Delete("b", _id(1)),
        Restore("b", 1),
        Vacuum("b", 0),
        Clone("b", "c"),
        PassTime(200),
        Vacuum("b"),
        Optimize("c"),
    ],
    "the log is cleaned behind a stream": [
        _TABLE,
        _THREE,
        Delete("a", _id(1)),
        PassTime(800),
        Append("a", _rows((4, "w"))),
        LogStep("a", "checkpoint"),
        Stream("a"),
        PassTime(800),
        Append("a", _rows((5, "w"))),
        LogStep("a", "clean_log"),
        Stream("a"),
        Restore("a", 1),
        LogStep("a", "checkpoint"),
        PassTime(800),
        LogStep("a", "clean_log"),
        Vacuum("a"),
        Append("a", _rows((6, "w"))),
        LogStep("a", "compact_log"),
        Stream("a"),
    ],
    "columns are renamed and widened, and come back": [
        _TABLE,
        _THREE,
        AddColumn("a", "x.y", "int"),
        Append("a", Rows((("id", "bigint"), ("x.y", "int")), ((5, 7),))),
        WidenColumn("a", "x.y", "bigint"),
        Append("a", Rows((("id", "bigint"), ("x.y", "bigint")), ((6, 2**40),))),
        RenameColumn("a", "x.y", "z"),
        RenameColumn("a", "p", "x.y"),
        Restore("a", 5),
        Restore("a", 1),
        Update("a", (Assign("id", "plus", 1),)),
        Optimize("a", "reorg"),
    ],
    "a merge stores the empty text that it compares": [
        _PARTITIONED,
        Append("a", _rows((1, None), (2, "x"))),
        _null_safe_merge((5, None), (6, "")),
        _null_safe_merge((7, ""), (8, "y")),
        Merge("a", _rows((9, "")), ("p",), (Clause("matched", "delete"),), null_safe=True),
        Begin((_null_safe_merge((3, "")),)),
        Commit(),
    ],
    "a merge inserts the greatest number": [
        Create("a", (ColumnSpec("id", "bigint"), ColumnSpec("c", "double"))),
        Append("a", _numbers((1, 0.5), (2, nan))),
        _insert(Compare("c", "<=>", nan), (3, nan), (4, 0.5)),
        _insert(Compare("c", ">", 1.0), (5, nan), (6, 0.5)),
    ],
    "appends lack a partition column that was renamed": [
        _PARTITIONED,
        _THREE,
        RenameColumn("a", "p", "q"),
        Append("a", _IDS),
        Overwrite("a", _IDS),
        Begin((Append("a", _IDS),)),
        MergeKeys("a", _IDS, ("id",), "upsert"),
        Append("a", Rows((("id", "bigint"), ("q", "string")), ((5, "x"),))),
    ],
    "appends number rows of an identity column": [
        Create("a", (*_COLUMNS, ColumnSpec("w", "bigint", numbered=True))),
        Begin((Append("a", _rows((1, "x"))),)),
        Append("a", _rows((2, "y")), client=1),
        Commit(),
        Begin((Append("a", _rows((3, "z"))),)),
        Commit(),
        Begin((Delete("a", _id(2)),)),
        Append("a", _rows((4, "w")), client=1),
        Commit(),
    ],
    "a restore removes column mapping": [
        Create("a", _COLUMNS, properties=(("delta.enableChangeDataFeed", "true"),)),
        _THREE,
        Stream("a"),
        SetProperty("a", "delta.columnMapping.mode", "name"),
        Delete("a", _id(1)),
        Append("a", _rows((4, "w"))),
        Restore("a", 3),
        Append("a", _rows((5, "v"))),
        Stream("a"),
        Stream("a"),
        SetProperty("a", "delta.columnMapping.mode", "name"),
        Restore("a", 1),
        Delete("a", _id(2)),
    ],
    "a restore does not touch the rows of a transaction": [
        Create("a", _COLUMNS),
        _THREE,
        Begin((Delete("a", _id(1)),)),
        Append("a", _rows((5, "v"))),
        Delete("a", _id(5)),
        Restore("a", 1),
        Commit(),
    ],
    "a widened column is compared after its files were replaced": [
        Create(
            "a",
            (ColumnSpec("id", "bigint"), ColumnSpec("c", "int")),
            properties=(("delta.enableTypeWidening", "true"),),
        ),
        Append("a", Rows((("id", "bigint"), ("c", "int")), ((1, 5), (2, 6)))),
        Read("a", where=Compare("c", ">", 5), back=0),
        WidenColumn("a", "c", "bigint"),
        Read("a", where=Compare("c", ">", 5), back=0),
        Append("a", Rows((("id", "bigint"), ("c", "bigint")), ((3, 7),))),
        Read("a", where=Compare("c", ">", 5), back=0),
    ],
    "a restore brings back a column whose name another one has": [
        _TABLE,
        _THREE,
        DropColumn("a", "p"),
        AddColumn("a", "p", "string"),
        Append("a", _rows((4, "w"))),
        Restore("a", 3),
        Append("a", _rows((5, "v"))),
        Restore("a", 2),
    ],
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_does_what_the_model_says(name: str, utc_spark: SparkSession, tmp_path: Path) -> None:
    run_sequence(SEQUENCES[name], tmp_path, utc_spark)
