"""The state machine: each rule runs one step that fits the state of the model.

Hypothesis chooses the seed of each step and not its parts, because it would choose the first of all options too often. A failing
sequence is a list of steps, which ``tests.api_model.reduce`` makes shorter.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyspark.sql import SparkSession

from tests.api_model.chosen_steps import Chooser
from tests.api_model.driver import Driver
from tests.api_model.next_step import next_step
from tests.api_model.sequence import finish, run_step
from tests.api_model.world import World


class ApiMachine(RuleBasedStateMachine):
    """One catalog with a few tables and two clients."""

    spark: ClassVar[SparkSession]
    outcomes: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory(prefix="api-model")
        self.world = World(Driver(Path(self.home.name), self.spark))
        self.has_failed = False

    @rule(seed=st.integers(0, 2**32))
    def step(self, seed: int) -> None:
        """A step of a kind that is possible."""
        number = len(self.world.done)
        self._guarded(lambda: run_step(self.world, next_step(self.world, Chooser((seed, number)))))

    def teardown(self) -> None:
        try:
            if not self.has_failed:
                self._guarded(lambda: finish(self.world))
        finally:
            for name, count in self.world.outcomes.items():
                self.outcomes[name] = self.outcomes.get(name, 0) + count
            self.world.driver.close()
            self.home.cleanup()

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self.has_failed = True
            raise AssertionError(f"{error}\nafter\n{self.world.text()}") from error
