"""PySpark, imported when a name of it is first used, so that a process that reads and writes by Arrow never imports it.

The classes are for annotations only: when a process runs they are ``Any``. ``is_frame`` and its like say what a value is.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import EngineError

__all__ = [
    "MISSING",
    "Column",
    "DataFrame",
    "F",
    "Row",
    "SparkDataType",
    "SparkSession",
    "SparkStructType",
    "StreamingQuery",
    "T",
    "captured_errors",
    "check_installed",
    "is_column",
    "is_data_type",
    "is_frame",
    "is_frame_type",
    "is_imported",
    "is_installed",
    "py4j_errors",
    "py4j_gateway",
    "pyspark",
    "pyspark_errors",
]

MISSING = (
    "PySpark is not installed in this environment. Install it with pip install '<path of the clone>[spark]', the extra of this "
    "package for Spark 4."
)
"""What a message says where Spark is needed and PySpark is not installed."""


_lock = threading.RLock()


class _ModuleOfSpark(DeferredModule):
    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(self.__name__), name)


@functools.cache
def _imported(name: str) -> ModuleType:
    """The module. The modules of PySpark import each other, so that threads may not import two of them at the same time."""
    check_installed()
    with _lock:
        importlib.import_module("pyspark")
        return importlib.import_module(name)


def check_installed() -> None:
    """Raise EngineError if PySpark is not installed."""
    if not is_installed():
        raise EngineError(f"This requires Spark. {MISSING}")


def is_installed() -> bool:
    """Whether PySpark can be imported."""
    return is_imported() or importlib.util.find_spec("pyspark") is not None


def is_imported() -> bool:
    """Whether this process has imported PySpark. Without it, there is no session, and no error is one of Spark."""
    return "pyspark.sql" in sys.modules


if TYPE_CHECKING:
    import py4j.java_gateway as py4j_gateway
    import py4j.protocol as py4j_errors
    import pyspark
    import pyspark.errors as pyspark_errors
    import pyspark.errors.exceptions.captured as captured_errors
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType as SparkDataType
    from pyspark.sql.types import StructType as SparkStructType
    from typing_extensions import TypeIs
else:
    # So that hints can be evaluated.
    Column = DataFrame = Row = SparkDataType = SparkSession = SparkStructType = StreamingQuery = Any
    py4j_gateway = _ModuleOfSpark("py4j.java_gateway")
    py4j_errors = _ModuleOfSpark("py4j.protocol")
    pyspark = _ModuleOfSpark("pyspark")
    captured_errors = _ModuleOfSpark("pyspark.errors.exceptions.captured")
    pyspark_errors = _ModuleOfSpark("pyspark.errors")
    F = _ModuleOfSpark("pyspark.sql.functions")
    T = _ModuleOfSpark("pyspark.sql.types")


def is_frame(value: object) -> TypeIs[DataFrame]:
    """Whether ``value`` is a DataFrame of PySpark, classic or of Spark Connect. Does not import PySpark."""
    return isinstance(value, _classes("pyspark.sql", "DataFrame"))


def is_frame_type(annotation: type) -> bool:
    """Whether ``annotation`` is a class of PySpark's DataFrames: the common one, or that of classic sessions or of Connect."""
    return any(
        issubclass(annotation, kind) or issubclass(kind, annotation) for kind in _classes("pyspark.sql", "DataFrame")
    )


def is_column(value: object) -> TypeIs[Column]:
    """Whether ``value`` is a Column of PySpark. Does not import PySpark."""
    return isinstance(value, _classes("pyspark.sql", "Column"))


def is_data_type(value: object) -> TypeIs[T.DataType]:
    """Whether ``value`` is a data type of PySpark, e.g. a StructType. Does not import PySpark."""
    return isinstance(value, _classes("pyspark.sql.types", "DataType"))


def _classes(module: str, name: str) -> tuple[type, ...]:
    """The class of that name; none while PySpark has not been imported, also if another thread is just importing it."""
    imported = getattr(sys.modules.get(module), name, None)
    return () if imported is None else (imported,)
