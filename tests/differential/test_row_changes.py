"""DELETE, UPDATE and MERGE drawn at random: delta-spark does the same to a table of its own, and reads and continues ours."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, connect
from tests.differential.peers import DeltaSpark, canonical, our_rows, published_copy
from tests.differential.test_changes import their_changes
from tests.differential.test_table_features import commit_metadata

pytestmark = pytest.mark.peers

COLUMNS = "id long, p string, n int, st struct<a: int, b: string>"
ROWS = (
    "SELECT id, element_at(array('a b', '50%', NULL), CAST(id % 3 AS INT) + 1) AS p, CAST(id % 7 AS INT) AS n, "
    "IF(id % 5 = 0, NULL, named_struct('a', CAST(id AS INT), 'b', 'x')) AS st FROM range({}, {}, 1, 1)"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Connection]:
    home = tmp_path_factory.mktemp("row_changes")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        connection.maintenance.set_policy("main", "data_reorganization")
        yield connection


class _Acts:
    """Chooses statements at random; each is SQL for delta-spark, and does the same to our table."""

    def __init__(self, chance: random.Random, ours: DeltaTable, theirs: str) -> None:
        self.chance = chance
        self.ours = ours
        self.theirs = theirs

    def run(self) -> str:
        """Do one act to our table; returns the SQL of the same act."""
        return self.chance.choice((self._delete, self._update, self._merge, self._merge))()

    def _delete(self) -> str:
        where = self._condition()
        self.ours.delete(where)
        return f"DELETE FROM {self.theirs} WHERE {where}"

    def _update(self) -> str:
        where, values = self._condition(), self._assignments("")
        self.ours.update(values, where)
        return f"UPDATE {self.theirs} SET {_list(values)} WHERE {where}"

    def _merge(self) -> str:
        low = self.chance.randrange(0, 60)
        source = ROWS.format(low, low + self.chance.randrange(1, 30)).replace("id % 7", "id % 4")
        on = self.chance.choice(("t.id = s.id", "t.id = s.id AND t.p <=> s.p", "t.id = s.id AND t.n > 1"))
        builder = self.ours.merge(self.ours._connection.spark.sql(source), on, source_alias="s", target_alias="t")
        sql = f"MERGE INTO {self.theirs} t USING ({source}) s ON {on}"
        for _ in range(self.chance.randrange(0, 2)):
            condition = self._condition("t.")
            builder, sql = builder.when_matched_delete(condition), f"{sql} WHEN MATCHED AND {condition} THEN DELETE"
        if self.chance.random() < 0.3:
            builder, sql = builder.when_matched_update_all(), f"{sql} WHEN MATCHED THEN UPDATE SET *"
        else:
            values = self._assignments("t.")
            builder = builder.when_matched_update(values, "s.n < 3")
            sql = f"{sql} WHEN MATCHED AND s.n < 3 THEN UPDATE SET {_list(values)}"
        if self.chance.random() < 0.7:
            builder = builder.when_not_matched_insert({"id": "id", "p": "s.p", "n": "s.n + 1"}, "s.n = 1")
            builder = builder.when_not_matched_insert_all()
            sql = f"{sql} WHEN NOT MATCHED AND s.n = 1 THEN INSERT (id, p, n) VALUES (s.id, s.p, s.n + 1)"
            sql = f"{sql} WHEN NOT MATCHED THEN INSERT *"
        if self.chance.random() < 0.4:
            condition = self._condition("t.")
            builder = builder.when_not_matched_by_source_update({"n": "t.n - 1"}, condition)
            builder = builder.when_not_matched_by_source_delete("t.id % 11 = 3")
            sql = f"{sql} WHEN NOT MATCHED BY SOURCE AND {condition} THEN UPDATE SET n = t.n - 1"
            sql = f"{sql} WHEN NOT MATCHED BY SOURCE AND t.id % 11 = 3 THEN DELETE"
        builder.execute()
        return sql

    def _condition(self, alias: str = "") -> str:
        low = self.chance.randrange(0, 60)
        return self.chance.choice(
            (
                f"{alias}id BETWEEN {low} AND {low + self.chance.randrange(0, 12)}",
                f"{alias}id % 9 = {low % 9}",
                f"{alias}p = 'a b' AND {alias}n = {low % 7}",
                f"{alias}p IS NULL AND {alias}id < {low}",
                f"{alias}st.a > {low}",
                f"{alias}p = '50%'" if low < 8 else f"{alias}id = {low}",
            )
        )

    def _assignments(self, alias: str) -> dict[str, str]:
        values = {
            "n": f"{alias}n + 10",
            "st.b": f"concat({alias}p, 'y')",
            "p": "'moved'",
            "st": "named_struct('a', 1, 'b', 'z')",
        }
        names = self.chance.sample(["n", self.chance.choice(["st.b", "st"]), "p"], self.chance.randrange(1, 3))
        return {name: values[name] for name in names}


def _list(values: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _metrics(location: Path, version: int) -> dict[str, str]:
    """The metrics of a commit of delta-spark, as its log has them."""
    lines = (location / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    infos = [action["commitInfo"] for line in lines if "commitInfo" in (action := json.loads(line))]
    return dict(infos[0]["operationMetrics"])


COUNTED = (
    "numDeletedRows",
    "numUpdatedRows",
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
)


@pytest.mark.requirements("DML-1", "DML-2", "CDF-2", "DV-23")
@pytest.mark.parametrize(
    ("seed", "vectors", "num_acts"),
    [
        (2, "false", 3),
        *(pytest.param(seed, text, 6, marks=pytest.mark.exhaustive) for seed, text in ((1, "true"), (2, "false"))),
    ],
)
def test_row_changes_do_what_delta_spark_does(
    lake: Connection,
    spark: SparkSession,
    delta_spark: DeltaSpark,
    tmp_path: Path,
    seed: int,
    vectors: str,
    num_acts: int,
) -> None:
    """Rows, changes and counts after each act; then delta-spark reads and continues our table."""
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    schema = spark.createDataFrame([], COLUMNS).schema
    feed = {"delta.enableChangeDataFeed": "true"}
    ours = lake.create_table(f"main.acts.t{seed}_{num_acts}", schema, partition_by="p", properties=feed)
    commit_metadata(ours, ours.table.snapshot().schema, properties)
    location = tmp_path / "theirs"
    theirs = f"delta.`{location}`"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    delta_spark.sql(
        f"CREATE TABLE {theirs} ({COLUMNS.replace('id long', 'id BIGINT')}) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ({listed})"
    )
    for low, high in ((0, 30), (30, 60)):
        ours.append(spark.sql(ROWS.format(low, high)))
        delta_spark.sql(f"INSERT INTO {theirs} {ROWS.format(low, high)}")
    acts = _Acts(random.Random(seed), ours, theirs)
    version = 2
    for number in range(num_acts):
        before = ours.version()
        sql = acts.run()
        delta_spark.sql(sql)
        seen = f"act {number} of seed {seed}: {sql}"
        assert canonical(ours.to_df().toArrow()) == canonical(delta_spark.sql(f"SELECT * FROM {theirs}")), seen
        if ours.version() == before:
            continue
        version += 1
        _check_changes(ours, delta_spark, location, version, seen)
        metrics = _metrics(location, version)
        made = ours.history(limit=1)[0].commit_info
        assert made is not None and made.operation_metrics is not None
        expected = {name: metrics[name] for name in COUNTED if name in metrics}
        assert {name: made.operation_metrics.get(name) for name in expected} == expected, seen
    lake.client.wait_for_background()
    copy = published_copy(ours.location, tmp_path / "ours")
    for each in range(2, ours.version() + 1):
        assert canonical(delta_spark.rows(copy, each)) == canonical(ours.to_df(version=each).toArrow()), each
    delta_spark.sql(f"DELETE FROM delta.`{copy}` WHERE id % 4 = 0", f"UPDATE delta.`{copy}` SET n = 5 WHERE id % 4 = 1")
    last = ours.version() + 2
    assert canonical(our_rows(spark, copy, last)) == canonical(delta_spark.rows(copy, last))


def _check_changes(ours: DeltaTable, delta_spark: DeltaSpark, location: Path, version: int, seen: str) -> None:
    drop = ["_commit_timestamp", "_commit_version"]
    latest = ours.version()
    found = ours.changes(starting_version=latest, ending_version=latest).to_arrow()
    expected = their_changes(delta_spark, location, version, version)
    assert canonical(found.drop_columns(drop)) == canonical(expected.drop_columns(drop)), seen
