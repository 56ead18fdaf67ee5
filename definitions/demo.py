"""The steps of the demo: loads by runs, corrections by a script, what the daemon does then, and maintenance."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg

from cm_delta_dagster import ClientSettings, Connection
from cm_delta_dagster.orchestration import MaintenanceTask
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import job_name
from definitions.console import say, step
from definitions.daemon import Daemon, DemoError
from definitions.defs.automation import MAINTAINED, check_job, report_job
from definitions.defs.flights import flights, flights_enriched, weather
from definitions.defs.months import MONTHS, month_key
from definitions.defs.weather_checks import plausible_temperatures
from definitions.faulty_delivery import faulty_weather
from definitions.late_corrections import JUNE, correct
from resources.local import connect_local, home
from resources.raw_data import RawData

FLIGHTS = "main.nyc.flights"
JOINED = "main.nyc.flights_enriched"
WEATHER = "main.nyc.weather"
FAULTY_MONTH = 7
"""The month of the weather that is delivered with a fault."""

CONCURRENT_MONTHS = (month_key(2), month_key(3))
"""Two months of flights that two runs materialize at the same time."""

_SENSOR_VERSION_TAG = "cm_delta_commit/version"
_WAITED = "waited"
"""The daemon works while the steps of the demo run: such a step waits for the rest of its work."""

_MAX_ATTEMPTS = 5
_MAX_RUNS = 20
_INLINE_BYTES = 64 * 1024


@dataclass(kw_only=True)
class Demo:
    """What the steps share.

    Attributes:
        files: number of files of each table that is compacted, before and after.
        retries: conflict retries of the two concurrent writers, in the order of their months.
        checks: whether the check of the unpublished commits passed, after the corrections and after maintenance.
        audits: whether the audit of the weather passed: of twelve months, and of the faulty delivery of one.
    """

    instance: dg.DagsterInstance
    lake: Connection
    daemon: Daemon
    definitions: dg.Definitions
    files: dict[str, list[int]] = field(default_factory=dict)
    retries: tuple[int, ...] = ()
    checks: list[bool] = field(default_factory=list)
    audits: list[bool] = field(default_factory=list)

    def materialize(self, *keys: str, months: tuple[str, str] | None = None) -> list[Mapping[str, Any]]:
        """Materialize assets in one run; ``months`` is a range, with one commit for each table. Returns the metadata."""
        tags = {}
        if months is not None:
            tags = {"dagster/asset_partition_range_start": months[0], "dagster/asset_partition_range_end": months[1]}
        selection = [dg.AssetKey(["nyc", key]) for key in keys]
        job = self.definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(asset_selection=selection, instance=self.instance, tags=tags)
        events = [event.materialization for event in result.get_asset_materialization_events()]
        facts: list[Mapping[str, Any]] = []
        for found in events:
            if months is None or found.partition in (None, months[1]):
                facts.append({name: value.value for name, value in found.metadata.items()})
                say(f"    {facts[-1]['dagster/table_name']} version {facts[-1]['cm_delta/commit_version']}: "
                    f"{facts[-1]['dagster/row_count']:,} rows")  # fmt: skip
        return facts

    def fail(self, key: str, *, month: str) -> None:
        """Materialize a month of an asset in a run that must fail. Raises DemoError if it does not."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        selection = [dg.AssetKey(["nyc", key])]
        result = job.execute_in_process(
            asset_selection=selection, instance=self.instance, partition_key=month, raise_on_error=False
        )
        if result.success:
            raise DemoError(f"The audit did not refuse the faulty month {month} of {key}.")

    def wait_for_report(self, version: int) -> None:
        """Return when the run that the sensor launches for this version of the flights has ended."""
        tags = {_SENSOR_VERSION_TAG: str(version)}

        def done() -> bool:
            return any(
                run.is_finished for run in self.instance.get_runs(dg.RunsFilter(job_name=report_job.name, tags=tags))
            )

        self.daemon.wait(done, what=f"materialize the report for version {version} of {FLIGHTS}")

    def wait_for_join(self, *months: str) -> None:
        """Return when the joined months were computed from their newest flights, and no run is under way."""

        def done() -> bool:
            under_way = any(not run.is_finished for run in self.instance.get_runs(limit=_MAX_RUNS))
            return not under_way and all(self._is_joined(month) for month in months)

        self.daemon.wait(done, what=f"join the flights of {' and '.join(months)} again")

    def _is_joined(self, month: str) -> bool:
        read = self._newest(flights_enriched.key, month)["cm_delta/versions_read"][flights.key.to_user_string()]
        return bool(read["version"] >= self._newest(flights.key, month)["cm_delta/commit_version"])

    def _newest(self, key: dg.AssetKey, partition: str) -> Mapping[str, Any]:
        """The metadata of the newest materialization of a month."""
        selected = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
        (record,) = self.instance.fetch_materializations(selected, limit=1).records
        assert record.asset_materialization is not None
        return {name: entry.value for name, entry in record.asset_materialization.metadata.items()}

    def reported(self, version: int) -> None:
        """Print the events that the sensor stored for a commit from outside Dagster."""
        records = self.instance.fetch_materializations(flights.key, limit=len(MONTHS.get_partition_keys())).records
        for record in records:
            event = record.asset_materialization
            facts = {} if event is None else {name: value.value for name, value in event.metadata.items()}
            if event is not None and "cm_delta/reported_by" in facts and facts["cm_delta/commit_version"] == version:
                say(
                    f"    {facts['cm_delta/reported_by']} reported version {version} of {facts['dagster/table_name']}: "
                    f'{event.partition}, {facts["cm_delta/operation"]}, "{facts.get("cm_delta/user_metadata")}"'
                )

    def check(self) -> None:
        """Record the last result of the check of unpublished commits."""
        self.checks.append(self._last_result(flights.key, "unpublished_commits"))

    def audit(self) -> None:
        """Record the last result of the audit of the weather."""
        self.audits.append(self._last_result(weather.key, plausible_temperatures.check_key.name))

    def _last_result(self, key: dg.AssetKey, name: str) -> bool:
        """Whether the last execution of a check passed, which is printed."""
        history = self.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(key, name), limit=1
        )
        (record,) = history
        assert record.event is not None and record.event.dagster_event is not None
        result = record.event.dagster_event.asset_check_evaluation_data
        say(f"    check {result.check_name}: {'passed' if result.passed else 'FAILED'}. {result.description}")
        return bool(result.passed)

    def maintain(self, table: str, **actions: str) -> bool:
        """One run of a table's maintenance job; tasks that are not named are skipped. Returns whether the run succeeded."""
        config = {task.value: {"config": {"action": actions.get(task.value, "skip")}} for task in MaintenanceTask}
        job = self.definitions.resolve_job_def(job_name(table))
        result = job.execute_in_process(instance=self.instance, run_config={"ops": config}, raise_on_error=False)
        records = self.instance.fetch_observations(MAINTAINED[table], limit=2 * len(MaintenanceTask)).records
        own = [record.asset_observation for record in reversed(records) if record.run_id == result.run_id]
        for observation in own:
            assert observation is not None
            facts = {name: value.value for name, value in observation.metadata.items()}
            say(
                f"    {facts['cm_delta/operation']} of {table}: {facts['cm_delta/outcome']}. {facts['cm_delta/result']}"
            )
        return result.success

    def count_files(self) -> None:
        """Record the number of files of each table that is compacted."""
        for table in (FLIGHTS, JOINED):
            self.files.setdefault(table, []).append(self.lake.table(table).snapshot().num_files)


def run(demo: Demo) -> None:
    """All steps. Raises DemoError if the daemon does not do its part."""
    load(demo)
    deliver_faulty_month(demo)
    write_concurrently(demo)
    with connect_local(settings=ClientSettings(publish_delay=timedelta(seconds=3600))) as other:
        correct_from_outside(demo, other)
        maintain(demo)


def load(demo: Demo) -> None:
    """Load the tables: reference tables by key, the twelve months of the others by one run."""
    first, last = MONTHS.get_first_partition_key(), MONTHS.get_last_partition_key()
    with step("Reference tables, merged by key"):
        demo.materialize("airlines", "airports", "planes")
    with step(f"Flights, weather and both joined, {first} to {last}, one commit for each table"):
        facts = demo.materialize("flights", "weather", "flights_enriched", months=(str(first), str(last)))
        demo.audit()
    with step(
        "Meanwhile the sensor of the daemon has found the commits, and the daemon runs the report", spent=_WAITED
    ):
        demo.wait_for_report(_version(facts, FLIGHTS))


def deliver_faulty_month(demo: Demo) -> None:
    """A month of the weather with wrong temperatures: the commit is held, the audit fails, and the commit is discarded."""
    month = month_key(FAULTY_MONTH)
    with step(f"The weather of {month} is delivered again, with a fault; its audit runs before readers see the rows"):
        before = demo.lake.table(WEATHER).version()
        with faulty_weather(RawData(directory=str(home() / "raw")), FAULTY_MONTH):
            demo.fail("weather", month=month)
        demo.audit()
        after = demo.lake.table(WEATHER).version()
        say(
            f"    the run failed, and the commit was discarded: {WEATHER} was at version {before} and is at version {after}"
        )


def write_concurrently(demo: Demo) -> None:
    """Two runs write two months of one table at the same time: one commit is rebased onto the other."""
    with step(f"Two concurrent runs materialize {' and '.join(CONCURRENT_MONTHS)} of the flights again"):
        for _ in range(_MAX_ATTEMPTS):
            started = threading.Barrier(len(CONCURRENT_MONTHS))

            def write(month: str, started: threading.Barrier = started) -> Mapping[str, Any]:
                started.wait()
                return demo.materialize("flights", months=(month, month))[0]

            with ThreadPoolExecutor(len(CONCURRENT_MONTHS)) as writers:
                facts = list(writers.map(write, CONCURRENT_MONTHS))
            demo.retries = tuple(each["cm_delta/conflict_retries"] for each in facts)
            if any(demo.retries):
                break
            say("    the runs did not overlap, so neither had to retry; once more")
        say(f"    conflict retries: {' and '.join(map(str, demo.retries))}; each month was computed once")
    with step(
        "Meanwhile the sensor launches the report; the automation will join the two months again, as a backfill",
        spent=_WAITED,
    ):
        demo.wait_for_report(max(each["cm_delta/commit_version"] for each in facts))


def correct_from_outside(demo: Demo, other: Connection) -> None:
    """A script without Dagster corrects flights and leaves its commits unpublished; the daemon finds them."""
    with step("Late corrections by a script without Dagster, which does not publish its commits"):
        demo.lake.settings.set_commit_mode("main.nyc", "auto", inline_max_bytes=_INLINE_BYTES)
        merged, appended = correct(other)
        say(f"    {FLIGHTS} version {merged.version}: {merged.metrics.get('numTargetRowsUpdated')} flights corrected")
        say(f"    {FLIGHTS} version {appended.version}: {appended.num_output_rows} flight added")
    with step(
        "The sensor reports the commits and launches report and checks; the automation will join the month again",
        spent=_WAITED,
    ):
        demo.wait_for_report(appended.version)
        demo.reported(appended.version)
        demo.check()


def maintain(demo: Demo) -> None:
    """Maintenance: denied by default, then planned, allowed and executed."""
    demo.count_files()
    with step("Maintenance without permission: the catalog denies it, and the run fails"):
        succeeded = demo.maintain(FLIGHTS, compact="run", vacuum="run")
        say(f"    the run {'SUCCEEDED' if succeeded else 'failed, as the policy asks with on_denied'}")
    with step("The owner of the schema allows compaction, and vacuum of one table"):
        demo.lake.maintenance.set_policy(
            "main.nyc", "DATA_REORGANIZATION", reason="compaction of the demo's tables was approved"
        )
        demo.lake.maintenance.set_policy(FLIGHTS, "DATA_CLEANUP", reason="vacuum of flights was approved")
    with step("A dry run, then publication, checkpoint, compaction and vacuum by the maintenance job"):
        demo.maintain(FLIGHTS, compact="plan", vacuum="plan")
        demo.maintain(FLIGHTS, publish="run", checkpoint="run", compact="run", vacuum="run")
    with step("The checks of the flights again"):
        demo.definitions.resolve_job_def(check_job.name).execute_in_process(instance=demo.instance)
        demo.check()
    with step("Meanwhile the automation joins the changed months again", spent=_WAITED):
        demo.wait_for_join(*CONCURRENT_MONTHS, month_key(JUNE))
    with step("Compaction of another table by a script; the sensor reports an observation, which launches nothing"):
        result = demo.lake.table(JOINED).optimize()
        say(f"    {JOINED} version {result.version}: {result.num_removed_files} files became {result.num_added_files}")
        demo.daemon.wait(
            lambda: _is_observed(demo, result.version), what=f"report version {result.version} of {JOINED}"
        )
    demo.count_files()


def _is_observed(demo: Demo, version: int) -> bool:
    records = demo.instance.fetch_observations(flights_enriched.key, limit=_MAX_ATTEMPTS).records
    return any(
        record.asset_observation is not None
        and "cm_delta/reported_by" in record.asset_observation.metadata
        and record.asset_observation.metadata["cm_delta/commit_version"].value == version
        for record in records
    )


def _version(facts: Sequence[Mapping[str, Any]], table: str) -> int:
    return max(int(each["cm_delta/commit_version"]) for each in facts if each["dagster/table_name"] == table)
