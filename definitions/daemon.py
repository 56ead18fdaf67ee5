"""Dagster's daemon in the process of the demo: sensors, schedules, automation, freshness and the queue of runs.

As with ``dagster-daemon``, sensors and schedules are evaluated in a code location, which is a process of its own. The runs that
they launch are executed in the process of the demo, one after the other, so that Java and Spark start once.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.controller import DagsterDaemonController, daemon_controller_from_instance

from cm_delta_dagster.errors import CmDeltaError
from definitions.console import clock_at, say

ROOT = Path(__file__).parents[1]
INSTANCE_SETTINGS = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    tag_concurrency_limits:
      - key: dagster/sensor_name
        value:
          applyLimitPerUniqueValue: true
        limit: 1
"""
"""Runs of one sensor are queued, so that no two of them overwrite the same table concurrently."""

_RUNS_IN_THIS_PROCESS = """\
compute_logs:
  module: definitions.compute_logs
  class: TickLogManager
  config:
    base_dir: {home}/storage
run_launcher:
  module: dagster._core.launcher.sync_in_memory_run_launcher
  class: SyncInMemoryRunLauncher
run_coordinator:
  module: dagster._core.run_coordinator.queued_run_coordinator
  class: QueuedRunCoordinator
  config:
    dequeue_interval_seconds: 1
"""
_CONFIG_FILE = "demo.yaml"
_CODE_LOCATION = "cm_delta_demo"
_POLL_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 900.0
_SENSOR_TAG = "dagster/sensor_name"
_COMMIT_TAG = "cm_delta_commit/"
_MAX_TICKS = 20


class DemoError(CmDeltaError):
    """The demo waited for the daemon without effect."""


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance in ``home`` with the settings of the demo's process; ``dg dev`` uses ``dagster.yaml`` beside them."""
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(INSTANCE_SETTINGS)
    (home / _CONFIG_FILE).write_text(settings.read_text() + _RUNS_IN_THIS_PROCESS.format(home=home.absolute()))
    instance = dg.DagsterInstance.from_config(str(home), _CONFIG_FILE)
    # At the start of each run Dagster configures the handlers of `python_logs`, and thereby locks all handlers of the process, also
    # if there are none. A second run in the process, which stores an event at that moment, would wait for it for ever.
    vars(instance)["get_yaml_python_handlers"] = list
    return instance


@contextmanager
def running_daemon(instance: dg.DagsterInstance) -> Iterator["Daemon"]:
    """Run the daemon within the block; it starts while the block begins. At the end its threads and processes have ended."""
    target = ModuleTarget(
        module_name="definitions.definitions",
        attribute=None,
        working_directory=str(ROOT),
        location_name=_CODE_LOCATION,
    )
    with ExitStack() as stack, ThreadPoolExecutor(1) as starter:

        def start() -> DagsterDaemonController:
            return stack.enter_context(
                daemon_controller_from_instance(instance, target, log_level="warning", code_server_log_level="warning")
            )

        daemon = Daemon(instance, starter.submit(start))
        try:
            yield daemon
        finally:
            daemon.wait_for_start()


class Daemon:
    """The running daemon, and what its sensors did since the last call of :meth:`report`."""

    def __init__(self, instance: dg.DagsterInstance, starting: "Future[DagsterDaemonController]") -> None:
        self._instance = instance
        self._starting = starting
        self._shown: set[object] = set()

    def wait_for_start(self) -> None:
        """Return when the daemon has started or has failed to."""
        self._starting.exception()

    def wait(self, done: Callable[[], bool], *, what: str) -> None:
        """Print what the sensors do until ``done`` holds.

        Raises:
            DemoError: a run failed, or nothing happened for minutes.
        """
        end = time.monotonic() + _LONGEST_WAIT_SECONDS
        while True:
            finished = done()
            self.report()
            if finished:
                return
            if self._starting.done():
                self._starting.result()  # Raises why the daemon did not start.
            if time.monotonic() > end:
                raise DemoError(f"The daemon did not do this within {_LONGEST_WAIT_SECONDS:.0f} seconds: {what}.")
            time.sleep(_POLL_SECONDS)

    def report(self) -> None:
        """Print the new ticks of sensors that did something, and the runs that they launched and that ended."""
        for state in self._instance.all_instigator_state():
            ticks = self._instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=_MAX_TICKS)
            for tick in reversed(ticks):
                text = self._tick_text(tick)
                if text and self._is_new(("tick", tick.tick_id)):
                    say(f"    {state.instigator_name}: {text}")
        for record in reversed(self._instance.get_run_records(limit=_MAX_TICKS)):
            run = record.dagster_run
            if _SENSOR_TAG not in run.tags and "dagster/from_automation_condition" not in run.tags:
                continue
            if run.is_finished and self._is_new(("run", run.run_id)):
                say(f"    run {run.run_id[:8]} of {_job_text(run)}: {run.status.value}{_times_text(record)}")
                if not run.is_success:
                    raise DemoError(f"The run {run.run_id} of {run.job_name}, which a sensor launched, failed.")

    def _tick_text(self, tick: InstigatorTick) -> str:
        """What a tick did; empty if it did nothing or has not ended."""
        if tick.status is TickStatus.FAILURE:
            return f"the tick failed: {tick.error.message.strip() if tick.error else 'unknown error'}"
        if tick.requested_asset_materialization_count:
            count = tick.requested_asset_materialization_count
            return f"requested {count} partition{'' if count == 1 else 's'}"
        if tick.status is TickStatus.SUCCESS:
            runs = [self._instance.get_run_by_id(run_id) for run_id in tick.run_ids]
            return "; ".join(f"launched {_launched_text(run)}" for run in runs if run is not None)
        reason = tick.skip_reason or ""
        return reason if reason.startswith("Reported") else ""

    def _is_new(self, key: object) -> bool:
        is_new = key not in self._shown
        self._shown.add(key)
        return is_new


def _launched_text(run: dg.DagsterRun) -> str:
    version, table = run.tags.get(f"{_COMMIT_TAG}version"), run.tags.get(f"{_COMMIT_TAG}table")
    return run.job_name if table is None else f"{run.job_name} for version {version} of {table}"


def _times_text(record: dg.RunRecord) -> str:
    """When the run was executed, which can be before the demo waited for it."""
    if record.start_time is None or record.end_time is None:
        return ""
    start, end = clock_at(record.start_time), clock_at(record.end_time)
    return f", ran from {start:.1f} to {end:.1f} s on this clock"


def _job_text(run: dg.DagsterRun) -> str:
    keys = sorted(key.to_user_string() for key in run.asset_selection or ())
    return ", ".join(keys) if keys else run.job_name
