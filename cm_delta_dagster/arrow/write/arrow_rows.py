"""Rows that a caller has in a form that Arrow takes: pyarrow, polars, pandas, DuckDB and others, and lists of dictionaries.

No value changes here. What Arrow or Delta cannot represent is refused with the name of the column.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, InvalidDataError
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema, to_arrow_type
from cm_delta_dagster.protocol.schema.types import BYTE, FLOAT, INTEGER, SHORT, DataType, DecimalType, StructType

UNCONVERTED = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for values that it does not convert."""

_WIDTHS: Mapping[pa.DataType, Sequence[DataType]] = {pa.int64(): (BYTE, SHORT, INTEGER), pa.float64(): (FLOAT,)}
_SHOWN_TYPES = 1_000
_CAST = {
    "Int128": "pl.Int64 or pl.Decimal(38, 0)",
    "UInt128": "pl.Int64 or pl.Decimal(38, 0)",
    "Object": "pl.String, or build it from values of one type",
}
"""Types of polars that Arrow does not have, and what to cast them to. Of objects polars passes the addresses on."""


@runtime_checkable
class ArrowStream(Protocol):
    """Rows with Arrow's C stream interface: tables and readers of pyarrow, frames of polars and pandas, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


ArrowData: TypeAlias = ArrowStream | Sequence[Mapping[str, Any]]
"""Rows that need no Spark."""


@dataclass(slots=True, eq=False)
class ArrowRows:
    """Rows of a caller as a table or a stream of Arrow.

    Attributes:
        source: the rows as the caller has them.
        schema: the columns with types of Delta that hold every value.
        is_python: whether they were values of Python, whose numbers have no width.
    """

    source: pa.Table | pa.RecordBatchReader
    schema: StructType
    is_python: bool = False
    _is_read: bool = False

    @classmethod
    def of(cls, value: Any, what: str | None = None) -> "ArrowRows":
        """The rows of ``value``, an :data:`ArrowData`.

        Args:
            what: the value, for messages; None for its type.

        Raises:
            InvalidArgumentError: another type, a column whose values Arrow or Delta does not have or that have no type in common,
                or two columns of one name.
        """
        what = what or f"The {type(value).__name__}"
        with converting(what):
            source = _source(value, what)
            is_python = isinstance(value, list | tuple)
            return cls(source=source, schema=from_arrow_schema(source.schema), is_python=is_python)

    def reader(self) -> pa.RecordBatchReader:
        """The batches. Of a stream only once.

        Raises:
            InvalidArgumentError: the rows are a stream that was read before.
        """
        if isinstance(self.source, pa.Table):
            return self.source.to_reader()
        if self._is_read:
            raise InvalidArgumentError(
                "The rows are a stream, and an attempt of this write that was not committed has read it. Nothing was committed. "
                "Write again with a new stream, or with a table, which is read for each attempt."
            )
        self._is_read = True
        return self.source

    def fitted(self, schema: StructType) -> "ArrowRows":
        """The rows, in which numbers of Python have the types of the columns of ``schema`` that can hold them."""
        if not self.is_python or not isinstance(self.source, pa.Table):
            return self
        table = self.source
        for position, item in enumerate(table.schema):
            column = schema.field(item.name)
            if column is None or not _is_number_of(item.type, column.type):
                continue
            with suppress(pa.ArrowInvalid):  # A value that does not fit is an error of the comparison of the schemas.
                values = pa.array(table.column(position).to_pylist(), to_arrow_type(column.type))
                if column.type != FLOAT or not _is_too_large(values, table.column(position)):
                    table = table.set_column(position, item.name, values)
        return ArrowRows(source=table, schema=from_arrow_schema(table.schema))


def caller_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream of the caller.

    Raises:
        InvalidDataError: its source failed, or a batch has other columns than the stream says.
    """
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except CmDeltaError:
            raise
        except Exception as error:  # Of the code of the caller.
            raise InvalidDataError(
                f"The stream of the rows failed: {error}. Nothing was committed. Correct its source, and write again."
            ) from error
        if not batch.schema.equals(reader.schema):
            raise InvalidDataError(
                f"A batch of the stream of the rows has the columns {_listed(batch.schema)}, and the stream says "
                f"{_listed(reader.schema)}. Nothing was committed. Give all batches the schema of the stream."
            )
        yield batch


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{item.name} {item.type}" for item in schema)


def _is_too_large(singles: pa.Array, doubles: pa.ChunkedArray) -> bool:
    """Whether a number has become infinite in single precision."""
    became = pc.and_(pc.is_inf(singles), pc.invert(pc.is_inf(doubles)))
    return bool(pc.any(became).as_py())


def _is_number_of(inferred: pa.DataType, column: DataType) -> bool:
    """Whether numbers of Python may get the type ``column``, after Arrow took another one for them."""
    if isinstance(column, DecimalType):
        return bool(inferred == pa.int64() or pat.is_decimal(inferred))
    return column in _WIDTHS.get(inferred, ())


@contextmanager
def converting(what: str) -> Iterator[None]:
    """Raise InvalidArgumentError for what Arrow or Delta does not convert within the block.

    Args:
        what: the rows, for messages.
    """
    try:
        yield
    except InvalidArgumentError:
        raise
    except (CmDeltaError, *UNCONVERTED) as error:
        raise _refused(what, str(error)) from error


def _refused(what: str, cause: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} cannot be converted to Arrow: {cause}. Nothing was written. Give each column a name of its own and values of one "
        "type."
    )


def _source(value: Any, what: str) -> pa.Table | pa.RecordBatchReader:
    if isinstance(value, pa.Table | pa.RecordBatchReader):
        return value
    library = type(value).__module__.partition(".")[0]
    if library == "pandas" and hasattr(value, "iloc"):
        return from_pandas(value, what)
    if library == "polars" and hasattr(value, "collect_schema"):
        return from_polars(value, what)
    if isinstance(value, list | tuple) and all(isinstance(row, Mapping) for row in value):
        if not value:
            raise InvalidArgumentError(
                "The rows are an empty list, which has no columns. Nothing was written. Give a pyarrow.Table with a schema."
            )
        names = list(dict.fromkeys(name for row in value for name in row))
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in value])
        for item in table.schema:
            _check_one_kind((row.get(item.name) for row in value), item.type, item.name, what)
        return table
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, ArrowStream):
        return pa.RecordBatchReader.from_stream(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise InvalidArgumentError(
        f"Rows must come as a DataFrame of Spark, as Arrow data (pyarrow, polars, pandas, a DuckDB relation) or as a list of "
        f"dictionaries; a {kind} was given. Nothing was written. Convert it first, e.g. to a pyarrow.Table."
    )


def from_pandas(value: Any, what: str) -> pa.Table:
    """The columns of a pandas DataFrame, without its index.

    Args:
        what: the value, for messages.

    Raises:
        InvalidArgumentError: a column has values of several types.
    """
    try:
        table = pa.Table.from_pandas(value, preserve_index=False).replace_schema_metadata(None)
    except UNCONVERTED as error:
        raise _pandas_error(value, what, error) from error
    for position, item in enumerate(table.schema):
        column = value.iloc[:, position]
        if column.dtype == object:
            _check_one_kind(column, item.type, item.name, what)
    return table


def _check_one_kind(values: Iterable[Any], kind: pa.DataType, name: str, what: str) -> None:
    """Refuse values of Python that Arrow would change, because it takes the type of the first value.

    Args:
        kind: the type that Arrow took; ``name`` of the column; ``what``: the rows, for messages.

    Raises:
        InvalidArgumentError: dates beside times, times with a zone beside times without one, or booleans beside numbers.
    """
    if pat.is_struct(kind):
        rows = [value for value in values if isinstance(value, Mapping)]
        for item in kind:
            _check_one_kind((row.get(item.name) for row in rows), item.type, name, what)
    elif pat.is_list(kind):
        # pandas has NaN for a list that is missing.
        lists = (value for value in values if isinstance(value, Iterable))
        _check_one_kind(chain.from_iterable(lists), kind.value_type, name, what)
    mixed = _mixed(kind)
    if mixed is not None and any(map(mixed[1], values)):
        raise InvalidArgumentError(
            f"{what} has {mixed[0]} in column {name!r}. Nothing was written, because some of them would be changed. Convert the "
            "column to values of one kind."
        )


def _mixed(kind: pa.DataType) -> tuple[str, Callable[[Any], bool]] | None:
    """What a column may have besides values of the type that Arrow took, in words, and whether a value is so."""
    if pat.is_date(kind):
        return "dates and times", lambda value: isinstance(value, dt.datetime) and value == value
    if pat.is_timestamp(kind):
        has_zone = kind.tz is not None
        return (
            "times with and without a time zone",
            lambda value: isinstance(value, dt.datetime) and value == value and (value.tzinfo is not None) != has_zone,
        )
    if pat.is_floating(kind) or pat.is_integer(kind):
        return "numbers and booleans", lambda value: isinstance(value, bool)
    return None


def _pandas_error(value: Any, what: str, error: Exception) -> InvalidArgumentError:
    """Says which column Arrow does not convert, and what is in it."""
    for position in range(value.shape[1]):
        column = value.iloc[:, position]
        try:
            pa.array(column, from_pandas=True)
        except UNCONVERTED as cause:
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


def from_polars(value: Any, what: str) -> pa.Table:
    """The columns of a polars DataFrame or LazyFrame, which is computed.

    Args:
        what: the value, for messages.

    Raises:
        InvalidArgumentError: a column has a type that Arrow does not have.
    """
    frame = value.collect() if hasattr(value, "collect") else value
    for name, kind in frame.schema.items():
        for inner in _polars_types(kind):
            if (known := _CAST.get(type(inner).__name__, _CAST.get(str(inner)))) is not None:
                raise InvalidArgumentError(
                    f"{what} has the polars type {kind} in column {name!r}, which Arrow does not have. Nothing was written. "
                    f"Cast the column to {known}."
                )
    return frame.to_arrow()


def _polars_types(kind: Any) -> Iterator[Any]:
    yield kind
    if (inner := getattr(kind, "inner", None)) is not None:
        yield from _polars_types(inner)
    for item in getattr(kind, "fields", None) or ():
        yield from _polars_types(item.dtype)
