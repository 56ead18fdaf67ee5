"""The types of inputs and outputs: which annotation stands for which, and how rows become one of them.

pandas, polars and DuckDB are recognized by name, so that none is imported unless an asset uses it.
"""

import typing
from enum import StrEnum
from typing import Any

import pyarrow as pa

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.spark.library import is_frame_type


class FrameType(StrEnum):
    """What a function gets or returns."""

    SPARK = "pyspark.sql.DataFrame"
    SNAPSHOT = "cm_delta_dagster.Snapshot"
    ARROW_TABLE = "pyarrow.Table"
    ARROW_READER = "pyarrow.RecordBatchReader"
    PANDAS = "pandas.DataFrame"
    POLARS = "polars.DataFrame"
    POLARS_LAZY = "polars.LazyFrame"
    DUCKDB = "duckdb.DuckDBPyRelation"


class DtypeBackend(StrEnum):
    """The types of the columns of a pandas DataFrame, by the names that pandas has for them.

    ``pyarrow``: Arrow's, which hold what a table holds. ``numpy_nullable``: of pandas, where there are some. ``numpy``: a column
    of integers or booleans with NULL becomes one of floats or objects.
    """

    PYARROW = "pyarrow"
    NUMPY_NULLABLE = "numpy_nullable"
    NUMPY = "numpy"


_BY_NAME = {
    ("pandas", "DataFrame"): FrameType.PANDAS,
    ("polars", "DataFrame"): FrameType.POLARS,
    ("polars", "LazyFrame"): FrameType.POLARS_LAZY,
    ("duckdb", "DuckDBPyRelation"): FrameType.DUCKDB,
    ("_duckdb", "DuckDBPyRelation"): FrameType.DUCKDB,
}


def frame_type(annotation: Any) -> FrameType | None:
    """The type of an annotation without ``| None``; Spark for none, and None for a type that is not supported."""
    if annotation is Any or annotation is object:
        return FrameType.SPARK
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Snapshot):
        return FrameType.SNAPSHOT
    if is_frame_type(annotation):
        return FrameType.SPARK  # The classic or the Connect class; the session determines which one.
    if issubclass(annotation, pa.Table):
        return FrameType.ARROW_TABLE
    if issubclass(annotation, pa.RecordBatchReader):
        return FrameType.ARROW_READER
    return next((_BY_NAME[key] for base in annotation.__mro__ if (key := _name_of(base)) in _BY_NAME), None)


def without_none(annotation: Any) -> Any:
    """The annotation ``T`` of ``T | None``."""
    parts = typing.get_args(annotation)
    return next((part for part in parts if part is not type(None)), annotation) if type(None) in parts else annotation


def from_batches(batches: pa.RecordBatchReader, kind: FrameType, *, dtype_backend: DtypeBackend | None = None) -> Any:
    """The rows as a value of ``kind``, which is not Spark and not a snapshot.

    Args:
        dtype_backend: of a pandas DataFrame; Arrow's for None.

    Raises:
        EngineError: the package of the type is not installed.
    """
    match kind:
        case FrameType.ARROW_READER:
            return batches
        case FrameType.ARROW_TABLE:
            return batches.read_all()
        case FrameType.PANDAS:
            return _to_pandas(batches.read_all(), dtype_backend or DtypeBackend.PYARROW)
        case FrameType.DUCKDB:
            return import_engine("duckdb").from_arrow(batches.read_all())
    frame = import_engine("polars").from_arrow(batches.read_all())
    return frame.lazy() if kind is FrameType.POLARS_LAZY else frame


def _to_pandas(table: pa.Table, backend: DtypeBackend) -> Any:
    pandas = import_engine("pandas")
    if backend is DtypeBackend.NUMPY:
        return table.to_pandas()
    if backend is DtypeBackend.PYARROW:
        return table.to_pandas(types_mapper=pandas.ArrowDtype)
    nullable = {
        pa.int8(): pandas.Int8Dtype(),
        pa.int16(): pandas.Int16Dtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.float32(): pandas.Float32Dtype(),
        pa.float64(): pandas.Float64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
        pa.string(): pandas.StringDtype(),
    }
    return table.to_pandas(types_mapper=nullable.get)


def _name_of(base: type) -> tuple[str, str]:
    return base.__module__.partition(".")[0], base.__name__
