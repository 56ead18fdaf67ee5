"""Reading the row changes of a range of versions as a DataFrame (protocol heading "Change Data Files").

The files that hold the changes are listed immediately; Spark reads them when the rows are computed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.change_query import (
    ChangeFiles,
    ChangeQuery,
    ChangeScan,
)
from cm_delta_dagster.operations.reading.table_definitions import layout_of
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.changes.change_data_feed import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangePart,
    ChangeType,
    change_file_schema,
)
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.predicates.predicates import conjunction
from cm_delta_dagster.spark.expressions.conditions import check_time_zone
from cm_delta_dagster.spark.expressions.predicates import to_column
from cm_delta_dagster.spark.expressions.schema import quoted, to_spark
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession, pyspark
from cm_delta_dagster.spark.read.scan import FILE_COLUMN, scan, scan_with_files, spark_file_path
from cm_delta_dagster.spark.session.errors import Violation, spark_errors, violation_text
from cm_delta_dagster.spark.session.session import default_zone

_MAX_SCANS = 16
"""More parts than this are read in few scans; a join by file gives each row the change columns of its part."""

_KEY = "__cm_delta_change_file"


@names_table
def read_changes(scan: ChangeScan, *, spark: SparkSession) -> DataFrame:
    """The row changes of a scan.

    Rows have the columns of the table, and ``_change_type`` (``insert``, ``delete``, ``update_preimage``,
    ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``.

    Raises:
        InvalidArgumentError: an unknown column, or ``where`` is not a condition.
        CorruptLogError, ObjectNotFoundError: a file is damaged or missing; also when the rows are computed.
    """
    query, table = scan.query, scan.table
    for part in (query.on_rows, query.on_changes):
        check_time_zone(part, query.schema, zone=query.time_zone, session=spark)
    query = replace(query, time_zone=default_zone(query.time_zone, spark))
    with spark_errors(f"reading changes of {table.identifier}"):
        scans = _SparkChanges(spark=spark, table=table, changes=scan.changes, query=query)
        # The first frame of a union gives it names and metadata, so an empty one with the schema of the feed comes first.
        empty = spark.createDataFrame([], to_spark(query.schema))
        frame = reduce(pyspark.sql.DataFrame.union, scans.frames(), empty)
        predicate = conjunction(part for part in (query.on_rows, query.on_changes) if part is not None)
        if scan.where is not None:
            frame = frame.where(to_column(predicate, query.schema))
        return frame.select(*[F.col(quoted(item.name)) for item in query.output.fields])


@dataclass(frozen=True, slots=True, kw_only=True)
class _SparkChanges:
    """Reads the files of a change feed with Spark."""

    spark: SparkSession
    table: ReadableTable
    changes: ChangeFiles
    query: ChangeQuery

    def frames(self) -> Iterator[DataFrame]:
        """The changed rows; a DataFrame for each part, or for several parts together if there are many."""
        parts = [(part, self.query.files(part)) for part in self.changes.parts]
        parts = [(part, files) for part, files in parts if files.num_rows]
        if len(parts) <= _MAX_SCANS:
            for part, files in parts:
                yield self._part(part, files)
            return
        for part, files in parts:
            if part.stored_partitions is not None:
                yield self._part(part, files)
        parts = [(part, files) for part, files in parts if part.stored_partitions is None]
        for has_own_type in (False, True):
            alike = [(part, files) for part, files in parts if (part.change_type is None) == has_own_type]
            for files, change_columns in _rounds(alike, self.table.location):
                yield self._joined(files, change_columns, has_own_type=has_own_type)

    def _layout(self, *, has_own_type: bool, stored_partitions: tuple[str, ...] | None = None) -> TableLayout:
        definition = self.changes.definition
        schema = definition.schema
        file_schema = change_file_schema(schema) if has_own_type else schema
        return layout_of(
            definition,
            self.table.location,
            schema=file_schema,
            time_zone=self.query.time_zone,
            stored_partitions=stored_partitions,
        )

    def _part(self, part: ChangePart, files: pa.Table) -> DataFrame:
        frame = scan(
            self.spark,
            store=self.table.store,
            layout=self._layout(has_own_type=part.change_type is None, stored_partitions=part.stored_partitions),
            request=ScanRequest(files=files, predicate=self.query.on_rows),
        )
        own = None if part.change_type is None else F.lit(part.change_type.value)
        version, timestamp_ms = F.lit(part.version).cast("long"), F.lit(part.timestamp_ms).cast("long")
        return _finished(frame, self.query, own, version, timestamp_ms)

    def _joined(self, files: pa.Table, change_columns: pa.Table, *, has_own_type: bool) -> DataFrame:
        layout = self._layout(has_own_type=has_own_type)
        frame = scan_with_files(self.spark, store=self.table.store, layout=layout, request=ScanRequest(files=files))
        names = {
            CHANGE_TYPE: "__cm_delta_kind",
            COMMIT_VERSION: "__cm_delta_version",
            COMMIT_TIMESTAMP: "__cm_delta_time",
        }
        small = self.spark.createDataFrame(
            change_columns.rename_columns([names.get(name, name) for name in change_columns.column_names])
        )
        joined = frame.join(F.broadcast(small), F.col(FILE_COLUMN) == F.col(_KEY), "left")
        missed = F.raise_error(F.lit(violation_text(Violation.ENGINE, _UNMATCHED)))
        version = F.coalesce(F.col(names[COMMIT_VERSION]), missed.cast("long"))
        kind = None if has_own_type else F.col(names[CHANGE_TYPE])
        return _finished(joined, self.query, kind, version, F.col(names[COMMIT_TIMESTAMP]))


def _rounds(parts: Sequence[tuple[ChangePart, pa.Table]], location: str) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Groups of files in which each file occurs once, each with a table of the change columns of its files."""
    if not parts:
        return
    files = pa.concat_tables([files for _, files in parts])
    lengths = [files.num_rows for _, files in parts]
    locations = [resolve_path(location, path) for path in files["path"].to_pylist()]
    change_columns = pa.table(
        {
            _KEY: pa.array([spark_file_path(name) for name in locations], pa.string()),
            CHANGE_TYPE: pa.array(
                np.repeat([part.change_type or "" for part, _ in parts], lengths).tolist(), pa.string()
            ),
            COMMIT_VERSION: pa.array(np.repeat([part.version for part, _ in parts], lengths), pa.int64()),
            COMMIT_TIMESTAMP: pa.array(np.repeat([part.timestamp_ms for part, _ in parts], lengths), pa.int64()),
        }
    )
    seen: dict[str, int] = {}
    rounds = np.empty(len(locations), dtype=np.int64)
    for position, name in enumerate(locations):
        rounds[position] = seen.get(name, 0)
        seen[name] = seen.get(name, 0) + 1
    for number in range(int(rounds.max()) + 1):
        mask = pa.array(rounds == number)
        yield files.filter(mask), change_columns.filter(mask)


_UNMATCHED = (
    "Spark returns the location of a data file in an unexpected form, so the version of its changes was not found. Nothing was "
    "read. Rename the table's directory to plain letters, or report this."
)


def _finished(
    frame: DataFrame, query: ChangeQuery, change_type: Column | None, version: Column, timestamp_ms: Column
) -> DataFrame:
    """All columns of the change feed; ``change_type`` is None for files that store it."""
    if change_type is None:
        stored_type = F.col(CHANGE_TYPE)
        before, between, after = _WRONG_TYPE
        kind = F.coalesce(stored_type, F.lit("NULL"))
        text = F.concat(F.lit(before), version.cast("string"), F.lit(between), kind, F.lit(after))
        change_type = F.when(stored_type.isin([kind.value for kind in ChangeType]), stored_type).otherwise(
            F.raise_error(text)
        )
    stored = [item.name for item in query.schema.fields[: -len((CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))]]
    return frame.select(
        *[F.col(quoted(name)) for name in stored],
        change_type.alias(CHANGE_TYPE),
        version.alias(COMMIT_VERSION),
        F.timestamp_millis(timestamp_ms).alias(COMMIT_TIMESTAMP),
    )


_WRONG_TYPE = violation_text(
    Violation.ENGINE,
    "A change data file of version \0 says that the kind of a change is '\0'; it is one of "
    f"{', '.join(ChangeType)}. The file is damaged; read the changes of the other versions.",
).split("\0")
