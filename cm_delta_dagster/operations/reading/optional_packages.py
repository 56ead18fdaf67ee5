"""Python packages that one kind of read needs and that an installation may lack."""

import importlib
from types import ModuleType

from cm_delta_dagster.errors import EngineError
from cm_delta_dagster.remedies import ReadWithoutSpark


def import_engine(package: str, *, module: str | None = None) -> ModuleType:
    """``package``, or its ``module``; the extra of this package that installs it has the same name.

    Raises:
        EngineError: it is not installed.
    """
    try:
        return importlib.import_module(module or package)
    except ImportError as error:
        raise EngineError(
            f"Reading with {package} requires the Python package {package!r}, which cannot be imported: {error}. Install it with "
            f"pip install '<path of the clone>[{package}]', or read the table without it."
        ).with_remedy(ReadWithoutSpark()) from error
