"""What delta-spark, deltalake, DuckDB and Sail commit passes the checks of a catalog that would ratify it."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.differential.other_readers import duckdb_answers, sail_server
from tests.differential.peers import DeltaSpark
from tests.support.cached_folders import or_skip
from tests.support.foreign_commits import refused_below
from tests.support.peer_environments import peer_environment

_PROPERTIES = """'delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true', 'delta.enableRowTracking'='true',
    'delta.enableChangeDataFeed'='true', 'delta.enableTypeWidening'='true', 'delta.checkpointPolicy'='v2'"""
_ROWS = "(1, 'a b', double('nan'), '50%'), (2, null, double('-inf'), 'x/y'), (3, 'ü+k', 0.0D, null), (4, '', -0.0D, '')"


def _passes(root: Path, *, at_least: int) -> None:
    number, refused = refused_below(root)
    assert refused == {} and number >= at_least


@pytest.mark.peers
def test_commits_of_delta_spark_pass(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    names = ("t", "other", "clustered", "numbered")
    t, other, clustered, numbered = (f"delta.`{tmp_path / name}`" for name in names)
    delta_spark.sql(
        f"create table {t} (id int, name string, x double, p string) using delta partitioned by (p) tblproperties ({_PROPERTIES})",
        f"insert into {t} values {_ROWS}",
        f"update {t} set x = 1 where id = 2",
        f"delete from {t} where id = 3",
        f"merge into {t} using (select 2 as id) s on {t}.id = s.id when matched then delete when not matched by source then delete",
        f"insert into {t} values {_ROWS}",
        f"alter table {t} add column (later struct<a:int, b:array<string>>)",
        f"alter table {t} rename column name to label",
        f"alter table {t} alter column id type bigint",
        f"alter table {t} add constraint positive check (id > 0)",
        f"optimize {t}",
        f"restore table {t} to version as of 2",
        f"insert overwrite {t} select * from {t} version as of 2",
        f"create table {other} shallow clone {t}",
        f"insert into {other} select * from {other}",
        f"""create table {clustered} (id bigint, at timestamp_ntz default timestamp_ntz'2026-01-01 00:00:00', day date
            generated always as (cast(at as date))) using delta cluster by (id)
            tblproperties ('delta.feature.allowColumnDefaults'='supported')""",
        f"insert into {clustered} (id) values (1), (2)",
        f"optimize {clustered}",
        f"create table {numbered} (n bigint generated always as identity (start with 5 increment by -2), v variant) using delta",
        f"insert into {numbered} (v) select parse_json('[1]') from range(5)",
        f"alter table {numbered} alter column n sync identity",
    )
    _passes(tmp_path, at_least=20)


def test_commits_of_deltalake_pass(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    rows = pa.table(
        {
            "id": pa.array(range(6), pa.int64()),
            "p": pa.array(["a b", "50%", "x/y", "ü+k=v#1", None, ""]),
            "x": pa.array([float("nan"), float("inf"), -float("inf"), -0.0, None, 1.5]),
            "l": pa.array([[1, None], [], None, [2], [3], [4]], pa.list_(pa.int32())),
        }
    )
    deltalake.write_deltalake(
        location,
        rows,
        partition_by=["p"],
        configuration={"delta.enableChangeDataFeed": "true"},
        name="n",
        description="d",
    )
    deltalake.write_deltalake(
        location,
        rows,
        mode="append",
        commit_properties=deltalake.CommitProperties(
            custom_metadata={"k": "v"}, app_transactions=[deltalake.Transaction("app", 1, 5)]
        ),
    )
    table = deltalake.DeltaTable(location)
    table.delete("id = 1")
    table.update({"x": "0.5"}, predicate="id = 2")
    merger = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"x": "s.x"}).when_not_matched_insert_all().execute()
    table.optimize.compact()
    table.alter.add_constraint({"positive": "id >= 0"})
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    table.restore(1)
    deltalake.write_deltalake(location, rows, mode="overwrite", schema_mode="overwrite")
    _passes(tmp_path, at_least=10)


@pytest.mark.peers
def test_commits_of_duckdb_pass(tmp_path: Path) -> None:
    location = tmp_path / "t"
    deltalake.write_deltalake(str(location), pa.table({"id": [1], "x": [0.5], "name": ["a"]}))
    answers = or_skip(
        duckdb_answers,
        f"ATTACH '{location}' AS t (TYPE delta)",
        "INSERT INTO t VALUES (2, 'nan', 'ü'), (3, '-inf', NULL)",
        "INSERT INTO t SELECT i, i / 3, 'n' || i FROM range(1000) r(i)",
    )
    assert not [answer for answer in answers if isinstance(answer, str)]
    _passes(tmp_path, at_least=3)


@pytest.mark.peers
def test_commits_of_sail_pass(tmp_path: Path) -> None:
    location = tmp_path / "t"
    with sail_server(or_skip(peer_environment, "sail"), tmp_path) as sail:
        answers = sail.answers(
            f"CREATE TABLE t (id BIGINT, x DOUBLE, p STRING) USING delta PARTITIONED BY (p) LOCATION '{location}'",
            "INSERT INTO t VALUES (1, double('nan'), 'a b'), (2, double('-inf'), NULL), (3, 0.5, 'x/y')",
            "INSERT INTO t SELECT id, id / 3, '50%' FROM range(100)",
            "DELETE FROM t WHERE id = 2",
        )
    assert not [answer for answer in answers if isinstance(answer, str)]
    _passes(tmp_path, at_least=3)
