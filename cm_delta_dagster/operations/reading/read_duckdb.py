"""Reading a table as a DuckDB relation, as far as possible by DuckDB's own Parquet reader.

DuckDB reads the files that need no conversion (:mod:`~cm_delta_dagster.arrow.plain_files`) from a list of paths, and the other
files through :class:`~cm_delta_dagster.arrow.dataset.DeltaDataset`. A scan that needs more than files and columns, such as a
condition in the words of Spark or row ids, is a dataset as a whole.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.arrow.plain_files import PlainColumn, PlainFile, plain_columns, plain_files
from cm_delta_dagster.arrow.scan import partition_arrays
from cm_delta_dagster.operations.reading.duckdb_names import quoted_name
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.actions.file_columns import REMOVE_SCHEMA
from cm_delta_dagster.protocol.log.action_reconciliation import FileState
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
_OTHER = "__cm_delta_partition"
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
    """The rows of some files of a scan, by DuckDB's reader where it returns what the dataset does; None if that is no file.

    Args:
        files: live files of the version of the scan.
        dataset: that of the scan, with all files.
    """
    snapshot = scan.snapshot
    names = snapshot.schema.names if scan.columns is None else scan.columns
    columns = plain_columns(snapshot.layout, names)
    if columns is None or scan.predicate is not None or any(name.startswith(_FILE) for name in names):
        return None
    plain = [
        file for file in plain_files(scan.store, snapshot.layout, files, columns) if _PLAIN_PATH.fullmatch(file.path)
    ]
    if not plain:
        return None
    library = import_engine("duckdb")
    try:
        relation = _plain_relation(scan, files, names, columns, plain, connection)
        whole = connection.from_arrow(dataset)
        if relation.columns != whole.columns or relation.types != whole.types:
            return None
        if len(plain) < files.num_rows:
            others = files.take(sorted({*range(files.num_rows)} - {file.row for file in plain}))
            relation = relation.union(connection.from_arrow(read_dataset(_with_files(scan, others))))
    except library.Error:
        return None  # For example because access to files is disabled.
    return relation


def raise_missing_file(error: Exception) -> None:
    """Raise ObjectNotFoundError, as other reads do, if DuckDB's error is about a data file that does not exist any more."""
    for path in _PATH_IN_ERROR.findall(str(error)):
        if path.endswith(".parquet") and not os.path.exists(path):
            with DataFile(LocalStore(), f"file://{path}", 0).errors():
                raise FileNotFoundError(path) from error


def _with_files(scan: SnapshotScan, files: pa.Table) -> SnapshotScan:
    snapshot = scan.snapshot
    state = FileState.of(files, REMOVE_SCHEMA.empty_table(), location=snapshot.location)
    return replace(scan, snapshot=snapshot.with_files(state))


def _plain_relation(
    scan: SnapshotScan,
    files: pa.Table,
    names: Sequence[str],
    columns: Sequence[PlainColumn],
    plain: Sequence[PlainFile],
    connection: "DuckDBPyConnection",
) -> "DuckDBPyRelation":
    layout = scan.snapshot.layout
    taken = files.take([file.row for file in plain])
    partitions = [item.name for item in layout.partition_fields if item.name in names]
    arrays = partition_arrays(taken, layout) if partitions else {}
    expressions = {item.field.name: _expression(item) for item in columns}
    reader = _reader([file.path for file in plain], has_names=bool(partitions))
    if not partitions:
        return connection.from_query(f"SELECT {_selected(names, expressions)} FROM {reader}")
    stored = ", ".join((*(f"{text} AS {quoted_name(name)}" for name, text in expressions.items()), _FILE))
    values = {f"{_OTHER}_{number}": arrays[name] for number, name in enumerate(partitions)}
    rows = connection.from_query(f"SELECT {stored} FROM {reader}").set_alias("stored")
    by_file = connection.from_arrow(pa.table({f"{_FILE}_path": [file.path for file in plain], **values}))
    joined = rows.join(by_file.set_alias("logged"), f"stored.{_FILE} = logged.{_FILE}_path")
    chosen = {item.field.name: f"stored.{quoted_name(item.field.name)}" for item in columns}
    chosen.update({name: f"logged.{_OTHER}_{number}" for number, name in enumerate(partitions)})
    return joined.project(_selected(names, chosen))


def _selected(names: Sequence[str], expressions: dict[str, str]) -> str:
    return ", ".join(f"{expressions[name]} AS {quoted_name(name)}" for name in names)


def _expression(column: PlainColumn) -> str:
    name = quoted_name(column.stored)
    if not column.is_float:
        return name
    # Statistics leave NaN out, and DuckDB skips rows by them: this is the same value, but has no statistics.
    kind = "FLOAT" if column.field.type == FLOAT else "DOUBLE"
    return f"CASE WHEN {name} = 'nan'::{kind} THEN 'nan'::{kind} ELSE {name} END"


def _reader(paths: Sequence[str], *, has_names: bool) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    options = f", filename = '{_FILE}'" if has_names else ""
    return (
        f"read_parquet([{listed}], hive_partitioning = false, union_by_name = false, binary_as_string = false{options})"
    )
