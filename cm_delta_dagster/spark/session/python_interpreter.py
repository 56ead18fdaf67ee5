"""The Python interpreter of Spark's workers, for sessions that are started on this machine.

Spark starts ``python3`` of the ``PATH``. Unless the virtual environment is activated this is another interpreter than the running
one, without its packages, or of another version. A cluster has interpreters of its own, whose paths this process does not know.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_SETTINGS = ("spark.pyspark.python", "spark.pyspark.driver.python")
_MASTER = "spark.master"
_MASTER_ARGUMENT = re.compile(r"--master[ =]['\"]?([^\s'\"]+)")
_CONF_ARGUMENT = re.compile(r"--conf[ =]['\"]?(spark\.[\w.]+)=([^\s'\"]+)")


@contextmanager
def same_interpreter(settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block, a session that is started with a local master has workers of the running interpreter.

    An interpreter that the user chose, in the environment or in the settings of Spark, stays.

    Args:
        settings: of the session, with ``spark.master`` if it is given.
    """
    known = {**settings_of_environment(), **settings}
    is_chosen = any(os.environ.get(name) for name in _VARIABLES) or any(known.get(name) for name in _SETTINGS)
    # pyspark takes local[*] if no master is given.
    if is_chosen or not sys.executable or not known.get(_MASTER, "local[*]").startswith("local"):
        yield
        return
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, sys.executable))
    try:
        yield
    finally:  # pyspark and Java have read it; other processes that this one starts may be of other environments.
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def settings_of_environment() -> dict[str, str]:
    """The settings of a session that is started here, as far as files and the environment set them."""
    return {**_of_files(), **_of_arguments()}


def _of_arguments() -> dict[str, str]:
    """Settings of the arguments with which pyspark starts Java."""
    text = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    master = _MASTER_ARGUMENT.search(text)
    return {**dict(_CONF_ARGUMENT.findall(text)), **({} if master is None else {_MASTER: master[1]})}


def _of_files() -> dict[str, str]:
    """Settings of ``spark-defaults.conf``."""
    home = os.environ.get("SPARK_HOME", "")
    directory = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home) / "conf"))
    try:
        lines = (Path(directory) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines() if directory else []
    except (OSError, ValueError):
        return {}
    pairs = (re.split(r"[\s=:]+", line.strip(), maxsplit=1) for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}
