"""An environment in which PySpark is not installed, made of the packages of this one."""

import os
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def environment_without_pyspark(directory: Path) -> dict[str, str]:
    """The variables of a process of this interpreter with all packages of this environment but PySpark and py4j.

    Start it with ``python -S``: then it does not add the environment's own directory of packages.

    Args:
        directory: an empty one, which gets a link to each package.
    """
    packages = Path(sysconfig.get_path("purelib"))
    for entry in packages.iterdir():
        if not entry.name.lower().startswith(("pyspark", "py4j", "__pycache__")):
            (directory / entry.name).symlink_to(entry)
    return {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{directory}"}
