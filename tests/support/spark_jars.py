"""Jars with which Spark reaches object stores, from Maven, kept in the user's cache folder for all runs."""

import shutil
from pathlib import Path

from click.testing import CliRunner

from cm_delta_dagster.cli.main import main
from cm_delta_dagster.spark.stores.jars import installed_versions
from tests.support.cached_folders import PeerUnavailableError, cached_folder, or_skip


def s3_jars() -> list[Path]:
    return store_jars("s3")


def store_jars(store: str) -> list[Path]:
    """The jars that ``cm-delta spark-jars --store`` fetches; skips the test on a machine without Maven."""
    name = f"{store}-spark-{installed_versions().spark}"
    return sorted(or_skip(cached_folder, name, lambda unfinished: _fetch(store, unfinished)).glob("*.jar"))


def _fetch(store: str, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise PeerUnavailableError(
            f"Spark's client of {store} is tested only where Maven can fetch it; no mvn on the PATH. Install Maven."
        )
    fetched = CliRunner().invoke(main, ["spark-jars", "--store", store, "--to", str(folder)])
    assert fetched.exit_code == 0, fetched.output
