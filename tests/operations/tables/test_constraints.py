"""CHECK constraints and invariants: adding, dropping, and what writes do with them."""

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError, CorruptLogError, InvalidArgumentError, InvalidDataError
from cm_delta_dagster.operations.tables.constraints import add_constraint, drop_constraint
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.features.constraints import INVARIANTS
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType, schema_to_json
from tests.support.builders import TableBuilder


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    return lambda columns, *partitions: TableBuilder(client, spark, columns, partition_by=partitions)


def with_invariant(table: Table, column: str, text: str) -> None:
    """Give a column an invariant, as old writers did."""
    snapshot = table.snapshot()
    fields = [
        replace(item, metadata={INVARIANTS: text}) if item.name == column else item for item in snapshot.schema.fields
    ]
    transaction = table.start_transaction(snapshot, operation="TEST")
    schema = schema_to_json(StructType(tuple(fields)))
    transaction.set_metadata(replace(snapshot.metadata, schema_string=schema))
    transaction.commit()


@pytest.mark.requirements("CHK-1", "CHK-2", "CHK-4")
def test_rows_must_satisfy_a_constraint(build: Callable[..., TableBuilder], spark: SparkSession) -> None:
    """False and NULL are violations of every verb, and nothing is committed."""
    builder = build("id long, s string, x struct<a:int>")
    builder.append((1, "abc", (5,)))
    table = builder.table
    result = add_constraint(table, spark=spark, name="InRange", check=" x.a BETWEEN 0 AND 5 -- comment")
    assert result.versions == (2,)
    snapshot = table.snapshot()
    assert snapshot.metadata.configuration["delta.constraints.inrange"] == "x.a BETWEEN 0 AND 5"
    assert "checkConstraints" in (snapshot.protocol.writer_features or ())
    add_constraint(table, spark=spark, name="c1", check="s LIKE 'a%' OR s IS NULL")
    for bad in ((2, "a", (6,)), (2, "a", (None,)), (2, "a", None)):
        with pytest.raises(InvalidDataError, match=r"'inrange' \(x.a BETWEEN 0 AND 5\).*x.a = (6|NULL)"):
            builder.append(bad)
    frame = builder.frame((1, "zzz", (1,)))
    for write in (
        lambda: append(table, frame=frame),
        lambda: overwrite(table, frame=frame),
        lambda: overwrite(table, frame=frame, where="id = 1"),
        lambda: merge(table, frame=frame, keys=("id",)),
    ):
        with pytest.raises(InvalidDataError, match=r"CHECK constraint 'c1'.*s = zzz"):
            write()
    assert table.snapshot().version == 3
    builder.append((2, None, (0,)), (3, "a", (5,)))
    delete(table, spark=spark, where="id = 3")
    assert builder.rows() == [(1, "abc", (5,)), (2, None, (0,))]


@pytest.mark.requirements("CHK-3")
def test_a_constraint_is_added_only_if_all_rows_satisfy_it(
    build: Callable[..., TableBuilder], spark: SparkSession
) -> None:
    """Also rows that a concurrent writer adds."""
    builder = build("id long, p string", "p")
    builder.append((1, "a"), (-7, "b"))
    table = builder.table
    with pytest.raises(InvalidDataError, match="id = -7"):
        add_constraint(table, spark=spark, name="positive", check="id > 0")
    delete(table, spark=spark, where="id < 0")
    version = table.snapshot().version

    class Interleaved:
        def __getattr__(self, name: str) -> object:
            return getattr(table, name)

        def start_transaction(self, *arguments: object, **named: object) -> object:
            started = table.start_transaction(*arguments, **named)  # type: ignore[arg-type]
            builder.append((-1, "a"))
            return started

    with pytest.raises(CommitConflictError):
        add_constraint(Interleaved(), spark=spark, name="positive", check="id > 0")  # type: ignore[arg-type]
    assert table.snapshot().version == version + 1
    delete(table, spark=spark, where="id < 0")
    add_constraint(table, spark=spark, name="positive", check="id > 0")


@pytest.mark.requirements("CHK-2")
@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("rand() < 2", "rand"),
        ("DATE '2020-01-01' < current_date", r"Write current_date\(\)"),
        ("id IN (SELECT 1)", "query"),
        ("missing > 1", "missing"),
        ("id + 1", "not boolean"),
        ("id >", "not valid|cannot evaluate"),
        ("max(id) > 1", "several rows"),
        ("java_method('java.lang.System', 'exit', 1) = 'x'", "java_method"),
        ("", "empty"),
    ],
)
def test_a_condition_that_cannot_be_checked_is_refused(
    build: Callable[..., TableBuilder], spark: SparkSession, check: str, message: str
) -> None:
    builder = build("id long")
    with pytest.raises(InvalidArgumentError, match=message):
        add_constraint(builder.table, spark=spark, name="c", check=check)
    assert builder.table.snapshot().version == 0


@pytest.mark.requirements("CHK-2")
def test_a_constraint_may_call_what_is_constant_within_a_query(
    build: Callable[..., TableBuilder], spark: SparkSession
) -> None:
    """As in delta-spark, the current time; every kind of write checks it."""
    builder = build("id long, day date")
    builder.append((1, dt.date(2020, 1, 1)))
    calls = ("current_date()", "curdate()", "now()", "current_timestamp()", "localtimestamp()", "CURRENT_DATE()")
    for place, call in enumerate(calls):
        add_constraint(builder.table, spark=spark, name=f"c{place}", check=f"day <= {call}")
    add_constraint(builder.table, spark=spark, name="t", check="unix_timestamp() > id AND current_timezone() <> 'x'")
    builder.append((2, dt.date(2020, 1, 2)))
    with pytest.raises(InvalidDataError, match="c0"):
        builder.append((3, dt.date(9999, 1, 1)))
    with pytest.raises(InvalidDataError, match="c0"):
        update(builder.table, spark=spark, assignments={"day": "DATE '9999-01-01'"}, where="id = 1")
    with pytest.raises(InvalidDataError, match="c0"):
        merge(builder.table, frame=builder.frame((2, dt.date(9999, 1, 1))), keys=["id"])
    assert builder.rows() == [(1, dt.date(2020, 1, 1)), (2, dt.date(2020, 1, 2))]


@pytest.mark.requirements("CHK-5")
def test_a_dropped_constraint_is_not_checked(build: Callable[..., TableBuilder], spark: SparkSession) -> None:
    builder = build("id long")
    add_constraint(builder.table, spark=spark, name="C", check="id > 0")
    with pytest.raises(InvalidArgumentError, match="has a constraint"):
        add_constraint(builder.table, spark=spark, name="c", check="id > 1")
    drop_constraint(builder.table, name="c")
    builder.append((-1,))
    with pytest.raises(InvalidArgumentError, match="no CHECK constraint 'c'"):
        drop_constraint(builder.table, name="c")
    assert drop_constraint(builder.table, name="c", if_exists=True).versions == ()


@pytest.mark.requirements("CHK-4")
def test_a_constraint_over_a_missing_column_blocks_writes(
    build: Callable[..., TableBuilder], spark: SparkSession
) -> None:
    """A new schema without the column."""
    builder = build("id long, v long")
    add_constraint(builder.table, spark=spark, name="c", check="v > 0")
    with pytest.raises(InvalidArgumentError, match="'c'"):
        overwrite(builder.table, frame=builder.frame((1,), columns="id long"), schema_mode=SchemaMode.OVERWRITE)
    assert builder.table.snapshot().version == 1


@pytest.mark.requirements("INV-1", "INV-2", "INV-3")
def test_rows_must_satisfy_the_invariants_of_old_tables(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, v long")
    with_invariant(builder.table, "v", json.dumps({"expression": {"expression": "v > id"}}))
    builder.append((1, 2))
    for bad in ((1, 1), (1, None)):
        with pytest.raises(InvalidDataError, match=r"invariant of column 'v' \(v > id\)"):
            builder.append(bad)
    with_invariant(builder.table, "v", json.dumps({"expression": {"expression": "no_column > id"}}))
    with pytest.raises(InvalidArgumentError, match="invariant of column 'v'"):
        builder.append((1, 2))
    with_invariant(builder.table, "v", "v > id")
    with pytest.raises(CorruptLogError, match="invariant of column 'v'"):
        builder.append((1, 2))
    assert builder.rows() == [(1, 2)]
