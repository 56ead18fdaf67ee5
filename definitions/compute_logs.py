"""Where the process of the demo stores output: that of ticks in files, that of steps not at all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from dagster._core.storage.compute_log_manager import CapturedLogContext
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager


class TickLogManager(LocalComputeLogManager):
    """Stores what sensors and schedules log, and does not capture the output of steps.

    Dagster captures the output of a step by replacing the file descriptors of the process. In a process that executes several
    runs at once these steps would exchange their outputs.
    """

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> Self:
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        yield CapturedLogContext(log_key)
