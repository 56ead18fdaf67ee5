"""The demo without a UI: loads a year of flights, prints progress and a summary. ``python -m definitions``."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import dagster as dg

from cm_delta_dagster import Connection
from cm_delta_dagster.cli.client import parse_storage_options
from cm_delta_dagster.errors import CmDeltaError, StoreNotSupportedError
from cm_delta_dagster.orchestration import MaintenanceTask
from cm_delta_dagster.orchestration.maintenance_policy import job_name
from cm_delta_dagster.orchestration.run_checks import check_session, checked_warehouse
from definitions.definitions import defs as load_definitions
from definitions.defs.automation import MAINTAINED, commit_sensor
from definitions.defs.flights import DAYS, FLIGHT_KEY, flights_enriched
from definitions.late_corrections import merge_corrections
from resources.environment import SPARK_JARS, STORAGE_OPTIONS, WAREHOUSE
from resources.local import connect_local, home, local_spark
from resources.local import warehouse as warehouse_location
from resources.raw_data import RawData

QUARTERS = (
    ("2013-01-01", "2013-03-31"),
    ("2013-04-01", "2013-06-30"),
    ("2013-07-01", "2013-09-30"),
    ("2013-10-01", "2013-12-31"),
)
QUIET = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
"""Run configuration that hides Dagster's events on the console; the UI shows them."""

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

COMPACTED = ("main.nyc.flights", "main.nyc.flights_enriched")
"""Tables with several files for each day, which maintenance compacts."""

_COLUMNS = 120
_STARTED = time.monotonic()


def say(text: str) -> None:
    """Print progress with the time since the start; long text is folded and indented."""
    clock = f"[{time.monotonic() - _STARTED:6.1f} s] "
    for line in folded(text, width=_COLUMNS - len(clock)):
        print(clock + line, flush=True)
        clock = " " * len(clock)


def folded(text: str, *, width: int = _COLUMNS) -> list[str]:
    """``text`` in lines of at most ``width`` columns, all but the first indented; words are not split."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(text, width=width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print ``title`` before the block and its duration after it."""
    started = time.monotonic()
    say(f"{title} ...")
    yield
    say(f"    done in {time.monotonic() - started:.1f} s")


class Demo:
    """The demo without a daemon: executes in sequence what daemon and UI would do, on the same instance."""

    def __init__(self, instance: dg.DagsterInstance, lake: Connection) -> None:
        self.instance = instance
        self.lake = lake
        self.definitions = load_definitions()
        self.cursor: str | None = None
        self.follow_cursor: Any = None

    def materialize(self, *keys: str, days: tuple[str, str] | None = None) -> None:
        """Materialize assets of the demo; ``days`` is a range for one run, with one commit for each table."""
        tags = {}
        if days is not None:
            tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[1]}
        selection = [dg.AssetKey(["nyc", key]) for key in keys]
        job = self.definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(asset_selection=selection, instance=self.instance, tags=tags, run_config=QUIET)
        for event in result.get_asset_materialization_events():
            found = event.materialization
            if days is None or found.partition in (None, days[1]):
                facts = {name: value.value for name, value in found.metadata.items()}
                say(f"    {facts.get('dagster/table_name')} version {facts.get('cm_delta/commit_version')}: "
                    f"{facts.get('dagster/row_count'):,} rows")  # fmt: skip

    def tick(self) -> None:
        """Evaluate the sensor, store its events and execute its run requests, as the daemon does."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources=dict(self.definitions.resources or {})
        ) as context:
            result = commit_sensor.evaluate_tick(context)
        found: Counter[str] = Counter()
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
            kind = type(event).__name__.removeprefix("Asset").lower()
            version = event.metadata["cm_delta/commit_version"].value
            found[f"{event.asset_key.to_user_string()} -> {kind} at version {version}"] += 1
        for text, count in found.items():
            say(f"    sensor: {text}" + (f", {count} partitions" if count > 1 else ""))
        for request in result.run_requests or ():
            say(f"    sensor: run of the report requested, run key {request.run_key}")
            self.materialize("carrier_months")
        if not result.asset_events and not result.run_requests:
            say(f"    sensor: {result.skip_message}")
        self.cursor = result.cursor or self.cursor

    def follow(self) -> None:
        """Join the days again whose flights or weather changed, as the automation sensor does: one run for each range."""
        evaluated = dg.evaluate_automation_conditions(
            self.definitions,
            self.instance,
            asset_selection=dg.AssetSelection.assets(flights_enriched.key),
            cursor=self.follow_cursor,
        )
        self.follow_cursor = evaluated.cursor
        for first, last in ranges(evaluated.get_requested_partitions(flights_enriched.key)):
            say(f"    automation: flights_enriched is materialized again, {first} to {last}")
            self.materialize("flights_enriched", days=(first, last))

    def hand_over(self) -> None:
        """Set the cursor of the daemon's sensor to the last commit of this run, so that it does not report commits again."""
        root = Path(__file__).parents[1]
        for command in (["cursor", commit_sensor.name, "--set", self.cursor or ""], ["start", commit_sensor.name]):
            arguments = [sys.executable, "-m", "dagster", "sensor", *command, "-w", str(root / "workspace.yaml")]
            done = subprocess.run(arguments, cwd=root, capture_output=True, text=True)
            if done.returncode:
                say(
                    f"    this failed, so the sensor starts with the first commit: {done.stderr.strip().splitlines()[-1:]}"
                )
                return
        say("    the sensor is started and continues after the last commit reported above")

    def maintain(self, table: str, **actions: str) -> None:
        """One run of a table's maintenance job; tasks that are not named are skipped."""
        config = {task.value: {"config": {"action": actions.get(task.value, "skip")}} for task in MaintenanceTask}
        job = self.definitions.resolve_job_def(job_name(table))
        job.execute_in_process(instance=self.instance, run_config={"ops": config, **QUIET})
        records = self.instance.fetch_observations(MAINTAINED[table], limit=len(actions)).records
        for record in reversed(records):
            observation = record.asset_observation
            if observation is not None:
                facts = {name: value.value for name, value in observation.metadata.items()}
                say(
                    f"    {facts['cm_delta/operation']} of {table}: {facts['cm_delta/outcome']}. {facts['cm_delta/result']}"
                )

    def files(self) -> dict[str, int]:
        """Number of files of each table that is compacted."""
        return {table: self.lake.table(table).snapshot().num_files for table in COMPACTED}


def ranges(days: Iterable[str | None]) -> list[tuple[str, str]]:
    """First and last day of each contiguous range of days."""
    found: list[tuple[str, str]] = []
    keys = list(DAYS.get_partition_keys())
    for key in sorted(day for day in days if day is not None):
        if found and keys.index(key) == keys.index(found[-1][1]) + 1:
            found[-1] = (found[-1][0], key)
        else:
            found.append((key, key))
    return found


def table_of(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    """A text table; numbers are aligned to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    numeric = [isinstance(rows[0][index], int) if rows else False for index in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * width for width in widths), *(line(row) for row in cells[1:])])


def raw_counts(raw: RawData) -> dict[str, int]:
    """Lines of the raw CSV files without their headers."""
    counts = {}
    for name in ("flights", "weather", "planes", "airports", "airlines"):
        with open(raw.path(name).removeprefix("file://"), "rb") as file:
            counts[name] = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b"")) - 1
    return counts


def run(demo: Demo) -> None:
    """Load the tables, correct them, and evaluate the sensor after each step."""
    with step("Reference tables, merged by key"):
        demo.materialize("airlines", "airports", "planes")
    for first, last in QUARTERS:
        with step(f"Flights, weather and both joined, {first} to {last}, one commit for each table"):
            demo.materialize("flights", "weather", "flights_enriched", days=(first, last))
    with step("The sensor reports the ratified commits and launches the report"):
        demo.tick()
        demo.follow()
    with step("Late corrections, merged by a script without Dagster"):
        result = merge_corrections()
        say(f"    main.nyc.flights version {result.version}: {result.metrics.get('numTargetRowsUpdated')} flights corrected, "
            f"{result.metrics.get('numTargetRowsInserted')} added")  # fmt: skip
    with step("The sensor reports the commit: the report and the changed days of the join are materialized again"):
        demo.tick()
        demo.follow()
    with step("One day of flights is materialized again, as in the UI: only that day is replaced"):
        demo.materialize("flights", days=("2013-11-28", "2013-11-28"))
        demo.tick()
        demo.follow()


def maintain(demo: Demo) -> tuple[dict[str, int], dict[str, int]]:
    """Run maintenance: denied by default, then planned, allowed and executed. Returns files before and after."""
    before = demo.files()
    with step("Maintenance without permission: the catalog denies it"):
        demo.maintain("main.nyc.flights", compact="run", vacuum="run")
    with step("The owner of the schema allows compaction, and vacuum of one table"):
        demo.lake.allow("main.nyc", "DATA_REORGANIZATION", "compaction of the demo's tables was approved")
        demo.lake.allow("main.nyc.flights", "DATA_CLEANUP", "vacuum of flights was approved")
    with step("A dry run, then compaction and vacuum by the maintenance job"):
        demo.maintain("main.nyc.flights", compact="plan", vacuum="plan")
        demo.maintain("main.nyc.flights", publish="run", checkpoint="run", compact="run", vacuum="run")
    with step("Compaction of another table by a script outside Dagster"):
        result = demo.lake.table("main.nyc.flights_enriched").optimize()
        say(
            f"    main.nyc.flights_enriched version {result.version}: "
            f"{result.num_removed_files} files became {result.num_added_files}"
        )
    with step("The sensor reports an observation, which triggers no downstream run, because no row changed"):
        demo.tick()
    with step("The sensor of dg dev gets the cursor, so that it does not repeat these reports"):
        demo.hand_over()
    return before, demo.files()


def summary(demo: Demo, before: dict[str, int], after: dict[str, int]) -> bool:
    """Print tables, files and rows, and whether the tables have exactly the rows of the raw files."""
    raw = raw_counts(RawData(directory=str(home() / "raw")))
    rows = []
    for name in demo.lake.tables():
        snapshot = demo.lake.table(name).snapshot()
        rows.append(
            (
                name,
                snapshot.num_rows or 0,
                snapshot.version,
                snapshot.data_version,
                snapshot.published_version,
                snapshot.num_files,
            )
        )
    print(f"\n{table_of(rows, ('table', 'rows', 'version', 'data version', 'published', 'files'))}\n")
    compacted = [(table, before[table], after[table]) for table in COMPACTED]
    print(f"{table_of(compacted, ('compacted', 'files before', 'after'))}\n")
    print("\n".join(folded(about_weather(demo))) + "\n")
    right = True
    for name, expected in raw.items():
        found = demo.lake.table(f"main.nyc.{name}").to_df().count()
        wanted = expected + (1 if name == "flights" else 0)
        right &= found == wanted
        extra = " + 1 late flight" if name == "flights" else ""
        print(
            f"{'ok ' if found == wanted else 'BAD'} main.nyc.{name}: {found:,} rows; the raw file has {expected:,}{extra}"
        )
    right &= check_joined(demo)
    print(f"\nThe catalog is {home()}/catalog.db, the tables are in {warehouse_location()}. To inspect them:")
    print(f"    {look()}" + (f"  # with the same {STORAGE_OPTIONS}" if STORAGE_OPTIONS in os.environ else ""))
    print(f"    cm-delta --catalog sqlite:///{home()}/catalog.db commits main.nyc.flights")
    return right


def about_weather(demo: Demo) -> str:
    """Why the table of the weather is not compacted."""
    table = demo.lake.table("main.nyc.weather")
    present = {str(day) for day in table.to_arrow(["date"])["date"].unique().to_pylist()}
    missing = [day for day in DAYS.get_partition_keys() if day not in present]
    return (
        f"main.nyc.weather is not compacted: its {table.snapshot().num_files:,} files hold one day each, and the raw file "
        f"has no line for {' and '.join(missing)}."
    )


def check_joined(demo: Demo) -> bool:
    """Whether the joined table has the flights with the corrections."""
    key = [*FLIGHT_KEY, "dep_delay", "arr_delay"]
    flights = demo.lake.table("main.nyc.flights").to_df().select(key)
    joined = demo.lake.table("main.nyc.flights_enriched").to_df().select(key)
    stale = flights.exceptAll(joined).count() + joined.exceptAll(flights).count()
    print(f"{'BAD' if stale else 'ok '} main.nyc.flights_enriched: {stale:,} rows differ from the corrected flights")
    return not stale


@click.command()
@click.option("--fresh", is_flag=True, help="Delete the local tables of an earlier run first.")
@click.option(
    "--warehouse",
    envvar=WAREHOUSE,
    metavar="URI",
    help="Where the tables go, e.g. s3://bucket/path. Default: a local directory. The catalog is always a local file.",
)
@click.option(
    "--storage-option",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"Option of the warehouse's store, e.g. endpoint_url=https://host. Put secrets as JSON into {STORAGE_OPTIONS}.",
)
@click.option(
    "--spark-jars", envvar=SPARK_JARS, metavar="DIR", help="Directory that `cm-delta spark-jars --to DIR` has filled."
)
def main(fresh: bool, warehouse: str | None, pairs: tuple[str, ...], spark_jars: str | None) -> None:
    """Load a year of flights into catalog-managed tables, correct them, run sensor and maintenance, check the result."""
    set_environment(warehouse, pairs, spark_jars)
    if fresh and WAREHOUSE in os.environ:
        raise click.UsageError(
            f"--fresh deletes {home()} only, and not the tables in {warehouse_location()}. For another run there give an empty "
            "--warehouse, and another CM_DELTA_HOME."
        )
    prepare_home(fresh=fresh)
    with dg.DagsterInstance.get() as instance, connection() as lake:
        demo = Demo(instance, lake)
        run(demo)
        before, after = maintain(demo)
        right = summary(demo, before, after)
    if not right:
        sys.exit(1)


def set_environment(warehouse: str | None, pairs: tuple[str, ...], spark_jars: str | None) -> None:
    """Set the variables that the resources of this process and of its children read."""
    options = parse_storage_options(pairs, os.environ.get(STORAGE_OPTIONS))
    if spark_jars and not any(Path(spark_jars).glob("*.jar")):
        raise click.UsageError(
            f"--spark-jars takes a directory with jars, and no jar is in {spark_jars}. Fetch them with: cm-delta spark-jars "
            "--to DIR"
        )
    given = {WAREHOUSE: warehouse, STORAGE_OPTIONS: json.dumps(options) if options else None, SPARK_JARS: spark_jars}
    os.environ.update({name: value for name, value in given.items() if value is not None})


def prepare_home(*, fresh: bool) -> None:
    """Make the directories of catalog and instance. Raises UsageError if they have the tables of an earlier run."""
    own_instance = "DAGSTER_HOME" not in os.environ
    os.environ.setdefault("DAGSTER_HOME", str(Path(".dagster").absolute()))
    if home().exists() and fresh:
        shutil.rmtree(home())
        if own_instance:
            # The instance has events and cursors of the former catalog, which are invalid for the new one.
            shutil.rmtree(os.environ["DAGSTER_HOME"], ignore_errors=True)
    Path(os.environ["DAGSTER_HOME"]).mkdir(parents=True, exist_ok=True)
    settings = Path(os.environ["DAGSTER_HOME"]) / "dagster.yaml"
    if not settings.exists():
        settings.write_text(INSTANCE_SETTINGS)
    if (home() / "catalog.db").exists():
        again = (
            "Set CM_DELTA_HOME to another directory"
            if WAREHOUSE in os.environ
            else "Use --fresh to delete it and start again"
        )
        raise click.UsageError(
            f"{home()} has the catalog of an earlier run. {again}, or inspect its tables:\n    {look()}"
        )
    home().mkdir(parents=True, exist_ok=True)


@contextmanager
def connection() -> Iterator[Connection]:
    """The demo's tables. A bucket that cannot be reached or missing jars end the demo before anything is loaded."""
    with ExitStack() as opened:
        try:
            spark = local_spark()
            lake = opened.enter_context(connect_local())
            opened.enter_context(checked_warehouse(lake.client))
            check_session(spark.spark_session)
        except CmDeltaError as error:
            opened.close()
            for file in home().glob("catalog.db*"):
                file.unlink()  # This run created it, and it has no tables.
            lacks_jars = isinstance(error, StoreNotSupportedError) and "spark-jars" in str(error)
            hint = " For the demo, give the directory with --spark-jars DIR." if lacks_jars else ""
            raise click.ClickException(f"Nothing was loaded. {error}{hint}") from error
        yield lake


def look() -> str:
    """The command that starts the UI. With another instance, dg dev would materialize all assets again."""
    places = {name: os.environ[name] for name in ("DAGSTER_HOME", WAREHOUSE, SPARK_JARS) if name in os.environ}
    return " ".join([*(f"{name}={value}" for name, value in places.items()), "dg dev"])


if __name__ == "__main__":
    main()
