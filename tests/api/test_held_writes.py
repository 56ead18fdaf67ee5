"""Single writes with ``hold``: each verb gives a held commit, and ratified it is what the same write gives without ``hold``."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import DeltaTable, HeldCommit
from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.client.commits.context import CommitProperties, Idempotency
from cm_delta_dagster.errors import (
    CommitRejectedError,
    HoldClosedError,
    InvalidArgumentError,
    PartitionMismatchError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from tests.support.foreign import ForeignTable, field

HELD, PLAIN = "main.sales.held", "main.sales.plain"
COLUMNS = "id int, text string"
Verb = Callable[[DeltaTable, DataFrame, dict[str, Any]], Any]
VERBS: dict[str, Verb] = {
    "append": lambda table, frame, hold: table.append(frame, **hold),
    "overwrite": lambda table, frame, hold: table.overwrite(frame, **hold),
    "overwrite_where": lambda table, frame, hold: table.overwrite(frame, where="id >= 2", **hold),
    "overwrite_schema": lambda table, frame, hold: table.overwrite(
        frame.withColumn("price", frame.id * 1.5), schema_mode=SchemaMode.OVERWRITE, **hold
    ),
    "upsert": lambda table, frame, hold: table.upsert(frame, on="id", **hold),
    "delete": lambda table, frame, hold: table.delete("id = 1", **hold),
    "update": lambda table, frame, hold: table.update({"text": "'z'"}, "id = 1", **hold),
    "merge": lambda table, frame, hold: (
        table.merge(frame, on="id").when_matched_delete().when_not_matched_insert_all().execute(**hold)
    ),
}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        frame = spark.createDataFrame([(1, "a"), (2, "b")], COLUMNS).coalesce(1)
        for name in (HELD, PLAIN):
            connection.create_table_as(name, frame)
        yield connection


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(2, "B"), (3, "c")], COLUMNS).coalesce(1)


def rows(table: DeltaTable | HeldCommit) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=str)


def by_duckdb(held: HeldCommit) -> list[dict[str, Any]]:
    """The rows of a hold, also where DuckDB filters and selects."""
    relation = held.scan().duckdb()
    names = relation.columns
    listed = [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
    some = relation.filter("id > 1").select("id").fetchall()
    assert sorted(some) == sorted((row["id"],) for row in listed if row["id"] > 1)
    return sorted(listed, key=str)


def data_files(lake: Connection, name: str = HELD) -> int:
    root = Path(lake.table(name).location.removeprefix("file://"))
    return sum(1 for path in root.rglob("*") if path.suffix in (".parquet", ".bin") and "_delta_log" not in path.parts)


@pytest.mark.slow
@pytest.mark.requirements("WAP-1")
@pytest.mark.parametrize("verb", VERBS)
def test_every_write_can_be_held(lake: Connection, frame: DataFrame, verb: str) -> None:
    table, before = lake.table(HELD), rows(lake.table(HELD))
    VERBS[verb](lake.table(PLAIN), frame, {})
    expected = rows(lake.table(PLAIN))
    held = VERBS[verb](table, frame, {"hold": True})
    assert isinstance(held, HeldCommit) and held.tables == (HELD,) and held.base_version == {HELD: 0}
    assert rows(table) == before and table.version() == 0
    assert rows(held) == expected != before
    assert by_duckdb(held) == expected
    assert held.ratify().version == 1 and rows(table) == expected
    operations = [lake.table(name).history(1)[0].commit_info.operation for name in (HELD, PLAIN)]
    assert operations[0] == operations[1]


@pytest.mark.slow
@pytest.mark.requirements("WAP-1", "WAP-2")
def test_a_held_write_expires_is_found_again_by_its_idempotency_and_is_discarded(
    lake: Connection, frame: DataFrame
) -> None:
    table, job = lake.table(HELD), Idempotency(app_id="job", version=1)
    properties = CommitProperties(tags={"source": "file"})
    first = table.append(frame, idempotency=job, commit_properties=properties, hold=timedelta(days=2))
    assert timedelta(days=1) < first.expires - datetime.now(UTC) <= timedelta(days=2)
    files = data_files(lake)
    again = table.append(frame, idempotency=job, hold=True)
    assert (again.hold_id, data_files(lake)) == (first.hold_id, files)
    first.ratify(tags={"audited_by": "ana"})
    tags = table.history(1)[0].commit_info.tags
    assert {"source": "file", "audited_by": "ana"}.items() <= dict(tags or {}).items()
    late = table.append(frame, idempotency=job, hold=True)
    assert (late.hold_id, late.state, late.ratify().repeated) == (first.hold_id, HoldState.COMMITTED, True)
    assert data_files(lake) == files and table.scan().count() == 4
    other = table.delete("id = 1", hold=True)
    other.discard("bad month")
    with pytest.raises(HoldClosedError, match="bad month"):
        other.ratify()
    assert table.scan().count() == 4


@pytest.mark.slow
@pytest.mark.requirements("WAP-1")
def test_a_write_that_changes_nothing_is_not_held(lake: Connection, frame: DataFrame) -> None:
    table = lake.table(HELD)
    for nothing in (
        lambda: table.delete("id = 9", hold=True),
        lambda: table.append(frame.limit(0), hold=True),
        lambda: table.merge(frame, "id").when_matched_update({"text": "'z'"}, "source.id = 9").execute(hold=True),
    ):
        with pytest.raises(InvalidArgumentError, match="changes nothing"):
            nothing()
    job = Idempotency(app_id="job", version=1)
    table.append(frame, idempotency=job)
    files = data_files(lake)
    with pytest.raises(InvalidArgumentError, match=r"committed before, without a hold.*version 1 of 'job'"):
        table.append(frame, idempotency=job, hold=True)
    assert lake.rules.held() == () and data_files(lake) == files and table.version() == 1


@pytest.mark.slow
@pytest.mark.requirements("WAP-1", "WAP-2")
def test_a_write_that_cannot_be_held_leaves_no_file(lake: Connection, frame: DataFrame) -> None:
    table, files = lake.table(HELD), data_files(lake)
    for value in (None, 1, "2 days", timedelta(0), timedelta(days=367)):
        with pytest.raises(InvalidArgumentError, match="hold is"):
            table.append(frame, hold=value)  # type: ignore[call-overload]
        with pytest.raises(InvalidArgumentError, match="hold is"):
            lake.transaction(hold=value)  # type: ignore[arg-type]
    with pytest.raises(PartitionMismatchError):
        table.overwrite(frame, where="id > 2", hold=True)
    lake.settings.set_commit_mode(PLAIN, "put_if_absent")
    with pytest.raises(CommitRejectedError, match=r"cannot be held.*put-if-absent"):
        lake.table(PLAIN).append(frame, hold=True)
    assert (data_files(lake), data_files(lake, PLAIN)) == (files, files) and lake.rules.held() == ()
    lake.drop(HELD)
    lake.create_table_as(HELD, frame)
    with pytest.raises(TableNotFoundError):
        table.append(frame, hold=True)
    assert lake.rules.held() == () and lake.table(HELD).version() == 0


@pytest.mark.slow
@pytest.mark.requirements("WAP-2")
@pytest.mark.parametrize("verb", VERBS)
def test_a_write_of_a_transaction_is_not_held_by_itself(lake: Connection, frame: DataFrame, verb: str) -> None:
    files = data_files(lake)
    with pytest.raises(InvalidArgumentError, match=r"lake\.transaction\(hold=True\)"), lake.transaction() as tx:
        VERBS[verb](tx.table(HELD), frame, {"hold": True})  # type: ignore[arg-type]
    assert lake.table(HELD).version() == 0 and data_files(lake) == files and lake.rules.held() == ()


@pytest.mark.requirements("WAP-2")
def test_what_holds_nothing_says_what_does(lake: Connection, frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"lake\.sql are not held; write lake\.table\(name\)"):
        lake.sql(f"DELETE FROM {HELD}", hold=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"execute\(hold=True\)"):
        lake.table(HELD).merge(frame, "id", hold=True)  # type: ignore[call-arg]
    foreign = ForeignTable(tmp_path / "foreign", field("id", "long"))
    foreign.add("a.parquet", pa.table({"id": [1]}))
    with pytest.raises(AttributeError, match=r"lake\.onboarding\.adopt"):
        lake.path_table(f"{tmp_path}/foreign").delete("id = 1", hold=True)  # type: ignore[attr-defined]
    assert lake.rules.held() == () and lake.table(HELD).version() == 0
