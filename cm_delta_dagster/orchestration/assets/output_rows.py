"""The rows of an output of Arrow, pandas or polars as an Arrow table with the types of Delta, and as a DataFrame of Spark.

No value changes, except that a time loses what is below a microsecond, which Delta cannot store. What would be stored as another
value is refused with the name of the column.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.arrow.columns import FileLayout
from cm_delta_dagster.arrow.write.arrow_rows import converting, from_pandas, from_polars
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.metadata.frame_types import FrameType, frame_type
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema, to_arrow_schema
from cm_delta_dagster.protocol.schema.types import StructField
from cm_delta_dagster.spark.expressions.schema import to_spark


def spark_frame(value: Any, *, name: str, session: Callable[[], SparkSession]) -> DataFrame:
    """The rows of an output as a DataFrame of Spark.

    Args:
        name: of the asset, for messages.
        session: returns the session; called only for other types than Spark's.

    Raises:
        InvalidArgumentError: a type that is not supported, values that have no Arrow type in common, or a column that Delta
            cannot store.
    """
    kind = frame_type(type(value))
    if kind is FrameType.SPARK and isinstance(value, DataFrame):
        return value
    if kind is None or kind in (FrameType.SPARK, FrameType.SNAPSHOT):
        raise InvalidArgumentError(
            f"{name} returned a {type(value).__module__}.{type(value).__qualname__}; the Delta IO manager writes "
            f"{', '.join(kind for kind in FrameType if kind is not FrameType.SNAPSHOT)}. Return one of them, return nothing, or "
            "give the output another io_manager_key."
        )
    table = output_rows(value, kind, name=name)
    return session().createDataFrame(table, to_spark(from_arrow_schema(table.schema)))


def output_rows(value: Any, kind: FrameType, *, name: str) -> pa.Table:
    """The rows of ``value``.

    Args:
        kind: the type of ``value``, which is none of Spark's.
        name: of the asset, for messages.

    Raises:
        InvalidArgumentError: a column whose values Arrow or Delta does not have, or that have no type in common.
    """
    what = f"The {type(value).__name__} that {name} returned"
    with converting(what):
        return _delta_table(_arrow_table(value, kind, what))


def _arrow_table(value: Any, kind: FrameType, what: str) -> pa.Table:
    match kind:
        case FrameType.ARROW_TABLE:
            return value
        case FrameType.ARROW_READER:
            return value.read_all()
        case FrameType.PANDAS:
            return from_pandas(value, what)
        case _:
            return from_polars(value, what)


def _delta_table(table: pa.Table) -> pa.Table:
    """The columns with the Arrow types of Delta. They are converted as those of files, in which the same types occur."""
    schema = from_arrow_schema(table.schema)
    target = to_arrow_schema(schema)
    columns = [
        _converted(column, item, field)
        for column, item, field in zip(table.columns, schema.fields, table.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=target)


def _converted(column: pa.ChunkedArray, item: StructField, field: pa.Field) -> pa.ChunkedArray:
    target = to_arrow_schema(from_arrow_schema(pa.schema([field]))).field(0).type
    if column.type == target:
        return column
    layout = FileLayout(schema=pa.schema([field]), file="(the output)", mapping=ColumnMappingMode.NONE)
    reader = layout.column(StructField(item.name, item.type))
    chunks = [reader.convert(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, reader.target).cast(target)
