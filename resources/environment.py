"""The environment variables of a deployment.

| variable | content |
|---|---|
| ``CM_DELTA_CATALOG_URL`` | database of the catalog, e.g. ``postgresql+psycopg://user:password@host/catalog`` |
| ``CM_DELTA_WAREHOUSE`` | where tables are, e.g. ``s3://bucket/tables`` |
| ``CM_DELTA_STORAGE_OPTIONS`` | options of the warehouse's store as a JSON object, e.g. ``{"endpoint_url": "https://..."}`` |
| ``CM_DELTA_SPARK`` | ``local[4]``, ``spark://host:7077`` or another master, or ``sc://host:15002`` for Spark Connect |
| ``CM_DELTA_SPARK_JARS`` | directory with the jars of the store, as ``cm-delta spark-jars`` fills it |
| ``CM_DELTA_SPARK_CONFIG`` | further Spark settings as a JSON object of texts |
| ``CM_DELTA_RAW`` | directory for the raw files of the demo; the executors of a cluster must see it too |
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError

CATALOG_URL = "CM_DELTA_CATALOG_URL"
WAREHOUSE = "CM_DELTA_WAREHOUSE"
STORAGE_OPTIONS = "CM_DELTA_STORAGE_OPTIONS"
SPARK = "CM_DELTA_SPARK"
SPARK_JARS = "CM_DELTA_SPARK_JARS"
SPARK_CONFIG = "CM_DELTA_SPARK_CONFIG"
RAW = "CM_DELTA_RAW"


def check_required(names: Sequence[str]) -> None:
    """Raise one InvalidArgumentError that has the names of all variables that are missing or empty."""
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise InvalidArgumentError(
            f"{', '.join(missing)} {verb} not set. This deployment takes its settings from the environment of the process that "
            "loads the definitions and of the runs. docs/deploying.md describes each variable."
        )


def json_object(name: str) -> dict[str, Any]:
    """The JSON object in a variable; empty if it is not set. Raises InvalidArgumentError, whose message has no value."""
    text = os.environ.get(name)
    if not text:
        return {}
    with suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    raise InvalidArgumentError(f'{name} is not a JSON object such as {{"name": "value"}}.')


def storage_options() -> Any:
    """The storage options for a ``CatalogResource``: a reference to the variable, so that Dagster does not show keys.

    Raises:
        InvalidArgumentError: the variable is malformed.
    """
    return dg.EnvVar(STORAGE_OPTIONS) if json_object(STORAGE_OPTIONS) else {}


def spark_config() -> Any:
    """The Spark settings for a ``SparkResource``: a reference to the variable, so that Dagster does not show keys.

    Raises:
        InvalidArgumentError: the variable is malformed, or a value is not text.
    """
    settings = json_object(SPARK_CONFIG)
    wrong = sorted(name for name, value in settings.items() if not isinstance(value, str))
    if wrong:
        raise InvalidArgumentError(
            f"The values of {', '.join(wrong)} in {SPARK_CONFIG} must be text. Put them in quotes."
        )
    return dg.EnvVar(SPARK_CONFIG) if settings else {}


def spark_jars() -> list[str]:
    """Jar files of the environment's directory; empty if it is not set. Raises InvalidArgumentError if it has none."""
    directory = os.environ.get(SPARK_JARS)
    if not directory:
        return []
    jars = sorted(str(jar.absolute()) for jar in Path(directory).glob("*.jar"))
    if not jars:
        raise InvalidArgumentError(
            f"{SPARK_JARS} must be a directory with jars, and no jar is in {directory}. Fetch them with: cm-delta spark-jars "
            "--to DIR"
        )
    return jars
