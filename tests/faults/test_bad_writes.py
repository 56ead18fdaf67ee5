"""Writes and alterations that cannot be made, by Python and by SQL: a clear error before any file, and the table as it was."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import Column, Connection, DeltaTable, connect
from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, InvalidDataError
from tests.faults.refusals import files_below, state_of

NAME, SMALL = "main.bad.t", "main.bad.small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a case uses: a table with generated, partition and constrained columns, and one with a single column."""

    lake: Connection
    table: DeltaTable
    small: DeltaTable

    def rows(self) -> DataFrame:
        return self.lake.spark.sql("SELECT 1L AS id, 'x' AS name, 5 AS v, 'a' AS part")

    def merge(self, on: str = "t.id = s.id") -> MergeBuilder:
        return self.table.merge(self.rows(), on, source_alias="s", target_alias="t")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A write by Python and by SQL; both raise ``error`` with a message that has each of ``words``."""

    python: Callable[[Act], object]
    sql: str
    words: tuple[str, ...]
    error: type[CmDeltaError] = InvalidArgumentError


_MERGE = "MERGE INTO main.bad.t t USING (SELECT 1L AS id, 'x' AS name, 5 AS v, 'a' AS part) s ON "
CASES: dict[str, Case] = {
    "a condition that does not parse": Case(
        python=lambda act: act.table.delete("v ===="), sql=f"DELETE FROM {NAME} WHERE v ====", words=("v ====",)
    ),
    "a value that does not parse": Case(
        python=lambda act: act.table.update({"v": "1 +"}), sql=f"UPDATE {NAME} SET v = 1 +", words=("1 +",)
    ),
    "a condition of a merge that does not parse": Case(
        python=lambda act: act.merge("t.id == == s.id").when_matched_delete().execute(),
        sql=f"{_MERGE} t.id == == s.id WHEN MATCHED THEN DELETE",
        words=("t.id == == s.id",),
    ),
    "an unknown column in a condition": Case(
        python=lambda act: act.table.delete("nothing = 1"),
        sql=f"DELETE FROM {NAME} WHERE nothing = 1",
        words=("nothing", "Use one of its columns"),
    ),
    "an unknown column in a value": Case(
        python=lambda act: act.table.update({"v": "nothing"}), sql=f"UPDATE {NAME} SET v = nothing", words=("nothing",)
    ),
    "an unknown column that is set": Case(
        python=lambda act: act.table.update({"nothing": "1"}),
        sql=f"UPDATE {NAME} SET nothing = 1",
        words=("'nothing'", "id, name, v"),
    ),
    "an unknown column in a clause": Case(
        python=lambda act: act.merge().when_matched_update({"v": "s.nothing"}).execute(),
        sql=f"{_MERGE} t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.nothing",
        words=("nothing",),
    ),
    "an ambiguous column": Case(
        python=lambda act: act.merge("id = s.id").when_matched_delete().execute(),
        sql=f"{_MERGE} id = s.id WHEN MATCHED THEN DELETE",
        words=("mbiguous", "id"),
    ),
    "an ambiguous column in a clause": Case(
        python=lambda act: act.merge().when_matched_delete("v > 1").execute(),
        sql=f"{_MERGE} t.id = s.id WHEN MATCHED AND v > 1 THEN DELETE",
        words=("mbiguous", "v"),
    ),
    "a generated column that is set": Case(
        python=lambda act: act.table.update({"twice": "3"}),
        sql=f"UPDATE {NAME} SET twice = 3",
        words=("'twice'", "id * 2", "Leave the column out"),
        error=InvalidDataError,
    ),
    "a partition column that is set to a value of another type": Case(
        python=lambda act: act.table.update({"part": "INTERVAL '1' DAY"}),
        sql=f"UPDATE {NAME} SET part = INTERVAL '1' DAY",
        words=("part", "interval"),
        error=CmDeltaError,
    ),
    "a condition that is not deterministic": Case(
        python=lambda act: act.table.delete("rand() > 0.5"),
        sql=f"DELETE FROM {NAME} WHERE rand() > 0.5",
        words=("rand()",),
    ),
    "a condition of an update that is not deterministic": Case(
        python=lambda act: act.table.update({"v": "6"}, "rand() > 0.5"),
        sql=f"UPDATE {NAME} SET v = 6 WHERE rand() > 0.5",
        words=("rand()",),
    ),
    "a condition of a merge that is not deterministic": Case(
        python=lambda act: act.merge("t.id = s.id AND rand() > 0.5").when_matched_delete().execute(),
        sql=f"{_MERGE} t.id = s.id AND rand() > 0.5 WHEN MATCHED THEN DELETE",
        words=("rand()",),
    ),
    "a generated column that is not deterministic": Case(
        python=lambda act: act.lake.create_table(
            "main.bad.new", [Column("a", "int"), Column("g", "double", generated="rand()")]
        ),
        sql="CREATE TABLE main.bad.new (a int, g double GENERATED ALWAYS AS (rand()))",
        words=("rand", "'g'"),
    ),
    "a generated column over several rows": Case(
        python=lambda act: act.lake.create_table(
            "main.bad.new", [Column("a", "int"), Column("g", "int", generated="max(a)")]
        ),
        sql="CREATE TABLE main.bad.new (a int, g int GENERATED ALWAYS AS (max(a)))",
        words=("max", "'g'"),
    ),
    "a type that is not wider": Case(
        python=lambda act: act.table.alter.change_type("id", "int"),
        sql=f"ALTER TABLE {NAME} ALTER COLUMN id TYPE int",
        words=("id", "int"),
    ),
    "the last column": Case(
        python=lambda act: act.small.alter.drop_column("id"),
        sql=f"ALTER TABLE {SMALL} DROP COLUMN id",
        words=("'id'", "last one", "Drop the table"),
    ),
    "a column that a constraint uses": Case(
        python=lambda act: act.table.alter.drop_column("v"),
        sql=f"ALTER TABLE {NAME} DROP COLUMN v",
        words=("'v'", "positive"),
    ),
    "a column that a generated column uses": Case(
        python=lambda act: act.table.alter.drop_column("id"),
        sql=f"ALTER TABLE {NAME} DROP COLUMN id",
        words=("'id'", "twice"),
    ),
    "a version that VACUUM has emptied": Case(
        python=lambda act: act.small.restore(version=1),
        sql=f"RESTORE TABLE {SMALL} TO VERSION AS OF 1",
        words=("Version 1 of", "VACUUM has deleted them"),
        error=CmDeltaError,
    ),
    "a clone onto itself": Case(
        python=lambda act: act.lake.onboarding.clone(act.table, NAME, creation="replace"),
        sql=f"CREATE OR REPLACE TABLE {NAME} SHALLOW CLONE {NAME}",
        words=("itself",),
    ),
    "a clause after an unconditional one": Case(
        python=lambda act: act.merge().when_matched_delete().when_matched_update({"v": "s.v"}).execute(),
        sql=f"{_MERGE} t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v",
        words=("can never apply",),
    ),
}


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Act]:
    home = tmp_path_factory.mktemp("bad_writes")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as lake:
        mapped = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
        lake.sql(
            f"CREATE TABLE {NAME} (id bigint, name string, v int, part string, twice bigint GENERATED ALWAYS AS (id * 2)) "
            f"PARTITIONED BY (part) TBLPROPERTIES ({mapped})"
        )
        lake.sql(f"ALTER TABLE {NAME} ADD CONSTRAINT positive CHECK (v > 0)")
        lake.sql(f"INSERT INTO {NAME} (id, name, v, part) VALUES (1, 'a', 1, 'a'), (2, 'b', 2, 'b')")
        lake.sql(f"CREATE TABLE {SMALL} (id bigint) TBLPROPERTIES ({mapped})")
        lake.sql(f"INSERT INTO {SMALL} VALUES (1)")
        lake.sql(f"INSERT OVERWRITE {SMALL} VALUES (2)")
        lake.maintenance.set_policy("main", "data_cleanup")
        small = lake.table(SMALL)
        assert small.vacuum(timedelta(0), force=True).num_files == 1
        yield Act(lake=lake, table=lake.table(NAME), small=small)


@pytest.mark.requirements("DML-6", "COLMAP-14", "RESTORE-4", "GEN-1")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["python", "sql"])
def test_a_write_that_cannot_be_made_leaves_the_table_as_it_was(act: Act, way: str, name: str) -> None:
    """The directory has the same files with the same content, and there is no new table."""
    case, warehouse = CASES[name], Path(act.table.location.removeprefix("file://")).parent
    before, tables = files_below(warehouse), act.lake.tables()
    states = [state_of(table.table) for table in (act.table, act.small)]
    with pytest.raises(CmDeltaError) as raised:
        case.python(act) if way == "python" else act.lake.sql(case.sql)
    message = str(raised.value)
    assert isinstance(raised.value, case.error), message
    assert [word for word in case.words if word not in message] == [], message
    assert re.search(r"\. [A-Z]", message), f"says not what to do: {message}"
    assert (files_below(warehouse), act.lake.tables()) == (before, tables)
    assert [state_of(table.table) for table in (act.table, act.small)] == states
