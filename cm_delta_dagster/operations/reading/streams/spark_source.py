"""A table as a source of Spark Structured Streaming, by the Python Data Source API.

Spark keeps the offset in the checkpoint of the query. A Python process beside the driver plans each batch with
``state``. Tasks read its files with the Arrow reader, so deletion vectors and column mapping are handled as in
``read_arrow``. That process and the tasks open their own connections to catalog and storage.

Spark 4.2 requests batches of a limited size. Spark 4.0 and 4.1 do not: there a batch has all available rows.
"""

import datetime as dt
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import ClientSpec, DeltaClient
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.reading.streams.state import (
    LATEST,
    StreamOptions,
    StreamState,
    next_batch,
    open_stream,
)
from cm_delta_dagster.operations.reading.table_definitions import layout_of
from cm_delta_dagster.protocol.changes.batch_planning import UNBOUNDED, AdmissionLimits, StreamPlan
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset, parse_offset
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.schema import to_spark
from cm_delta_dagster.storage.store import Store
from cm_delta_dagster.storage.stores import Stores, scheme_of

try:
    from pyspark.sql.streaming import datasource as _admission
except ImportError:
    _admission = None  # type: ignore[assignment]  # Before Spark 4.2 there is none.

_AvailableNow: Any = object if _admission is None else _admission.SupportsTriggerAvailableNow

_BEGINNING: Mapping[str, Any] = {"beginning": True}
"""Start offset of a query without a checkpoint. The first batch determines the actual start; its end offset records it."""

_FIRST = "first"
_ROWS_PER_BATCH = 64 * 1024
_GROUPS, _LEAST_GROUP_BYTES, _MOST_GROUP_BYTES, _OPEN_COST_BYTES = 16, 4 * 2**20, 128 * 2**20, 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogHandle:
    """What another process needs to open a table of a catalog."""

    client: ClientSpec
    store: Store
    identifier: TableIdentifier
    table_id: str
    location: str

    def open(self) -> Table:
        stores = Stores(stores={scheme_of(self.location): self.store})
        return Table(
            services=self.client.open(stores),
            identifier=self.identifier,
            table_id=self.table_id,
            location=self.location,
            store=self.store,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PathHandle:
    """What another process needs to open a table by its path."""

    table: ReadableTable

    def open(self) -> ReadableTable:
        return self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """The specification of a source, which Spark sends to other processes.

    Attributes:
        reading: the definition that all rows are read by; the columns of the DataFrame are those of its schema.
        zone: time zone of ``timestamp`` partition values that state none.
    """

    handle: CatalogHandle | PathHandle
    options: StreamOptions
    reading: VersionDefinition
    columns: tuple[str, ...] | None
    where: Predicate | None
    zone: dt.tzinfo

    @property
    def schema(self) -> StructType:
        schema = self.reading.schema
        if self.columns is None:
            return schema
        fields = (schema.field(name) for name in self.columns)
        return StructType(tuple(item for item in fields if item is not None))


class TableSource(DataSource):
    """The source of one stream. Each stream has its own subclass, which Spark sends by value."""

    spec: ClassVar[StreamSpec]
    format_name: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.format_name

    def schema(self) -> T.StructType:
        return to_spark(self.spec.schema)

    def streamReader(self, schema: T.StructType) -> "TableStreamReader":  # noqa: N802 - Spark's name
        return TableStreamReader(self.spec, schema)


class FilePartition(InputPartition):
    """Files of one task, an Arrow table of ``ADD_SCHEMA`` as bytes."""

    def __init__(self, files: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, files.schema) as writer:
            writer.write_table(files)
        super().__init__(sink.getvalue().to_pybytes())

    @property
    def files(self) -> pa.Table:
        with pa.ipc.open_stream(self.value) as reader:
            return reader.read_all()


class TableStreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]  # Which base it is depends on the Spark.
    """Plans batches in a process beside the driver, and reads files in tasks, which have nothing but ``spec``.

    Offsets are the fields of ``StreamOffset`` as JSON. The end offset of the first batch also records the start of the query:
    if that batch fails, Spark runs it again with :data:`_BEGINNING` as its start.
    """

    def __init__(self, spec: StreamSpec, schema: T.StructType) -> None:
        self._spec = spec
        self._schema = schema
        self._table: ReadableTable | None = None
        self._state: StreamState | None = None
        self._bound: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(_BEGINNING)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        options = self._spec.options
        if options.max_files is not None:
            return _admission.ReadMaxFiles(options.max_files)
        return (
            _admission.ReadAllAvailable() if options.max_bytes is None else _admission.ReadMaxBytes(options.max_bytes)
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._bound = self._opened().latest_version()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if start is None:
            latest = StreamOffset(table_id=self._spec.reading.metadata.id, version=self._opened().latest_version() + 1)
            return _fields(latest)
        is_first = start == _BEGINNING
        state = self._state_at(None if is_first else _offset(start))
        bound = self._bound
        if bound is not None and is_first:
            # The table may have got commits since the bound was read.
            bound = max(bound, state.offset.version - (0 if state.offset.is_initial else 1))
        plan = self._next(state, limits=self._limits(limit), bound=bound)
        if is_first:
            return _fields(plan.end) | {_FIRST: _fields(state.offset)}
        return start if plan.end == state.offset else _fields(plan.end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        last = _offset(end)
        first = self._first(end) if start == _BEGINNING else _offset(start)
        if first == last:
            return []
        plan = self._next(self._state_at(first), until=last)
        return [FilePartition(group) for part in plan.parts for group in file_groups(part.files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePartition)
        spec = self._spec
        opened = spec.handle.open() if isinstance(spec.handle, PathHandle) else spec.handle
        shape = source_form(self._schema)
        request = ScanRequest(files=partition.files, columns=spec.columns, predicate=spec.where)
        layout = layout_of(spec.reading, opened.location, time_zone=spec.zone)
        batches = scan_batches(store=opened.store, layout=layout, request=request)
        for batch in batches:
            columns = [column.cast(item.type) for column, item in zip(batch.columns, shape, strict=True)]
            rows = pa.RecordBatch.from_arrays(columns, schema=shape)
            for first in range(0, rows.num_rows, _ROWS_PER_BATCH):
                yield rows.slice(first, _ROWS_PER_BATCH)

    def stop(self) -> None:
        if isinstance(self._table, Table) and isinstance(self._table.services, DeltaClient):
            self._table.services.close()

    def _opened(self) -> ReadableTable:
        if self._table is None:
            self._table = self._spec.handle.open()
        return self._table

    def _state_at(self, offset: StreamOffset | None) -> StreamState:
        if self._state is not None and self._state.offset == offset:
            return self._state
        spec = self._spec
        return open_stream(self._opened(), spec.options, offset, reading=spec.reading)

    def _next(
        self,
        state: StreamState,
        *,
        limits: AdmissionLimits = UNBOUNDED,
        bound: int | None = None,
        until: StreamOffset | None = None,
    ) -> StreamPlan:
        spec = self._spec
        plan, after = next_batch(self._opened(), state, spec.options, limits=limits, bound=bound, until=until)
        if plan.reading is not spec.reading:
            raise SchemaMismatchError(
                f"Version {plan.reading.version} of {self._opened().identifier} changes columns or nullability, and the DataFrame "
                f"of the query has the schema of version {spec.reading.version}. All rows before that version were read. Create "
                "a new DataFrame and start the query again with its checkpoint."
            )
        # A planned batch is read from its start next; after a batch with a fixed end, the stream continues from that end.
        self._state = state if until is None else after
        return plan

    def _limits(self, limit: Any) -> AdmissionLimits:
        match type(limit).__name__:
            case "ReadMaxFiles":
                return AdmissionLimits(max_files=limit.max_files, max_bytes=self._spec.options.max_bytes)
            case "ReadMaxBytes":
                return AdmissionLimits(max_files=None, max_bytes=limit.max_bytes)
            case "ReadAllAvailable":
                return UNBOUNDED
        raise InvalidArgumentError(f"Spark limits a batch by {limit!r}, which the stream of a table does not support.")

    def _first(self, end: Mapping[str, Any]) -> StreamOffset:
        if _FIRST in end:
            return _offset(end[_FIRST])
        # Spark before 4.2 passes no start when it requests the end: the rows of the snapshot before the end are the same rows.
        last, options = _offset(end), self._spec.options
        if options.starting_version == LATEST:
            return last
        if options.starting_version is not None or options.starting_timestamp_ms is not None:
            return open_stream(self._opened(), options).offset
        return StreamOffset(table_id=last.table_id, version=last.version - 1, is_initial=True)


def file_groups(files: pa.Table) -> Iterator[pa.Table]:
    """``files`` in groups for one task each: up to 128 MiB, as in Spark, and smaller to give more tasks."""
    if not files.num_rows:
        return
    sizes = np.asarray(pc.fill_null(files["size"], 0)) + _OPEN_COST_BYTES
    most = min(_MOST_GROUP_BYTES, max(_LEAST_GROUP_BYTES, int(sizes.sum()) // _GROUPS))
    groups = (np.cumsum(sizes) - sizes) // most
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    for first, last in zip(starts, [*starts[1:], files.num_rows], strict=True):
        yield files.slice(first, last - first)


def _fields(offset: StreamOffset) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(offset.to_json())
    return fields


def _offset(fields: Mapping[str, Any]) -> StreamOffset:
    return parse_offset(json.dumps({name: value for name, value in fields.items() if name != _FIRST}))


def source_form(schema: T.StructType) -> pa.Schema:
    """The Arrow schema of the rows that Spark accepts."""
    make = typing.cast(Any, to_arrow_schema)
    return make(schema) if _admission is None else make(schema, timezone="UTC")
