"""Jars with which Spark reaches object stores, from Maven, kept in the user's cache folder for all runs."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cm_delta_dagster.cli.main import main
from cm_delta_dagster.spark.jars import installed_versions


def s3_jars() -> list[Path]:
    return store_jars("s3")


def store_jars(store: str) -> list[Path]:
    """The jars that ``cm-delta spark-jars --store`` fetches; skips the test on a machine without Maven."""
    versions = installed_versions()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cm-delta-dagster"
    folder = cache / f"{store}-spark-{versions.spark}"
    if not (folder / "complete").exists():
        if shutil.which("mvn") is None:
            give_up = pytest.fail if store == "s3" and os.environ.get("CM_DELTA_REQUIRE_PEERS") else pytest.skip
            give_up(f"Spark's client of {store} is tested only where Maven can fetch it; no mvn on the PATH")
        fetched = CliRunner().invoke(main, ["spark-jars", "--store", store, "--to", str(folder)])
        assert fetched.exit_code == 0, fetched.output
        (folder / "complete").touch()
    return sorted(folder.glob("*.jar"))
