"""The command of the demo: loads a year of flights, prints progress and a summary. ``python -m definitions``."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import dagster as dg

from cm_delta_dagster import Connection
from cm_delta_dagster.cli.options import parse_storage_options
from cm_delta_dagster.errors import CmDeltaError, StoreNotSupportedError
from cm_delta_dagster.orchestration.runs.run_checks import check_session, checked_warehouse
from definitions.console import errors_to, say, step
from definitions.daemon import DemoError, open_instance, running_daemon
from definitions.definitions import defs as load_definitions
from definitions.demo import FLIGHTS, Demo, run
from definitions.summary import summarize
from resources.environment import SPARK_JARS, STORAGE_OPTIONS, WAREHOUSE
from resources.local import connect_local, home, local_spark
from resources.local import warehouse as warehouse_location
from resources.raw_data import RawData

_INTERRUPTED = 130
"""Exit code of a process that Ctrl-C ended."""


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
    """Load a year of flights into catalog-managed tables, correct them, run daemon and maintenance, check the result."""
    set_environment(warehouse, pairs, spark_jars)
    if fresh and WAREHOUSE in os.environ:
        raise click.UsageError(
            f"--fresh deletes {home()} only, and not the tables in {warehouse_location()}. For another run there give an empty "
            "--warehouse, and another CM_DELTA_HOME."
        )
    prepare_home(fresh=fresh)
    try:
        right = load_and_check()
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        say("Interrupted. The daemon has stopped. To start again: python -m definitions --fresh")
        sys.exit(_INTERRUPTED)
    except DemoError as error:
        raise click.ClickException(str(error)) from error
    if not right:
        sys.exit(1)


def load_and_check() -> bool:
    """Run all steps while the daemon runs, and print the summary. Returns whether the tables are as expected."""
    dagster_home = Path(os.environ["DAGSTER_HOME"])
    with open_instance(dagster_home) as instance, connection() as lake:
        with (dagster_home / "demo.log").open("a") as log, errors_to(log), running_daemon(instance) as daemon:
            demo = Demo(instance=instance, lake=lake, daemon=daemon, definitions=load_definitions())
            run(demo)
        say(f"The daemon has stopped. The log of its runs is {dagster_home}/demo.log.")
        right = summarize(demo, RawData(directory=str(home() / "raw")))
    print(f"\nThe catalog is {home()}/catalog.db, the tables are in {warehouse_location()}. To inspect them:")
    print(f"    {look()}" + (f"  # with the same {STORAGE_OPTIONS}" if STORAGE_OPTIONS in os.environ else ""))
    print(f"    cm-delta --catalog sqlite:///{home()}/catalog.db commits {FLIGHTS}")
    return right


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
            with step("Java and Spark start, and the warehouse is checked"):
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
