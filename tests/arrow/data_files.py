"""Data files written by hand, and the scan over them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.schema.types import DataType, StructField, StructType
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.store import Store


def columns(**types: DataType) -> StructType:
    """A schema of nullable columns without metadata."""
    return StructType(tuple(StructField(name, data_type) for name, data_type in types.items()))


def mapped(name: str, data_type: DataType, number: int, physical: str | None = None) -> StructField:
    """A column of a table with column mapping."""
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical or f"col-{number}"}
    return StructField(name, data_type, True, metadata)


def numbered(name: str, arrow: pa.DataType, number: int, nullable: bool = True) -> pa.Field:
    """A field of a data file that carries a field id."""
    return pa.field(name, arrow, nullable, {"PARQUET:field_id": str(number)})


class DataFiles:
    """Files of one table without a log."""

    def __init__(self, root: Path, store: Store | None = None) -> None:
        self.root = root
        self.location = f"file://{root}"
        self.store = store or LocalStore()
        self.adds: list[AddFile] = []

    def add(
        self,
        rows: pa.Table,
        *,
        partition: Mapping[str, str | None] | None = None,
        deleted: Iterable[int] = (),
        base_row_id: int | None = None,
        row_commit_version: int | None = None,
        stats: Mapping[str, Any] | None = None,
        write: Callable[..., None] = pq.write_table,
        **options: Any,
    ) -> str:
        """Write a file, and remember it; the path in the log is returned."""
        path = f"part-{len(self.adds):05d}.parquet"
        write(rows, str(self.root / path), **options)
        positions = list(deleted)
        self.adds.append(
            AddFile(
                path=path,
                partition_values=dict(partition or {}),
                size=(self.root / path).stat().st_size,
                modification_time=0,
                stats=None if stats is None else json.dumps(stats),
                deletion_vector=encode_inline(positions) if positions else None,
                base_row_id=base_row_id,
                default_row_commit_version=row_commit_version,
            )
        )
        return path

    def stream(self, schema: StructType, partition_columns: Sequence[str] = (), **more: Any) -> pa.RecordBatchReader:
        layout = TableLayout(
            location=self.location,
            schema=schema,
            partition_columns=partition_columns,
            mapping=more.pop("mapping", ColumnMappingMode.NONE),
            time_zone=more.pop("zone", None),
        )
        request = ScanRequest(files=adds_to_table(self.adds), **more)
        return scan_batches(store=self.store, layout=layout, request=request)

    def read(self, schema: StructType, partition_columns: Sequence[str] = (), **more: Any) -> pa.Table:
        table = self.stream(schema, partition_columns, **more).read_all()
        table.validate(full=True)
        return table

    def rows(self, schema: StructType, partition_columns: Sequence[str] = (), **more: Any) -> list[tuple[Any, ...]]:
        """Rows in the order of the files, as tuples."""
        table = self.read(schema, partition_columns, **more)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
