"""Writing a DataFrame as data files of a table (protocol heading "Data Files").

Spark's Parquet writer writes into a new directory of the table; its files become add actions, which the caller commits. In an
object store the tasks report their files, elsewhere the directory is listed. This module uses neither the log nor the catalog, and
runs no Spark job besides the write.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow.parquet as pq

from cm_delta_dagster.errors import (
    CmDeltaError,
    EngineError,
    ObjectNotFoundError,
)
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.partition_directories import is_digest
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION, encode_path, hive_unescape
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name, physical_schema
from cm_delta_dagster.protocol.features.identity_columns import identity_columns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRANSACTION_COLUMN,
    VARIANT,
    PrimitiveType,
    StructField,
    walk_types,
)
from cm_delta_dagster.protocol.statistics.data_file_writes import (
    WriteEngine,
    WriteSpec,
    WrittenFiles,
    check_readable,
    check_storable,
    stored_partitions,
)
from cm_delta_dagster.protocol.statistics.statistics import (
    footer_statistics,
)
from cm_delta_dagster.spark.library import DataFrame
from cm_delta_dagster.spark.read.footers import read_footers
from cm_delta_dagster.spark.session.cancellation import run_cancellable
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.local_files import set_permissions_without_processes
from cm_delta_dagster.spark.session.session import check_frame, temporary_settings
from cm_delta_dagster.spark.stores.object_stores import SparkStorage, check_same_place, other_place, spark_storage
from cm_delta_dagster.spark.stores.shared_disk import check_shared_disk
from cm_delta_dagster.spark.write.direct_write import (
    NotAvailableError,
    ReportedFile,
    may_write_directly,
    write_directly,
)
from cm_delta_dagster.spark.write.nested_ids import needs_nested_ids, store_nested_ids
from cm_delta_dagster.spark.write.partition_directories import values_of_digests
from cm_delta_dagster.spark.write.write_pipeline import columns_of_files, directory_names, rows_to_store
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import ObjectStatus, Store

_log = logging.getLogger(__name__)

_COMMITTER_OPTIONS: Mapping[str, str] = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def write_files(frame: DataFrame, *, store: Store, layout: TableLayout, spec: WriteSpec) -> WrittenFiles:
    """Write the rows of ``frame`` in one Spark job. Files without rows are dropped, so an empty frame gives no file.

    Args:
        frame: rows; columns are matched by name ignoring case and cast to the schema.
        layout: of the table after schema evolution.

    Raises:
        SchemaMismatchError: the schema has the type void where files cannot hold its values.
        InvalidDataError: a row violates NOT NULL or a constraint of the table, or has a partition value that cannot be stored;
            all files are deleted.
        PartitionMismatchError: a row does not satisfy the guard.
        StorageError: the storage failed, e.g. is full, or Spark has written to another place than the one of the log.
        StoreNotSupportedError: the session has no file system for the location of the table.
        EngineError: Spark failed for another reason.
    """
    check_frame(frame)
    check_storable(layout)
    with spark_errors(f"reaching {layout.location}"):
        storage = spark_storage(frame.sparkSession, store, layout.location)
        check_shared_disk(frame.sparkSession, store, layout.location)
    # Spark's reader takes a directory of this name for a partition directory.
    name = f"{TRANSACTION_COLUMN}={uuid.uuid4().hex}"
    directory = f"{layout.location.rstrip('/')}/{spec.root}{name}"
    try:
        with spark_errors(f"writing data files into {directory}"):
            rows = rows_to_store(
                frame, layout, guard=spec.guard, checked=spec.checked, hidden_columns=spec.hidden_columns
            )
            stored = columns_of_files(rows, layout, spec.hidden_columns)
            reported = run_cancellable(
                stored.sparkSession, lambda: _write(stored, storage, directory=directory, layout=layout, spec=spec)
            )
        files = _listed_files(store, directory) if reported is None else _reported_files(reported, directory)
        try:
            footers = read_footers(store, [status for status, _ in files])
        except ObjectNotFoundError as error:
            if reported is None:
                raise
            raise other_place(directory) from error
        if needs_nested_ids(layout):
            files = store_nested_ids(store, files, layout)
        written = _collect(store, files, footers, directory=directory, layout=layout, spec=spec, written=rows)
        if reported is None and not written.num_rows:
            check_same_place(frame.sparkSession, storage, directory)
        return written
    except BaseException:
        discard_below(store, directory)
        raise


def _write(
    rows: DataFrame, storage: SparkStorage, *, directory: str, layout: TableLayout, spec: WriteSpec
) -> list[ReportedFile] | None:
    """Write the rows; returns the files of a direct write, None if a committer has put the files into the directory."""
    session, target = rows.sparkSession, storage.location(directory)
    compression = {} if spec.compression is None else {"compression": spec.compression}
    settings, partition_columns = _settings(layout), directory_names(layout)
    if storage.is_object_store and may_write_directly(session):
        options = {**storage.read_options, **compression}
        try:
            with temporary_settings(session, settings):
                return write_directly(rows, directory=target, options=options, partition_columns=partition_columns)
        except NotAvailableError as error:
            _log.warning("Spark writes data files through a committer, because it cannot write directly: %s", error)
    if not storage.is_object_store:
        set_permissions_without_processes(session)
    storage.warn_of_copies()
    writer = rows.write.options(**{**storage.write_options, **_COMMITTER_OPTIONS, **compression})
    if partition_columns:
        writer = writer.partitionBy(*partition_columns)
    with temporary_settings(session, {**settings, **storage.write_settings}):
        writer.parquet(target)
    return None


def _settings(layout: TableLayout) -> Mapping[str, str]:
    """Session settings that the write needs; only those that affect the table, as each costs a round trip."""
    settings = {"spark.sql.parquet.writeLegacyFormat": "false"}
    leaves = {item.name for item in walk_types(layout.schema) if isinstance(item, PrimitiveType)}
    if layout.mapping is not ColumnMappingMode.NONE:
        settings["spark.sql.parquet.fieldId.write.enabled"] = "true"
    if VARIANT.name in leaves:
        # Without the feature variantShredding, a reader of the table need not know shredded values.
        settings["spark.sql.variant.writeShredding.enabled"] = "false"
    if leaves & {"timestamp", "timestamp_ntz", "date"}:
        settings["spark.sql.parquet.datetimeRebaseModeInWrite"] = "CORRECTED"
    if leaves & {TIMESTAMP.name, TIMESTAMP_NTZ.name}:
        settings["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
    return settings


def _collect(
    store: Store,
    files: Sequence[tuple[ObjectStatus, str]],
    footers: Sequence[pq.FileMetaData],
    *,
    directory: str,
    layout: TableLayout,
    spec: WriteSpec,
    written: DataFrame,
) -> WrittenFiles:
    """The files in ``directory``, described by their directories and footers.

    Args:
        files: the files, each with its path below the directory.
        written: the rows, to look up partition values whose directories are named by a digest.
    """
    name = spec.root + directory.rpartition("/")[2]
    readable: set[tuple[str, str]] = set()
    partitions = stored_partitions(layout)
    stored = [name for _, name in partitions]
    texts = [
        dict(zip(stored, _partition_texts(relative, directory_names(layout)).values(), strict=True))
        for _, relative in files
    ]
    long_values = _long_values(written, texts, partitions)
    schema = physical_schema(layout.schema, layout.mapping)
    adds: list[AddFile] = []
    rows: Counter[tuple[str | None, ...]] = Counter()
    for (status, relative), by_name, footer in zip(files, texts, footers, strict=True):
        if not footer.num_rows:
            _drop_empty(store, status)
            continue
        values = {name: text if text is None else long_values.get((name, text), text) for name, text in by_name.items()}
        check_readable(values, partitions, readable)
        adds.append(
            AddFile(
                path=encode_path(f"{name}/{relative}"),
                partition_values=values,
                size=status.size,
                modification_time=status.modification_time or spec.now_ms,
                data_change=True,
                stats=footer_statistics(footer, schema, spec.statistics_columns),
            )
        )
        rows[tuple(values.values())] += footer.num_rows
    if not adds or len(adds) < len(footers):
        store.remove_empty_directories(directory)
    return WrittenFiles(
        engine=WriteEngine.SPARK,
        adds=tuple(adds),
        num_rows=rows.total(),
        size_bytes=sum(add.size for add in adds),
        directory=directory,
        rows_by_partition=dict(rows),
        high_water_marks=_high_water_marks(layout, footers, spec.numbered),
    )


def _high_water_marks(
    layout: TableLayout, footers: Sequence[pq.FileMetaData], numbered: frozenset[str]
) -> dict[str, int]:
    """The furthest values of the numbered identity columns, from the footers of the files."""
    marks: dict[str, int] = {}
    for name, column in identity_columns(layout.schema).items() if numbered else ():
        item = layout.schema.field(name)
        if name not in numbered or item is None:
            continue
        bounds = [bound for footer in footers for bound in _bounds(footer, physical_name(item, layout.mapping))]
        ordered = sorted(bounds, reverse=column.identity.step < 0)
        furthest = column.further(ordered[-1]) if ordered else None
        if furthest is not None:
            marks[name] = furthest
    return marks


def _bounds(footer: pq.FileMetaData, path: str) -> Iterator[int]:
    """The least and greatest value of a column in each row group.

    Raises:
        EngineError: the file has values without statistics.
    """
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema != path or not group.num_rows:
                continue
            if chunk.statistics is None or not chunk.statistics.has_min_max:
                raise EngineError(
                    f"Spark wrote the identity column {path!r} without statistics, so its high-water mark is not known. "
                    "Nothing was committed. Remove the setting parquet.column.statistics.enabled=false of the session."
                )
            yield from (int(chunk.statistics.min_raw), int(chunk.statistics.max_raw))


def _listed_files(store: Store, directory: str) -> list[tuple[ObjectStatus, str]]:
    """The data files in ``directory``, each with its path below it."""
    marker = f"/{directory.rpartition('/')[2]}/"
    return _data_files([(status, status.location.partition(marker)[2]) for status in store.list_recursive(directory)])


def _reported_files(reported: Sequence[ReportedFile], directory: str) -> list[tuple[ObjectStatus, str]]:
    """The same from the reports of the tasks, without a listing."""
    marker = f"/{directory.rpartition('/')[2]}/"
    files = []
    for file in reported:
        relative = file.location.partition(marker)[2]
        location = f"{directory}/{relative}"
        status = ObjectStatus(location=location, size=file.size, modification_time=file.modification_time)
        files.append((status, relative))
    return _data_files(files)


def _data_files(files: Sequence[tuple[ObjectStatus, str]]) -> list[tuple[ObjectStatus, str]]:
    _check_nothing_is_hidden(relative for _, relative in files)
    return [(status, relative) for status, relative in files if _is_data_file(relative)]


def _is_data_file(relative: str) -> bool:
    segments = relative.split("/")
    hidden = any(segment.startswith(".") or (segment.startswith("_") and "=" not in segment) for segment in segments)
    return not hidden and relative.endswith(".parquet")


def _check_nothing_is_hidden(relatives: Iterable[str]) -> None:
    """Raise EngineError if Spark wrote rows to a path that readers ignore; committing would lose them."""
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
    """Partition values of one file, from the names of its directories."""
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
    written: DataFrame, texts: Sequence[Mapping[str, str | None]], partitions: Sequence[tuple[StructField, str]]
) -> dict[tuple[str, str], str]:
    """Partition values by column and digest, for directories that are named by a digest."""
    values: dict[tuple[str, str], str] = {}
    for column, name in partitions:
        digests = {text for texts_of_file in texts if (text := texts_of_file[name]) is not None and is_digest(text)}
        if digests:
            with spark_errors(f"looking up long values of the partition column {column.name!r}"):
                value_by_digest = values_of_digests(written, column, digests)
            values |= {(name, digest): value for digest, value in value_by_digest.items()}
    return values
