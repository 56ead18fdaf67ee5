"""The rows of an output of Arrow, pandas or polars as an Arrow table with the types of Delta, and as a DataFrame of Spark.

No value changes, except that a time loses what is below a microsecond, which Delta cannot store. What would be stored as another
value is refused with the name of the column.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.arrow.columns import FileLayout
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.orchestration.metadata.frame_types import FrameType, frame_type
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema, to_arrow_schema
from cm_delta_dagster.protocol.schema.types import StructField
from cm_delta_dagster.spark.expressions.schema import to_spark

_UNCONVERTED = (pa.ArrowException, ValueError, TypeError, OverflowError)
_SHOWN_TYPES = 1_000
_CAST = {
    "Int128": "pl.Int64 or pl.Decimal(38, 0)",
    "UInt128": "pl.Int64 or pl.Decimal(38, 0)",
    "Object": "pl.String, or build it from values of one type",
}
"""Types of polars that Arrow does not have, and what to cast them to. Of objects polars passes the addresses on."""


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
    try:
        table = _arrow_table(value, kind, what)
        return _delta_table(table)
    except CmDeltaError as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise _refused(what, str(error)) from error
    except _UNCONVERTED as error:
        raise _refused(what, str(error)) from error


def _refused(what: str, cause: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} cannot be converted to Arrow: {cause}. Nothing was written. Give each column a name of its own and values of one "
        "type."
    )


def _arrow_table(value: Any, kind: FrameType, what: str) -> pa.Table:
    match kind:
        case FrameType.ARROW_TABLE:
            return value
        case FrameType.ARROW_READER:
            return value.read_all()
        case FrameType.PANDAS:
            return _from_pandas(value, what)
        case FrameType.POLARS_LAZY:
            value = value.collect()
    _check_polars(value.schema, what)
    return value.to_arrow()


def _from_pandas(value: Any, what: str) -> pa.Table:
    try:
        table = pa.Table.from_pandas(value, preserve_index=False).replace_schema_metadata(None)
    except _UNCONVERTED as error:
        raise _pandas_error(value, what, error) from error
    for position, item in enumerate(table.schema):
        # Arrow takes the type of the first value, and cuts the time off the others.
        column = value.iloc[:, position]
        if (
            item.type == pa.date32()
            and column.dtype == object
            and any(isinstance(cell, dt.datetime) for cell in column)
        ):
            raise InvalidArgumentError(
                f"{what} has dates and times in column {item.name!r}. Nothing was written, because the times of day would be "
                "lost. Convert the column, e.g. by pandas.to_datetime."
            )
    return table


def _pandas_error(value: Any, what: str, error: Exception) -> InvalidArgumentError:
    """Says which column Arrow does not convert, and what is in it."""
    for position in range(value.shape[1]):
        column = value.iloc[:, position]
        try:
            pa.array(column, from_pandas=True)
        except _UNCONVERTED as cause:
            kinds = sorted({type(cell).__name__ for cell in column.head(_SHOWN_TYPES) if cell is not None})
            content = (
                f"values of {' and '.join(kinds)}" if column.dtype == object else f"the pandas type {column.dtype}"
            )
            return InvalidArgumentError(
                f"{what} has {content} in column {value.columns[position]!r}, which cannot be one column of Arrow: {cause}. "
                "Nothing was written. Convert the column to values of one type that Delta has, e.g. by "
                "frame[column].astype('string')."
            )
    return _refused(what, str(error))


def _check_polars(schema: Any, what: str) -> None:
    for name, kind in schema.items():
        for inner in _polars_types(kind):
            if (known := _CAST.get(type(inner).__name__, _CAST.get(str(inner)))) is not None:
                raise InvalidArgumentError(
                    f"{what} has the polars type {kind} in column {name!r}, which Arrow does not have. Nothing was written. "
                    f"Cast the column to {known}."
                )


def _polars_types(kind: Any) -> Iterator[Any]:
    yield kind
    if (inner := getattr(kind, "inner", None)) is not None:
        yield from _polars_types(inner)
    for item in getattr(kind, "fields", None) or ():
        yield from _polars_types(item.dtype)


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
