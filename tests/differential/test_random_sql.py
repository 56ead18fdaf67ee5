"""The same SQL statements, drawn at random, on one table by ``lake.sql`` and on another by delta-spark.

After each statement both have the same rows, schema, properties, constraints, features, changes and metrics, or both refused it.
"""

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.features.table_properties import default_properties
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical, published_copy
from tests.differential.random_sql import Shape, Statements, draw_shape
from tests.differential.test_changes import their_changes
from tests.differential.test_row_changes import COUNTED
from tests.golden.check_dml import FREE_PROPERTIES, clean_schema, compare
from tests.support.path_snapshots import load_path_snapshot

pytestmark = [pytest.mark.peers, pytest.mark.timeout(20_000)]

STATEMENTS = 10
_FIRST_SEED = int(os.environ.get("CM_DELTA_SEED", "0"))
_EXAMPLES = int(os.environ.get("CM_DELTA_EXAMPLES", "60"))
_TABLE = "main.random.t"
_OF_MANAGED_TABLES = frozenset(key for key in default_properties() if key.startswith("delta.checkpoint"))
_CHANGE_POSITION = ("_commit_timestamp", "_commit_version")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Connection]:
    home = tmp_path_factory.mktemp("random_sql")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        connection.maintenance.set_policy("main", "data_reorganization")
        yield connection
    spark.conf.set("spark.sql.session.timeZone", str(zone))


@dataclass(slots=True, kw_only=True)
class Counts:
    """What a run has compared."""

    tables: int = 0
    statements: int = 0
    refused: int = 0
    commits: int = 0
    differences: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Pair:
    """The two tables, and the statements that they went through."""

    lake: Connection
    peer: DeltaSpark
    name: str
    location: Path
    done: list[str] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)

    def ours(self) -> Snapshot:
        return self.lake.table(self.name).snapshot()

    def theirs(self) -> Snapshot:
        return load_path_snapshot(Stores(), f"file://{self.location}")

    def run(self, statement: str) -> tuple[str, str]:
        """Run a statement on both; the messages of those that refuse it."""
        self.done.append(statement)
        ours = theirs = ""
        try:
            self.lake.sql(self._text(statement, f"{self.name}", 0))
        except CmDeltaError as error:
            ours = f"{type(error).__name__}: {error}"
        try:
            # The rows of some statements cannot be had as Arrow.
            self.peer.sql(self._text(statement, f"delta.`{self.location}`", 1), "SELECT 1")
        except RuntimeError as error:
            theirs = str(error).partition("\n")[0]
        return ours, theirs

    def _text(self, statement: str, table: str, side: int) -> str:
        text = re.sub(r"\{v(\d+)\}", lambda found: str(self.versions[int(found[1])][side]), statement)
        return text.replace("{t}", table)


def run_seed(lake: Connection, peer: DeltaSpark, home: Path, seed: int, counts: Counts) -> None:
    """Draw a table and statements from ``seed``, and run them by both. Raises AssertionError at the first difference."""
    chance = random.Random(seed)
    shape = draw_shape(chance)
    pair = _Pair(lake=lake, peer=peer, name=f"{_TABLE}{seed}", location=home / f"theirs{seed}")
    statements = Statements(chance, shape)
    said = pair.run(shape.create)
    assert said == ("", ""), (seed, shape.create, said)
    pair.versions.append((pair.ours().version, pair.theirs().version))
    counts.tables += 1
    for _ in range(STATEMENTS):
        statements.versions = len(pair.versions)
        _step(pair, statements.draw(pair.ours().schema), shape, seed, counts)
    lake.client.wait_for_background()
    copy = published_copy(pair.ours().location, home / f"ours{seed}")
    read = canonical(peer.rows(copy, pair.ours().version))
    assert read == canonical(lake.table(pair.name).to_arrow()), f"seed {seed}: delta-spark reads our table otherwise"


def _step(pair: _Pair, statement: str, shape: Shape, seed: int, counts: Counts) -> None:
    before = (pair.ours().version, pair.theirs().version)
    refused, refused_by_them = pair.run(statement)
    text = "\n  ".join(pair.done)
    seen = f"seed {seed}, the last of\n  {text}\nours: {refused or 'done'}\ndelta-spark: {refused_by_them or 'done'}\n"
    assert bool(refused) == bool(refused_by_them), seen
    counts.statements += 1
    if refused:
        counts.refused += 1
        assert pair.ours().version == before[0], seen
        return
    ours, theirs = pair.ours(), pair.theirs()
    pair.versions.append((ours.version, theirs.version))
    counts.commits += ours.version > before[0]
    rows = canonical(pair.lake.table(pair.name).to_arrow())
    assert rows == canonical(pair.peer.sql(f"SELECT * FROM delta.`{pair.location}`")), seen
    for kind, found, expected in _states(ours, theirs):
        difference = compare(kind, expected, found, {"ignore_feature": ["v2Checkpoint"]})
        assert difference is None, f"{seen}{kind}: {difference}"
    _check_commits(pair, before, statement, shape, seen)


def _states(ours: Snapshot, theirs: Snapshot) -> Iterator[tuple[str, Any, Any]]:
    yield "schema", clean_schema(ours.metadata.schema_string), clean_schema(theirs.metadata.schema_string)
    yield "partition_columns", list(ours.metadata.partition_columns), list(theirs.metadata.partition_columns)
    for kind, wanted in (("properties", False), ("constraints", True)):
        yield kind, *(_configured(snapshot, constraints=wanted) for snapshot in (ours, theirs))
    yield "features", *(_features(snapshot) for snapshot in (ours, theirs))
    yield (
        "clustering",
        *(
            snapshot.domains["delta.clustering"].removed if "delta.clustering" in snapshot.domains else True
            for snapshot in (ours, theirs)
        ),
    )


def _configured(snapshot: Snapshot, *, constraints: bool) -> dict[str, str]:
    prefix = "delta.constraints."
    return {
        key: value
        for key, value in snapshot.metadata.configuration.items()
        if key.startswith(prefix) == constraints
        and (constraints or (key not in _OF_MANAGED_TABLES and not FREE_PROPERTIES.match(key)))
    }


def _features(snapshot: Snapshot) -> dict[str, Any]:
    protocol = snapshot.protocol
    return {"minWriterVersion": protocol.min_writer_version, "writerFeatures": list(protocol.writer_features or ())}


def _check_commits(pair: _Pair, before: tuple[int, int], statement: str, shape: Shape, seen: str) -> None:
    """The change feed and the metrics of the commits of one statement."""
    ours, theirs = pair.ours(), pair.theirs()
    if ours.version == before[0] or theirs.version == before[1]:
        return
    is_fed = shape.properties["delta.enableChangeDataFeed"] == "true" and not statement.startswith(
        ("CREATE", "RESTORE")
    )
    if is_fed:
        found = (
            pair.lake.table(pair.name).changes(starting_version=before[0] + 1, ending_version=ours.version).to_arrow()
        )
        expected = their_changes(pair.peer, pair.location, before[1] + 1, theirs.version)
        assert canonical(found.drop_columns(list(_CHANGE_POSITION))) == canonical(
            expected.drop_columns(list(_CHANGE_POSITION))
        ), f"{seen}change feed"
    if statement.startswith(("UPDATE", "DELETE", "MERGE")):
        made = pair.lake.table(pair.name).history(limit=1)[0].commit_info
        metrics = pair.peer.sql(f"DESCRIBE HISTORY delta.`{pair.location}` LIMIT 1")["operationMetrics"].to_pylist()[0]
        assert made is not None
        expected_counts = {name: value for name, value in metrics if name in COUNTED}
        counted = {name: (made.operation_metrics or {}).get(name) for name in expected_counts}
        assert counted == expected_counts, f"{seen}metrics"


@pytest.mark.requirements("DML-1", "DML-2", "CDF-2", "META-4", "RESTORE-1")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.exhaustive
def test_statements_of_some_seeds_do_what_delta_spark_does(
    lake: Connection, delta_spark: DeltaSpark, tmp_path: Path, seed: int
) -> None:
    run_seed(lake, delta_spark, tmp_path, seed, Counts())


@pytest.mark.requirements("DML-1", "DML-2", "CDF-2", "META-4", "RESTORE-1")
@pytest.mark.exhaustive
def test_random_statements_do_what_delta_spark_does(lake: Connection, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    """CM_DELTA_EXAMPLES tables; a failure prints its seed, for CM_DELTA_SEED."""
    counts = Counts()
    tried: set[int] = set()

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(1000, 10**9))
    def run(seed: int) -> None:
        if seed in tried:
            return
        tried.add(seed)
        print(f"seed {seed}", flush=True)
        try:
            run_seed(lake, delta_spark, tmp_path, seed, counts)
        except AssertionError as error:
            print(f"DIFFERENCE {error}", flush=True)
            counts.differences.append(str(error))

    if _FIRST_SEED:
        run_seed(lake, delta_spark, tmp_path, _FIRST_SEED, counts)
    else:
        run()
    print(
        counts.tables,
        "tables,",
        counts.statements,
        "statements,",
        counts.refused,
        "refused,",
        counts.commits,
        "commits",
    )
    assert not counts.differences, "\n\n".join(counts.differences)
