"""The n-th call to storage or catalog fails during operations that write rows through Spark to local files.

After recovery the table has either the old or the new rows, earlier versions are unchanged, and no file that a version needs is
missing. Recovery: a client with empty caches, publication, the doctor, and a repetition of the operation.
"""

import datetime
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, CommitStateUnknownError, TableNotFoundError
from cm_delta_dagster.operations.doctor import repair_table
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, clone
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema
from cm_delta_dagster.operations.tables.replace import replace_table
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.spark.expressions.schema import schema_of
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors
from tests.faults.nth_call import DiskWorld, Fault, Plan
from tests.support.creation import create_table, create_table_as

pytestmark = pytest.mark.slow
TABLE, CLUSTERED, MADE = "main.test.t", "main.test.clustered", "main.test.made"
COLUMNS = "id long, text string"
MOST_CALLS = 200

Row = tuple[int, str]
Act = Callable[[DeltaClient, SparkSession], object]
START: tuple[Row, ...] = ((1, "a"), (2, "b"), (3, "c"), (4, "d"))


@dataclass(frozen=True, kw_only=True)
class Verb:
    """An operation, and the rows of the table after it."""

    act: Act
    rows: tuple[Row, ...]
    table: str = TABLE


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(list(rows), COLUMNS).coalesce(1)


def on_table(act: Callable[[Table, SparkSession], object]) -> Act:
    return lambda client, spark: act(client.table(TABLE), spark)


def make(client: DeltaClient, spark: SparkSession) -> object:
    rows = frame(spark, (7, "g"))
    design = TableDesign(schema=first_schema(schema_of(rows)))
    return create_table_as(client, identifier=MADE, design=design, write=lambda table: append(table, frame=rows))


def remake(table: Table, spark: SparkSession) -> object:
    rows = frame(spark, (7, "g"))
    return replace_table(table, design=TableDesign(schema=first_schema(schema_of(rows))), frame=rows)


def clone_of(mode: CloneMode) -> Act:
    return lambda client, spark: clone(client, client.table(TABLE), identifier=MADE, request=CloneRequest(mode=mode))


def clauses(source: DataFrame) -> RowChange:
    """Deletes a row, inserts one and updates one."""
    delete_matched = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE)
    insert = RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=None)
    others = RowClause(
        kind=ClauseKind.NOT_MATCHED_BY_SOURCE,
        action=ClauseAction.UPDATE,
        condition="id = 4",
        assignments={"text": "upper(text)"},
    )
    on = "target.id = source.id"
    return RowChange(clauses=(delete_matched, insert, others), source=source, on=on)


def by_spark(spark: SparkSession) -> EngineChoice:
    return EngineChoice.of(spark, WriteEngine.SPARK)


VERBS: Mapping[str, Verb] = {
    "append": Verb(
        act=on_table(lambda table, spark: append(table, frame=frame(spark, (7, "g")))), rows=(*START, (7, "g"))
    ),
    "overwrite": Verb(
        act=on_table(lambda table, spark: overwrite(table, frame=frame(spark, (7, "g")))), rows=((7, "g"),)
    ),
    "overwrite of a slice": Verb(
        act=on_table(lambda table, spark: overwrite(table, frame=frame(spark, (2, "B")), where="id = 2 OR id = 3")),
        rows=((1, "a"), (2, "B"), (4, "d")),
    ),
    "merge": Verb(
        act=on_table(lambda table, spark: merge(table, frame=frame(spark, (2, "B"), (7, "g")), keys=["id"])),
        rows=((1, "a"), (2, "B"), (3, "c"), (4, "d"), (7, "g")),
    ),
    "merge that deletes": Verb(
        act=on_table(
            lambda table, spark: merge(
                table, frame=frame(spark, (2, "B")), keys=["id"], mode=MergeMode.DELETE_UNMATCHED, where="id < 4"
            )
        ),
        rows=((2, "B"), (4, "d")),
    ),
    "delete": Verb(
        act=on_table(lambda table, spark: delete(table, spark=spark, where="id = 2", engine=WriteEngine.SPARK)),
        rows=((1, "a"), (3, "c"), (4, "d")),
    ),
    "update": Verb(
        act=on_table(
            lambda table, spark: update(table, spark=spark, assignments={"text": "upper(text)"}, where="id IN (2, 3)")
        ),
        rows=((1, "a"), (2, "B"), (3, "C"), (4, "d")),
    ),
    "merge with clauses": Verb(
        act=on_table(lambda table, spark: merge_rows(table, change=clauses(frame(spark, (2, "B"), (7, "g"))))),
        rows=((1, "a"), (3, "c"), (4, "D"), (7, "g")),
    ),
    "optimize": Verb(act=on_table(lambda table, spark: optimize(table, spark=by_spark(spark))), rows=START),
    "optimize by z-order": Verb(
        act=on_table(lambda table, spark: optimize(table, spark=by_spark(spark), z_order_by=["id", "text"])), rows=START
    ),
    "optimize by clustering": Verb(
        act=lambda client, spark: optimize(client.table(CLUSTERED), spark=by_spark(spark)), rows=START, table=CLUSTERED
    ),
    "restore": Verb(act=on_table(lambda table, spark: restore(table, version=1)), rows=START[:2]),
    "clone": Verb(act=clone_of(CloneMode.SHALLOW), rows=START, table=MADE),
    "deep clone": Verb(act=clone_of(CloneMode.DEEP), rows=START, table=MADE),
    "replace": Verb(act=on_table(lambda table, spark: remake(table, spark)), rows=((7, "g"),)),
    "create_table_as": Verb(act=make, rows=((7, "g"),), table=MADE),
}


def new_world(directory: Path, spark: SparkSession) -> DiskWorld:
    """Four rows in three files; the last commit is not published. Another table, with clustering columns, has the same rows."""
    world = DiskWorld(directory)
    with world.client() as client:
        for kind in MaintenanceKind:
            client.catalog.maintenance_policies.set_maintenance_rule(
                MaintenanceRule(scope="main", kind=kind, allowed=True)
            )
        schema = first_schema(schema_of(frame(spark, *START)))
        clustered = create_table(client, identifier=CLUSTERED, schema=schema, clustering_columns=["id", "text"])
        for rows in (START[:2], START[2:]):
            append(clustered, frame=frame(spark, *rows))
        table = create_table(client, identifier=TABLE, schema=schema)
        append(table, frame=frame(spark, *START[:2]))
        append(table, frame=frame(spark, START[2]))
    with world.client(Plan(broken=("write_if_absent", f"_delta_log/{3:020d}.json"))) as client:
        append(client.table(TABLE), frame=frame(spark, START[3]))
        assert client.table(TABLE).snapshot().published_version == 2
    world.save()
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[DiskWorld]:
    yield new_world(tmp_path_factory.mktemp("nth"), spark)


def rows_at(table: Table, version: int | None = None) -> tuple[Row, ...]:
    """Return the rows of a version as pyarrow reads them from its files, without those that deletion vectors mark."""
    root = Path(table.location.removeprefix("file://"))
    files = table.snapshot(version=version).files
    marked = files.filter(files["deletionVector"].is_valid())
    vectors = read_deletion_vectors(table.store, location=table.location, files=marked)
    deleted = dict(zip(marked["path"].to_pylist(), vectors, strict=True))
    found = [
        row
        for path in files["path"].to_pylist()
        for position, row in enumerate(pq.ParquetFile(root / local_path(path)).read().to_pylist())
        if position not in deleted.get(path, ())
    ]
    return tuple(sorted((row["id"], row["text"]) for row in found))


def local_path(path: str) -> str:
    """The path of a file of a table in its directory; that of a file of the source of a clone is absolute."""
    return decode_path(path).removeprefix("file://")


def versions(client: DeltaClient, name: str) -> dict[int, tuple[Row, ...]]:
    """Return the rows of each version; empty if the table does not exist."""
    try:
        table = client.table(name)
    except TableNotFoundError:
        return {}
    first, last = (table.commit_log().earliest_readable, table.commit_log().latest)
    return {version: rows_at(table, version) for version in range(first, last + 1)}


def calls_of(world: DiskWorld, verb: Verb, spark: SparkSession) -> int:
    """Return the number of calls that the operation makes without a fault."""
    world.restore()
    plan = Plan()
    with world.client(plan) as client:
        verb.act(client, spark)
    return plan.calls


def tried(world: DiskWorld, name: str, fault: Fault, numbers: Iterable[int], spark: SparkSession) -> int:
    """Let each of these calls fail in turn. Returns how many of them were made."""
    verb, hits = VERBS[name], 0
    for at in numbers:
        world.restore()
        with world.client() as client:
            before = versions(client, verb.table)
            data = world.data_files(client.table(TABLE).location)
        plan = Plan(at=at, fault=fault)
        error: CmDeltaError | None = None
        with world.client(plan) as client:
            try:
                verb.act(client, spark)
            except CmDeltaError as raised:
                error = raised
        where = f"{name}: call {at}, {plan.hit}, {fault}: {type(error).__name__}: {error}"
        recovered(world, verb, spark, before=before, data=data, error=error, where=where)
        if plan.hit is None:
            assert error is None, where
            break
        hits += 1
    return hits


def recovered(
    world: DiskWorld,
    verb: Verb,
    spark: SparkSession,
    *,
    before: Mapping[int, tuple[Row, ...]],
    data: set[str],
    error: CmDeltaError | None,
    where: str,
) -> None:
    """Check that the table is consistent after the fault, and that a repetition of the operation succeeds."""
    with world.client() as client:
        after = versions(client, verb.table)
        done = len(after) > len(before)
        assert {version: after[version] for version in before} == before, where
        assert len(after) <= len(before) + 1, where
        assert not done or after[max(after)] == verb.rows, where
        # Without an error something was committed. With an error nothing was, unless the outcome is unknown.
        assert done if error is None else not done or isinstance(error, CommitStateUnknownError), where
        table = client.table(TABLE)
        left = world.data_files(table.location)
        assert data <= left, where
        if error is not None and not isinstance(error, CommitStateUnknownError) and verb.table == TABLE:
            assert left == data, where
        if not done:
            verb.act(client, spark)
    with world.client() as client:
        table = client.table(verb.table)
        assert rows_at(table) == verb.rows, where
        publish(table)
        report = repair_table(table)
        assert report.healthy and not report.failed, (where, report.findings)
        assert len(versions(client, verb.table)) == len(before) + 1, where


@pytest.mark.requirements("CM-C15", "CM-W4", "CM-W5", "CM-P5", "CM-D3", "CM-D5", "DML-1", "DML-5", "DML-7", "OPT-1")
@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("name", VERBS)
def test_after_a_fault_at_any_call_of_an_operation_the_rows_are_right(
    world: DiskWorld, spark: SparkSession, name: str, fault: Fault
) -> None:
    calls = calls_of(world, VERBS[name], spark)
    hits = tried(world, name, fault, range(1, MOST_CALLS), spark)
    print(f"{name}: each of {hits} calls {fault}")
    assert hits > 3 and abs(hits - calls) <= 3


ALWAYS = ("append", "overwrite of a slice", "merge")
"""Operations that are tested in each run; ``-m exhaustive`` tests all."""


@pytest.mark.requirements("CM-C15", "CM-W4", "CM-W5", "DML-5")
@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.exhaustive) for name in VERBS]
)
def test_after_a_fault_at_some_call_of_an_operation_the_rows_are_right(
    world: DiskWorld, spark: SparkSession, name: str
) -> None:
    """Calls chosen by the seed of the day; ``-m exhaustive`` tries every call.

    A merge has both faults, and each other operation one of them, another one the next day.
    """
    today = datetime.date.today()
    seed = f"{today} {name}"
    calls = calls_of(world, VERBS[name], spark)
    chance = random.Random(seed)
    number = today.toordinal() + list(VERBS).index(name)
    for fault in list(Fault) if name == "merge" else [list(Fault)[number % len(Fault)]]:
        numbers = chance.sample(range(1, calls), 2 if name == "merge" else 1)
        print(f"{name}: calls {numbers} of {calls} {fault}, seed {seed!r}")
        assert tried(world, name, fault, numbers, spark) == len(numbers)
