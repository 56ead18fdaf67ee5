"""Random sequences of calls of the whole API, compared with a model of rows by version.

A failure prints the steps as Python; ``python -m tests.api_model.reduce FILE`` makes them fewer. CM_DELTA_SEED chooses the
sequences of the long run, CM_DELTA_EXAMPLES their number and CM_DELTA_STEPS their length.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from tests.api_model.chosen_steps import Chooser
from tests.api_model.driver import Driver
from tests.api_model.machine import ApiMachine
from tests.api_model.next_step import next_step
from tests.api_model.sequence import finish, run_step
from tests.api_model.world import World

_EXAMPLES = int(os.environ.get("CM_DELTA_EXAMPLES", "60"))
_STEPS = int(os.environ.get("CM_DELTA_STEPS", "25"))


@pytest.fixture
def machine(utc_spark: SparkSession) -> Iterator[type[ApiMachine]]:
    """The machine; what its steps led to is printed."""

    class Machine(ApiMachine):
        pass

    Machine.spark, Machine.outcomes = utc_spark, {}
    yield Machine
    for name, number in sorted(Machine.outcomes.items()):
        print(f"{number:6} {name}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [2, 3, *(pytest.param(number, marks=pytest.mark.exhaustive) for number in (1, 4))])
def test_a_hundred_steps_do_what_the_model_says(number: int, utc_spark: SparkSession, tmp_path: Path) -> None:
    world = World(Driver(tmp_path, utc_spark))
    try:
        for position in range(25):
            run_step(world, next_step(world, Chooser((number, position))))
        finish(world)
    finally:
        print(world.text())
        world.driver.close()


@pytest.mark.exhaustive
@pytest.mark.timeout(20_000)
def test_random_steps_do_what_the_model_says(machine: type[ApiMachine]) -> None:
    number = int(os.environ.get("CM_DELTA_SEED") or random.randrange(10**9))
    print(f"CM_DELTA_SEED={number} CM_DELTA_EXAMPLES={_EXAMPLES} CM_DELTA_STEPS={_STEPS}", flush=True)
    chosen = settings(
        max_examples=_EXAMPLES,
        stateful_step_count=_STEPS,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    seed(number)(lambda: run_state_machine_as_test(machine, settings=chosen))()
