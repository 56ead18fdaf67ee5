"""Writing a DataFrame as data files of a table (protocol headings "Data Files", "Add File").

Spark's own Parquet writer writes into a fresh directory of the table; the files found there become add actions. Nothing
refers to them until a commit does. This module knows neither the log nor the catalog, and runs no Spark job besides the
write.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.errors import CmDeltaError, CorruptLogError, EngineError, InvalidArgumentError, InvalidDataError
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION, encode_path, hive_unescape
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    PrimitiveType,
    StructField,
    StructType,
    data_type_text,
    walk_types,
)
from cm_delta_dagster.protocol.schema.void_columns import check_void_places
from cm_delta_dagster.protocol.statistics.statistics import StatisticsColumn, footer_statistics
from cm_delta_dagster.spark.align import aligned_columns
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.footers import read_footers
from cm_delta_dagster.spark.guards import guarded
from cm_delta_dagster.spark.partition_directories import (
    check_column_name,
    directory_column,
    is_digest,
    values_of_digests,
)
from cm_delta_dagster.spark.partition_text import with_empty_text_as_null
from cm_delta_dagster.spark.schema import quoted
from cm_delta_dagster.spark.session import check_frame, temporary_settings
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import ObjectStatus, Store

_log = logging.getLogger(__name__)

TRANSACTION_DIRECTORY = "delta.txn"
"""Data files of one write live in ``delta.txn=<hex>`` of the table root: fresh, and a partition directory to Spark's
reader."""

_COMMITTER_OPTIONS: Mapping[str, str] = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """Data files that no commit names yet.

    Attributes:
        directory: the fresh directory that holds all of them.
        rows_by_partition: rows for each combination of partition texts, in the order of the partition columns.
    """

    adds: tuple[AddFile, ...]
    num_rows: int
    size_bytes: int
    directory: str
    rows_by_partition: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)


def write_files(
    frame: DataFrame,
    *,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    statistics_columns: Sequence[StatisticsColumn] = (),
    compression: str | None = None,
    guard: Predicate | None = None,
    now_ms: int = 0,
) -> WrittenFiles:
    """Write the rows of ``frame`` in one Spark job. Files without rows are dropped, so an empty frame gives no file.

    Args:
        frame: rows; columns are matched by name ignoring case and cast to ``schema``.
        location: absolute URI of the table root.
        schema: schema of the table, after evolution.
        partition_columns: names as in the table's metadata.
        statistics_columns: leaf columns to take statistics of.
        compression: Parquet codec; Spark's own default for None.
        guard: every row must satisfy it.
        now_ms: epoch milliseconds, for a store that does not tell when a file was modified.

    Raises:
        SchemaMismatchError: the schema has the type void where files cannot hold its values.
        InvalidDataError: NULL in a NOT NULL column, or a partition value that cannot be stored; nothing is left behind.
        PartitionMismatchError: a row does not satisfy ``guard``.
        StorageError: the storage failed, e.g. is full.
        EngineError: Spark failed for another reason.
    """
    check_frame(frame)
    _check_storable(schema, partition_columns)
    name = f"{TRANSACTION_DIRECTORY}={uuid.uuid4().hex}"
    directory = f"{location.rstrip('/')}/{name}"
    try:
        with spark_errors(f"writing data files into {directory}"):
            checked = _checked(frame, schema, partition_columns, guard)
            writer = _prepared(checked, schema, partition_columns).write.options(**_COMMITTER_OPTIONS)
            if compression is not None:
                writer = writer.option("compression", compression)
            if partition_columns:
                writer = writer.partitionBy(*partition_columns)
            with temporary_settings(frame.sparkSession, _settings(schema)):
                writer.parquet(directory)
        return _collect(
            store,
            directory=directory,
            name=name,
            schema=schema,
            partition_columns=partition_columns,
            statistics_columns=statistics_columns,
            written=checked,
            now_ms=now_ms,
        )
    except BaseException:
        discard_below(store, directory)
        raise


def _check_storable(schema: StructType, partition_columns: Sequence[str]) -> None:
    for name in partition_columns:
        check_column_name(name)
        if name.startswith("."):
            raise InvalidArgumentError(
                f"The partition column {name!r} would give directories that readers take for hidden. Rename the column."
            )
    check_void_places(schema)
    partitions = {name.lower() for name in partition_columns}
    if all(item.name.lower() in partitions or item.type == VOID for item in schema.fields):
        raise InvalidArgumentError(
            "A data file needs at least one column besides the partition columns, and void columns are not stored. Add "
            "a column."
        )


def _settings(schema: StructType) -> Mapping[str, str]:
    """Session settings the write needs; only those that matter for the types at hand, each one costs a round trip."""
    settings = {"spark.sql.parquet.writeLegacyFormat": "false"}
    leaves = {item.name for item in walk_types(schema) if isinstance(item, PrimitiveType)}
    if leaves & {"timestamp", "timestamp_ntz", "date"}:
        settings["spark.sql.parquet.datetimeRebaseModeInWrite"] = "CORRECTED"
    if leaves & {TIMESTAMP.name, TIMESTAMP_NTZ.name}:
        settings["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
    return settings


def _checked(
    frame: DataFrame, schema: StructType, partition_columns: Sequence[str], guard: Predicate | None
) -> DataFrame:
    """Aligned and guarded; ``frame`` itself where nothing of that is needed."""
    columns = aligned_columns(frame, schema)
    aligned = frame if columns is None else frame.select(*columns)
    # Conditions are about the rows as they will be read.
    as_stored = with_empty_text_as_null(aligned, schema, partition_columns)
    checked = guarded(as_stored, schema, guard=guard)
    # A select of its own: the conditions must see the original values of every column.
    return as_stored.withColumns(checked) if checked else aligned


def _prepared(checked: DataFrame, schema: StructType, partition_columns: Sequence[str]) -> DataFrame:
    """Partition columns as text, without void columns; ``checked`` itself where nothing of that is needed."""
    partitions = {name.lower() for name in partition_columns}
    if not partitions and not any(item.type == VOID for item in schema.fields):
        return checked
    return checked.select(*[_stored(item, partitions) for item in schema.fields if item.type != VOID])


def _stored(item: StructField, partitions: set[str]) -> Column:
    return directory_column(item) if item.name.lower() in partitions else F.col(quoted(item.name))


def _collect(
    store: Store,
    *,
    directory: str,
    name: str,
    schema: StructType,
    partition_columns: Sequence[str],
    statistics_columns: Sequence[StatisticsColumn],
    written: DataFrame,
    now_ms: int,
) -> WrittenFiles:
    """What was written, by its directories and footers.

    Args:
        written: the rows, for partition values that their directories do not tell.
    """
    marker = f"/{name}/"
    listed = [(status, status.location.partition(marker)[2]) for status in store.list_recursive(directory)]
    found = [(status, relative) for status, relative in listed if _is_data_file(relative)]
    _check_nothing_is_hidden(relative for _, relative in listed)
    footers = read_footers(store, [status for status, _ in found])
    readable: set[tuple[str, str]] = set()
    texts = [_partition_texts(relative, partition_columns) for _, relative in found]
    long_values = _long_values(written, texts, schema, partition_columns)
    adds: list[AddFile] = []
    rows: Counter[tuple[str | None, ...]] = Counter()
    for (status, relative), by_name, footer in zip(found, texts, footers, strict=True):
        if not footer.num_rows:
            _drop_empty(store, status)
            continue
        values = {name: text if text is None else long_values.get((name, text), text) for name, text in by_name.items()}
        _check_readable(values, schema, readable)
        adds.append(
            AddFile(
                path=encode_path(f"{name}/{relative}"),
                partition_values=values,
                size=status.size,
                modification_time=status.modification_time or now_ms,
                data_change=True,
                stats=footer_statistics(footer, schema, statistics_columns),
            )
        )
        rows[tuple(values.values())] += footer.num_rows
    if not adds or len(adds) < len(footers):
        store.remove_empty_directories(directory)
    return WrittenFiles(
        adds=tuple(adds),
        num_rows=rows.total(),
        size_bytes=sum(add.size for add in adds),
        directory=directory,
        rows_by_partition=dict(rows),
    )


def _is_data_file(relative: str) -> bool:
    segments = relative.split("/")
    hidden = any(segment.startswith(".") or (segment.startswith("_") and "=" not in segment) for segment in segments)
    return not hidden and relative.endswith(".parquet")


def _check_nothing_is_hidden(relatives: Iterable[str]) -> None:
    """Rows that Spark wrote to a place that readers pass over would be lost without a word."""
    for relative in relatives:
        unfinished = "_temporary" in relative.split("/")
        if relative.endswith(".parquet") and not unfinished and not _is_data_file(relative):
            raise EngineError(f"Spark wrote {relative!r}, a name that readers take for hidden. Nothing was committed.")


def _drop_empty(store: Store, status: ObjectStatus) -> None:
    parent, _, name = status.location.rpartition("/")
    # Hadoop's local file system keeps a checksum beside each file.
    for location in (status.location, f"{parent}/.{name}.crc"):
        try:
            store.delete(location)
        except CmDeltaError as error:
            _log.warning("The empty file %s could not be deleted: %s", location, error)


def _partition_texts(relative: str, partition_columns: Sequence[str]) -> dict[str, str | None]:
    """Values of one file as the names of its directories state them."""
    segments = relative.split("/")[:-1]
    if len(segments) != len(partition_columns):
        raise EngineError(f"Spark wrote {relative!r}, which does not lie in one directory for each partition column.")
    texts: dict[str, str | None] = {}
    for segment, name in zip(segments, partition_columns, strict=True):
        key, _, escaped = segment.partition("=")
        if hive_unescape(key) != name:
            raise EngineError(f"Spark wrote {relative!r}, whose directories do not name the partition column {name!r}.")
        texts[name] = None if escaped == HIVE_DEFAULT_PARTITION else hive_unescape(escaped)
    return texts


def _long_values(
    written: DataFrame,
    texts: Sequence[Mapping[str, str | None]],
    schema: StructType,
    partition_columns: Sequence[str],
) -> dict[tuple[str, str], str]:
    """Values by column and digest, where directories are named by digests."""
    values: dict[tuple[str, str], str] = {}
    for name in partition_columns:
        digests = {text for each in texts if (text := each[name]) is not None and is_digest(text)}
        column = schema.field(name)
        if digests and column is not None:
            with spark_errors(f"looking up long values of the partition column {name!r}"):
                found = values_of_digests(written, column, digests)
            values |= {(name, digest): value for digest, value in found.items()}
    return values


def _check_readable(values: Mapping[str, str | None], schema: StructType, readable: set[tuple[str, str]]) -> None:
    """Each text is proven to be readable again before it is committed; those of ``readable`` are already."""
    for name, text in values.items():
        if text is not None and (name, text) not in readable:
            _check_text(name, text, schema)
            readable.add((name, text))


def _check_text(name: str, text: str, schema: StructType) -> None:
    column = schema.field(name)
    if column is None:
        raise InvalidArgumentError(f"The partition column {name!r} is no column of the table.")
    try:
        parse_partition_value(text, column.type)
    except (CorruptLogError, InvalidDataError, InvalidArgumentError, ValueError, OverflowError) as error:
        raise InvalidDataError(
            f"Partition column {name!r} holds a value whose text {text!r} could not be read back as "
            f"{data_type_text(column.type)}; nothing was committed. Replace the value."
        ) from error
