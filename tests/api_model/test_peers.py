"""delta-spark reads what a random sequence of calls leaves, from a copy of the log without the features of the catalog."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.api_model import checks
from tests.api_model.chosen_steps import Chooser
from tests.api_model.driver import Driver
from tests.api_model.next_step import next_step
from tests.api_model.sequence import finish, run_step
from tests.api_model.world import World
from tests.differential.peers import DeltaSpark, published_copy

pytestmark = [pytest.mark.peers, pytest.mark.exhaustive, pytest.mark.timeout(1800)]


@pytest.mark.requirements("DML-1")
@pytest.mark.parametrize("seed", range(11, 18))
def test_delta_spark_reads_the_end_of_a_sequence(
    seed: int, utc_spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    (tmp_path / "ours").mkdir()
    world = World(Driver(tmp_path / "ours", utc_spark))
    try:
        for position in range(20):
            run_step(world, next_step(world, Chooser((seed, position))))
        finish(world)
        for name, model in world.tables.items():
            world.driver.log_step(name, "publish", 0)
            copy = published_copy(world.driver.table(name).location, tmp_path / name)
            for number in model.certain()[-3:]:
                found = delta_spark.rows(copy, number).to_pylist()
                version = model.versions[number]
                checks.compare(
                    f"delta-spark reads version {number} of {name}",
                    checks.counted(checks.known(found, version)),
                    checks.shown(version),
                )
    finally:
        print(world.text())
        world.driver.close()
