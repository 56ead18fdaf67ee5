"""The types of inputs and outputs: which annotation stands for which, and how rows become one of them.

pandas and polars are recognized by name, so that neither is imported unless an asset uses it.
"""

import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema, to_arrow_schema
from cm_delta_dagster.spark.schema import to_spark


class FrameType(StrEnum):
    """What a function gets or returns."""

    SPARK = "pyspark.sql.DataFrame"
    SNAPSHOT = "cm_delta_dagster.Snapshot"
    ARROW_TABLE = "pyarrow.Table"
    ARROW_READER = "pyarrow.RecordBatchReader"
    PANDAS = "pandas.DataFrame"
    POLARS = "polars.DataFrame"
    POLARS_LAZY = "polars.LazyFrame"


_BY_NAME = {
    ("pandas", "DataFrame"): FrameType.PANDAS,
    ("polars", "DataFrame"): FrameType.POLARS,
    ("polars", "LazyFrame"): FrameType.POLARS_LAZY,
}


def frame_type(annotation: Any) -> FrameType | None:
    """The type of an annotation without ``| None``; Spark for none, and None for a type that is not supported."""
    if annotation is Any or annotation is object:
        return FrameType.SPARK
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Snapshot):
        return FrameType.SNAPSHOT
    if issubclass(annotation, DataFrame) or issubclass(DataFrame, annotation):
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


def from_batches(batches: pa.RecordBatchReader, wanted: FrameType) -> Any:
    """The rows as a value of ``wanted``, which is not Spark and not a snapshot.

    Raises:
        EngineError: the package of the type is not installed.
    """
    match wanted:
        case FrameType.ARROW_READER:
            return batches
        case FrameType.ARROW_TABLE:
            return batches.read_all()
        case FrameType.PANDAS:
            return batches.read_all().to_pandas()
    frame = import_engine("polars").from_arrow(batches.read_all())
    return frame.lazy() if wanted is FrameType.POLARS_LAZY else frame


def spark_frame(value: Any, *, name: str, session: Callable[[], SparkSession]) -> DataFrame:
    """The rows of an output as a DataFrame of Spark.

    Args:
        name: of the asset, for messages.
        session: returns the session; called only for other types than Spark's.

    Raises:
        InvalidArgumentError: a type that is not supported, values that have no Arrow type in common, or a column that Delta
            cannot store.
    """
    wanted = frame_type(type(value))
    if wanted is FrameType.SPARK and isinstance(value, DataFrame):
        return value
    if wanted in (None, FrameType.SPARK, FrameType.SNAPSHOT):
        raise InvalidArgumentError(
            f"{name} returned a {type(value).__module__}.{type(value).__qualname__}; the Delta IO manager writes "
            f"{', '.join(kind for kind in FrameType if kind is not FrameType.SNAPSHOT)}. Return one of them, return nothing, or "
            "give the output another io_manager_key."
        )
    try:
        table = _arrow_table(value, wanted)
        schema = from_arrow_schema(table.schema)
        # No value changes, except that a time loses what is below a microsecond, which Delta cannot store.
        table = table.cast(to_arrow_schema(schema), safe=False)
    except InvalidArgumentError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise InvalidArgumentError(
            f"The {type(value).__name__} that {name} returned cannot be converted to Arrow: {error}. Nothing was written. Give "
            "each column a name of its own and values of one type."
        ) from error
    return session().createDataFrame(table, to_spark(schema))


def _arrow_table(value: Any, kind: FrameType) -> pa.Table:
    match kind:
        case FrameType.ARROW_TABLE:
            return value
        case FrameType.ARROW_READER:
            return value.read_all()
        case FrameType.PANDAS:
            return pa.Table.from_pandas(value, preserve_index=False).replace_schema_metadata(None)
        case FrameType.POLARS_LAZY:
            return value.collect().to_arrow()
    return value.to_arrow()


def _name_of(base: type) -> tuple[str, str]:
    return base.__module__.partition(".")[0], base.__name__
