"""Defaults, generated columns and identity columns: what writes store for columns that they do not give."""

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CommitConflictError,
    InvalidArgumentError,
    InvalidDataError,
    SchemaMismatchError,
)
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import EnableFeature
from cm_delta_dagster.operations.tables.computed_columns import set_default, sync_identity
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.features.identity_columns import HIGH_WATER_MARK, Identity
from tests.support.builders import rows_of
from tests.support.creation import create_table

_numbers = itertools.count()
MAX_LONG = 2**63 - 1


@pytest.fixture
def make(client: DeltaClient) -> Callable[..., Table]:
    def made(*columns: Column, partition_by: tuple[str, ...] = ()) -> Table:
        name = f"main.computed.t{next(_numbers)}"
        return create_table(client, identifier=name, schema=schema_of_columns(columns), partition_columns=partition_by)

    return made


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    return lambda columns, *values: spark.createDataFrame(list(values), columns).coalesce(1)


def stored(table: Table, spark: SparkSession, *columns: str) -> list[tuple[Any, ...]]:
    return rows_of(read(open_scan(table, columns=columns or None), spark=spark))


def high_water_mark(table: Table, column: str) -> int | None:
    item = table.snapshot().schema.field(column)
    assert item is not None
    return item.metadata.get(HIGH_WATER_MARK)


@pytest.mark.requirements("DEF-1", "DEF-2", "DEF-3", "DEF-5")
def test_missing_columns_get_their_defaults(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """An explicit NULL stays NULL; a new default changes later writes only."""
    table = make(
        Column("id", "bigint"),
        Column("s", "string", default="'new'"),
        Column("n", "int", default="1 + 1"),
        Column("d", "date", default="DATE'2020-02-02'", nullable=False),
        Column("x", "string"),
    )
    assert "allowColumnDefaults" in (table.snapshot().protocol.writer_features or ())
    append(table, frame=rows("id long", (1,)))
    append(table, frame=rows("id long, s string, n int", (2, None, 7)))
    day = dt.date(2020, 2, 2)
    assert stored(table, spark) == [(1, "new", 2, day, None), (2, None, 7, day, None)]
    assert len(set_default(table, spark=spark, column="N", default="99").versions) == 1
    assert set_default(table, spark=spark, column="n", default="99").versions == ()
    merge(table, frame=rows("id long, x string", (2, "b"), (3, "c")), keys=("id",))
    assert stored(table, spark) == [
        (1, "new", 2, day, None), (2, None, 7, day, "b"), (3, "new", 99, day, "c"),
    ]  # fmt: skip
    set_default(table, spark=spark, column="n", default=None)
    append(table, frame=rows("id long", (4,)))
    assert stored(table, spark, "id", "n")[-1] == (4, None)
    with pytest.raises(InvalidDataError, match="'d' is NOT NULL"):
        append(table, frame=rows("id long, d date", (5, None)))
    with pytest.raises(InvalidArgumentError, match="cannot be stored as int"):
        set_default(table, spark=spark, column="n", default="'text'")
    with pytest.raises(InvalidArgumentError, match="depend on columns"):
        set_default(table, spark=spark, column="n", default="id + 1")
    for default, value in (("5000000000", "5000000000"), ("CAST('x' AS INT)", "'x'")):
        with pytest.raises(InvalidDataError, match=f"evaluating the default.*{value}|cannot be stored as int.*{value}"):
            set_default(table, spark=spark, column="n", default=default)
    assert len(set_default(table, spark=spark, column="n", default="7L").versions) == 1


@pytest.mark.requirements("DEF-1")
def test_a_default_needs_its_feature_first(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """As with delta-spark; nothing is changed, and no default need be dropped."""
    table = make(Column("id", "bigint"), Column("s", "string"))
    before = table.snapshot()
    with pytest.raises(
        InvalidArgumentError, match=r"feature allowColumnDefaults.*enable_feature\('allowColumnDefaults'\)"
    ):
        set_default(table, spark=spark, column="s", default="'new'")
    assert set_default(table, spark=spark, column="s", default=None).versions == ()
    assert table.snapshot().version == before.version
    alter_table(table, EnableFeature(feature="allowColumnDefaults"))
    set_default(table, spark=spark, column="s", default="'new'")
    append(table, frame=rows("id long", (1,)))
    assert stored(table, spark) == [(1, "new")]


@pytest.mark.requirements("GEN-1", "GEN-2", "GEN-3")
def test_generated_columns_are_computed_or_checked(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """NULL equals NULL; a generated column can be the partition column and refer to a default."""
    table = make(
        Column("id", "int", default="5"),
        Column("name", "string"),
        Column("up", "string", generated="upper(name)"),
        Column("twice", "bigint", generated="CAST(id * 2 AS BIGINT)"),
        partition_by=("up",),
    )
    append(table, frame=rows("name string", ("a",), (None,)))
    append(table, frame=rows("id int, name string, up string", (1, "b", "B"), (2, None, None)))
    expected = [(1, "b", "B", 2), (2, None, None, 4), (5, None, None, 10), (5, "a", "A", 10)]
    assert stored(table, spark) == expected
    version = table.snapshot().version
    with pytest.raises(InvalidDataError, match=r"'up'.*upper\(name\).*up = X, name = b"):
        append(table, frame=rows("id int, name string, up string", (1, "b", "X")))
    with pytest.raises(InvalidDataError, match="'up'"):
        overwrite(table, frame=rows("id int, name string, up string", (1, None, "X")))
    with pytest.raises(SchemaMismatchError, match="lack column 'name'"):
        append(table, frame=rows("id int", (1,)))
    assert table.snapshot().version == version
    merge(table, frame=rows("id int, name string", (1, "z"), (9, "n")), keys=("id",))
    assert [row for row in stored(table, spark) if row[0] in (1, 9)] == [(1, "z", "Z", 2), (9, "n", "N", 18)]


@pytest.mark.requirements("GEN-2", "GEN-3")
def test_generated_columns_see_the_values_that_will_be_read(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """``char`` values are filled with blanks first, and partition columns store the empty text as NULL."""
    table = make(
        Column("id", "int"),
        Column("code", "char(3)", default="'x'"),
        Column("length", "int", generated="length(code)"),
        Column("p", "string"),
        Column("none", "boolean", generated="p IS NULL"),
        Column("first", "string", generated="substring(p, 2, 1)"),
        partition_by=("p", "first"),
    )
    append(table, frame=rows("id int, code string, p string", (1, "a", ""), (2, None, "b"), (3, "abc", "cd")))
    append(table, frame=rows("id int, p string", (4, None)))
    merge(table, frame=rows("id int, code string, p string", (2, "é", "ef"), (5, "", "")), keys=("id",))
    expected = [
        (1, "a  ", 3, None, True, None),
        (2, "é  ", 3, "ef", False, "f"),
        (3, "abc", 3, "cd", False, "d"),
        (4, "x  ", 3, None, True, None),
        (5, "   ", 3, None, True, None),
    ]
    assert sorted(stored(table, spark)) == expected
    other = make(
        Column("s", "string"), Column("first", "string", generated="substring(s, 1, 1)"), partition_by=("first",)
    )
    append(other, frame=rows("s string", ("",), ("b",), (None,)))
    assert read(open_scan(other, where="s = ''"), spark=spark).count() == 1
    delete(other, spark=spark, where="s <= 'a'")
    assert stored(other, spark, "s") == [(None,), ("b",)]
    version = table.snapshot().version
    with pytest.raises(InvalidDataError, match="'first'"):
        append(table, frame=rows("id int, p string, first string", (6, "ab", "")))
    append(table, frame=rows("id int, p string, first string", (6, "a", "")))
    assert table.snapshot().version == version + 1


@pytest.mark.requirements("DEF-2")
def test_a_default_that_does_not_fit_its_column_fails_the_write(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """Also in a session without ANSI mode, in which a cast would store another number."""
    table = make(Column("id", "int"), Column("n", "int", default="length('abc') * 2000000000L"))
    mode = spark.conf.get("spark.sql.ansi.enabled")
    for enabled in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", enabled)
        try:
            with pytest.raises(InvalidDataError, match="6000000000"):
                append(table, frame=rows("id int", (1,)))
        finally:
            spark.conf.set("spark.sql.ansi.enabled", str(mode))
    append(table, frame=rows("id int, n int", (1, 2)))
    assert stored(table, spark) == [(1, 2)]


@pytest.mark.requirements("IDENT-1", "IDENT-2", "IDENT-3", "IDENT-4", "IDENT-5", "IDENT-6")
def test_identity_values_continue_after_the_high_water_mark(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """In several partitions and tasks, with a negative step, by append, overwrite and merge."""
    table = make(
        Column("key", "bigint", identity=Identity(start=10, step=-3)),
        Column("v", "int"),
        Column("next", "bigint", generated="key + 1"),
    )
    append(table, frame=rows("v int", (1,), (2,)))
    assert stored(table, spark) == [(7, 2, 8), (10, 1, 11)]
    assert high_water_mark(table, "key") == 7
    append(table, frame=spark.range(20).selectExpr("cast(id as int) v").repartition(3))
    keys = [key for key, _, _ in stored(table, spark)]
    assert len(set(keys)) == 22 and all((10 - key) % 3 == 0 and key <= 10 for key in keys)
    assert high_water_mark(table, "key") == min(keys)
    merge(table, frame=rows("v int", (1,), (100,)), keys=("v",), mode=MergeMode.INSERT_ONLY)
    new = stored(table, spark)[0]
    assert new[1] == 100 and new[0] < min(keys)
    with pytest.raises(InvalidArgumentError, match="always generated"):
        append(table, frame=rows("key long, v int", (1, 1)))
    overwrite(table, frame=rows("v int", (1,)), where="v = 1")
    ((key, _, _),) = [row for row in stored(table, spark) if row[1] == 1]
    assert key < new[0] and high_water_mark(table, "key") == key


@pytest.mark.requirements("GEN-3", "IDENT-6", "OPT-1")
def test_rows_that_move_keep_their_values(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession, client: DeltaClient
) -> None:
    """DELETE and OPTIMIZE copy rows, also rows that would violate a rule today."""
    table = make(Column("key", "bigint", identity=Identity()), Column("v", "int"), Column("d", "string", default="'x'"))
    append(table, frame=rows("v int", (1,), (2,), (3,)))
    append(table, frame=rows("v int, d string", (4, None)))
    before = stored(table, spark)
    delete(table, spark=spark, where="v = 2")
    client.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    )
    optimize(table, spark=spark)
    assert stored(table, spark) == [row for row in before if row[1] != 2]
    assert high_water_mark(table, "key") == 4


@pytest.mark.requirements("IDENT-3", "IDENT-8")
def test_values_of_the_writer_do_not_move_the_high_water_mark(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """GENERATED BY DEFAULT; synchronizing finds the values."""
    table = make(Column("key", "bigint", identity=Identity(start=1, step=10, always=False)), Column("v", "int"))
    append(table, frame=rows("key long, v int", (57, 1)))
    assert high_water_mark(table, "key") is None
    append(table, frame=rows("v int", (2,)))
    assert (stored(table, spark), high_water_mark(table, "key")) == ([(1, 2), (57, 1)], 1)
    sync_identity(table, spark=spark, column="KEY")
    assert high_water_mark(table, "key") == 51
    version = table.snapshot().version
    assert sync_identity(table, spark=spark, column="key").versions == ()
    append(table, frame=rows("v int", (3,)))
    assert stored(table, spark)[-1] == (61, 3) and table.snapshot().version == version + 1
    with pytest.raises(InvalidArgumentError, match="no identity column 'v'"):
        sync_identity(table, spark=spark, column="v")
    with pytest.raises(InvalidArgumentError, match="would update it"):
        merge(table, frame=rows("key long, v int", (99, 3)), keys=("v",))


@pytest.mark.requirements("IDENT-7")
def test_an_overflow_of_identity_values_fails_the_write(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    table = make(Column("key", "bigint", identity=Identity(start=MAX_LONG - 1)), Column("v", "int"))
    with pytest.raises(InvalidDataError, match="64-bit"):
        append(table, frame=rows("v int", (1,), (2,), (3,)))
    append(table, frame=rows("v int", (1,), (2,)))
    assert [key for key, _ in stored(table, spark)] == [MAX_LONG - 1, MAX_LONG]
    with pytest.raises(InvalidDataError, match="64-bit"):
        append(table, frame=rows("v int", (3,)))


@pytest.mark.requirements("IDENT-6")
def test_concurrent_writers_never_use_an_identity_value_twice(
    make: Callable[..., Table], rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    """The loser of an append numbers its rows again; the loser of an overwrite reports the conflict."""
    table = make(Column("key", "bigint", identity=Identity()), Column("v", "int"))
    append(_Interleaved(table, lambda: append(table, frame=rows("v int", (1,)))), frame=rows("v int", (2,)))  # type: ignore[arg-type]
    assert stored(table, spark) == [(1, 1), (2, 2)]
    with pytest.raises(CommitConflictError):
        overwrite(
            _Interleaved(table, lambda: append(table, frame=rows("v int", (3,)))),  # type: ignore[arg-type]
            frame=rows("v int", (4,)),
        )
    assert stored(table, spark) == [(1, 1), (2, 2), (3, 3)]


class _Interleaved:
    """A table handle that calls a function between the snapshot of a write and its commit."""

    def __init__(self, table: Table, meanwhile: Callable[[], object]) -> None:
        self._table, self._meanwhile = table, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def snapshot(self, **arguments: Any) -> Any:
        found = self._table.snapshot(**arguments)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return found


@pytest.mark.requirements("GEN-4", "IDENT-1", "DEF-1")
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("g", "int", generated="rand()"), "rand"),
        (Column("g", "int", generated="sum(id)"), "several rows"),
        (Column("g", "int", generated="(SELECT 1)"), "query"),
        (Column("g", "int", generated="my_function(id)"), "my_function"),
        (Column("g", "int", generated="h + 1"), "generated itself"),
        (Column("g", "int", generated="id", default="1"), "also has a default"),
        (Column("g", "int", generated="size(filter(array(id), x -> x > 1))"), "lambda function"),
        (Column("g", "array<int>", generated="array_sort(array(id))"), "lambda function"),
        (Column("g", "string", generated="current_user()"), "differs between sessions"),
        (Column("g", "struct<a: variant>", generated="named_struct('a', parse_json('1'))"), "has the type variant"),
        (Column("g", "string", default="uuid()"), r"calls uuid\(\), so it is not a constant"),
        (Column("g", "array<int>", default="transform(array(1), x -> x + 1)"), "has a lambda function"),
        (Column("g", "int", identity=Identity()), "bigint"),
        (Column("g", "bigint", default="id"), "depend on columns"),
        (Column("g", "nothing"), "not the type"),
    ],
)
def test_columns_that_cannot_be_computed_are_refused(make: Callable[..., Table], column: Column, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make(Column("id", "int"), Column("h", "int", generated="id"), column)
    with pytest.raises(InvalidArgumentError, match="step 0"):
        make(Column("id", "bigint", identity=Identity(step=0)))
    with pytest.raises(InvalidArgumentError, match="partition column"):
        make(Column("id", "bigint", identity=Identity()), Column("v", "int"), partition_by=("id",))
