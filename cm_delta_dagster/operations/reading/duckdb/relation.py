"""Reading a table as a DuckDB relation, as far as possible by DuckDB's own Parquet reader.

DuckDB reads the files that need no conversion (:mod:`~cm_delta_dagster.arrow.plain_files`) from a list of paths, and the other
files through :class:`~cm_delta_dagster.arrow.dataset.DeltaDataset`. A scan that needs more than files and columns, such as a
condition in the words of Spark or row ids, is a dataset as a whole.
"""

import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.arrow.plain_files import PlainColumn, PlainFile, plain_columns, plain_files
from cm_delta_dagster.arrow.scan import partition_arrays
from cm_delta_dagster.operations.reading.duckdb.names import quoted_name
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.schema.types import FLOAT
from cm_delta_dagster.storage.local_store import LocalStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
else:
    DuckDBPyConnection = DuckDBPyRelation = Any  # So that the hints can be evaluated without the package.

__all__ = [
    "MOST_LATE_FILES",
    "DuckDBPyConnection",
    "DuckDBPyRelation",
    "native_relation",
    "raise_missing_file",
    "read_duckdb",
]

MOST_LATE_FILES = 1_000
"""DuckDB opens the footers of all files before it applies a condition, about 10,000 a second. A relation of more files to which a
condition may be added is a dataset, which skips files by their statistics in the log."""

_FILE = "__cm_delta_file"
_SEARCHED_FILES = 128
_FIRST_VERSION = 2
"""The major version of DuckDB for which tests compare its reader with the dataset."""
_PATH_IN_ERROR = re.compile(r'"(/[^"]+)"')
_PLAIN_PATH = re.compile(r"/[\w\-./=+,@%: ]+")
"""Without characters that have a meaning in DuckDB's patterns of file names."""


def read_duckdb(scan: SnapshotScan, connection: "DuckDBPyConnection | None") -> "DuckDBPyRelation":
    """The rows of a scan as a relation of ``connection``, or of DuckDB's default connection.

    Errors are those of ``read_dataset``; EngineError without DuckDB.
    """
    library = import_engine("duckdb")
    raw = library.default_connection() if connection is None else connection
    dataset = read_dataset(scan)
    files = scan.snapshot.files
    if files.num_rows <= MOST_LATE_FILES:
        relation = native_relation(scan, files, dataset, raw)
        if relation is not None:
            return relation
    return raw.from_arrow(dataset)


def native_relation(
    scan: SnapshotScan, files: pa.Table, dataset: DeltaDataset, connection: "DuckDBPyConnection"
) -> "DuckDBPyRelation | None":
    """The rows of some files of a scan. DuckDB reads the files that need no conversion; None if all files need one.

    Args:
        files: live files of the version of the scan.
        dataset: that of the scan, with all files.
    """
    snapshot = scan.snapshot
    names = snapshot.schema.names if scan.columns is None else scan.columns
    columns = plain_columns(snapshot.layout, names)
    if columns is None or scan.predicate is not None:
        return None
    if any(name.lower() == _FILE for name in (*names, *(item.stored for item in columns))):
        return None
    library = import_engine("duckdb")
    if int(library.__version__.partition(".")[0]) < _FIRST_VERSION:
        return None
    plain = [file for file in plain_files(scan.store, snapshot.layout, files, columns) if is_plain_path(file.path)]
    if not plain:
        return None
    try:
        whole = connection.from_arrow(dataset)
        types = dict(zip(whole.columns, map(str, whole.types), strict=True))
        relation = connection.from_query(_query_of(_plain_files(scan, files, plain, types), names, columns))
        if relation.columns != whole.columns or relation.types != whole.types:
            return None
        if len(plain) < files.num_rows:
            others = files.take(sorted({*range(files.num_rows)} - {file.row for file in plain}))
            relation = relation.union(connection.from_arrow(read_dataset(scan.with_files(others))))
    except (library.Error, OverflowError):
        # For example because access to files is disabled, or because Python does not have the value of a partition.
        return None
    return relation


def is_plain_path(path: str) -> bool:
    """Whether DuckDB takes the path as it is, and names the file so: it has no characters of patterns, and one spelling."""
    return _PLAIN_PATH.fullmatch(path) is not None and os.path.normpath(path) == path


def raise_missing_file(error: Exception) -> None:
    """Raise ObjectNotFoundError, as other reads do, if DuckDB's error is about a data file that does not exist any more."""
    for path in _PATH_IN_ERROR.findall(str(error)):
        if path.endswith(".parquet") and not os.path.exists(path):
            with DataFile(LocalStore(), f"file://{path}", 0).errors():
                raise FileNotFoundError(path) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlainFiles:
    """Files with the partition values of each one as DuckDB's constants, in the order of ``partitions``.

    Attributes:
        types: DuckDB's types of the partition columns.
    """

    partitions: Sequence[str]
    types: Sequence[str]
    paths: Sequence[str]
    values: Sequence[tuple[str, ...]]

    def parts(self) -> "Iterator[_PlainFiles]":
        """The files in parts of which each has few files or the same values, since the value of a row is searched in a list."""
        if not self.partitions or len(self.paths) <= _SEARCHED_FILES:
            yield self
            return
        order = sorted(range(len(self.paths)), key=self.values.__getitem__)
        for start in range(0, len(order), _SEARCHED_FILES):
            rows = order[start : start + _SEARCHED_FILES]
            yield replace(self, paths=[self.paths[row] for row in rows], values=[self.values[row] for row in rows])

    def expressions(self) -> dict[str, str]:
        """The value of each partition column for the rows of a file."""
        listed = _list_of(map(_text, self.paths))
        result = {}
        for number, (name, kind) in enumerate(zip(self.partitions, self.types, strict=True)):
            constants = [row[number] for row in self.values]
            if len(set(constants)) == 1:
                result[name] = f"CAST({constants[0]} AS {kind})"
            else:
                result[name] = f"CAST({_list_of(constants)} AS {kind}[])[list_position({listed}, {_FILE})]"
        return result

    def reader(self) -> str:
        """The rows that the files store, and the path of the file of each row."""
        return (
            f"read_parquet({_list_of(map(_text, self.paths))}, hive_partitioning = false, union_by_name = false, "
            f"binary_as_string = false, filename = '{_FILE}')"
        )


def _plain_files(
    scan: SnapshotScan, files: pa.Table, plain: Sequence[PlainFile], types: Mapping[str, str]
) -> _PlainFiles:
    """Those of ``files``, with the partition columns of which ``types`` has the types."""
    layout = scan.snapshot.layout
    partitions = [item.name for item in layout.partition_fields if item.name in types]
    arrays = partition_arrays(files.take([file.row for file in plain]), layout) if partitions else {}
    return _PlainFiles(
        partitions=partitions,
        types=[types[name] for name in partitions],
        paths=[file.path for file in plain],
        values=list(zip(*(map(_constant, arrays[name].to_pylist()) for name in partitions), strict=True)),
    )


def _constant(value: Any) -> str:
    """A constant that a cast to the type of the column converts to this value."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return _text("".join(f"\\x{byte:02X}" for byte in value))
        case dt.datetime():
            return _text(value.isoformat(sep=" "))
        case float():
            return _text(repr(value))
    return _text(str(value))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _list_of(constants: Iterable[str]) -> str:
    return f"[{', '.join(constants)}]"


def _query_of(files: _PlainFiles, names: Sequence[str], columns: Sequence[PlainColumn]) -> str:
    """A query of the columns ``names`` of the files."""
    stored = {item.field.name: _expression(item) for item in columns}
    queries = []
    for part in files.parts():
        expressions = {**stored, **part.expressions()}
        selected = ", ".join(f"{expressions[name]} AS {quoted_name(name)}" for name in names)
        queries.append(f"SELECT {selected} FROM {part.reader()}")
    return " UNION ALL ".join(queries)


def _expression(column: PlainColumn) -> str:
    name = quoted_name(column.stored)
    if not column.is_float:
        return name
    # Statistics leave NaN out, and DuckDB skips rows by them. This is the same value at almost no cost, but has no statistics: no
    # file has an empty name, which DuckDB does not know before it reads the rows.
    kind = "FLOAT" if column.field.type == FLOAT else "DOUBLE"
    return f"CASE WHEN {_FILE} = '' THEN 'nan'::{kind} ELSE {name} END"
