"""Methods that hand one table to pyarrow, DuckDB or polars, which pass on the columns and rows that a query needs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TypeVar

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.arguments import Timestamp
from cm_delta_dagster.operations.reading.duckdb_connection import (
    DuckDBConnection,
    DuckDBPyConnection,
    DuckDBPyRelation,
    to_relation,
)
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.read_polars import PolarsDataFrame, PolarsLazyFrame, scan_polars
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.protocol.predicates.predicates import Predicate

_Result = TypeVar("_Result")


class EngineReads(ABC):
    """Reads of one table by other engines; they need neither Java nor a Spark session.

    Each call fixes the version that it reads. Columns, rows and types are those of ``to_arrow``, whose arguments these
    methods take.
    """

    @abstractmethod
    def _in_known_zone(self, zone: tzinfo | str | None) -> ReadableTable:
        """The table with the time zone of a call."""

    @abstractmethod
    def _epoch_ms(self, timestamp: Timestamp | None, zone: tzinfo | str | None = None) -> int | None:
        """The time of a call in epoch milliseconds; None for None."""

    def _read_version(
        self,
        read: Callable[..., _Result],
        columns: Sequence[str] | None,
        where: Condition | None,
        version: int | None,
        timestamp: Timestamp | None,
        zone: tzinfo | str | None,
    ) -> _Result:
        """The result of an operation that reads one version without Spark."""
        return read(
            self._in_known_zone(zone),
            columns=columns,
            where=where,
            version=version,
            timestamp_ms=self._epoch_ms(timestamp, zone),
        )

    def to_pyarrow_dataset(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: tzinfo | str | None = None,
    ) -> DeltaDataset:
        """Return one version as a ``pyarrow.dataset.Dataset``, for engines that scan datasets; arguments as in ``to_arrow``.

        A scan reads the columns that it names, and skips files by its filter.
        """
        return self._read_version(read_dataset, columns, where, version, timestamp, time_zone)

    def to_duckdb(
        self,
        connection: "DuckDBConnection | DuckDBPyConnection | None" = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: tzinfo | str | None = None,
    ) -> "DuckDBPyRelation":
        """Return one version as a DuckDB relation; the other arguments as in ``to_arrow``.

        Args:
            connection: the connection of the relation; None for DuckDB's default connection.

        Raises:
            EngineError: DuckDB is not installed.
        """
        return to_relation(self.to_pyarrow_dataset(columns, where, version, timestamp, time_zone), connection)

    def scan_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: tzinfo | str | None = None,
    ) -> PolarsLazyFrame:
        """Return one version as a ``polars.LazyFrame``, read when it is collected; arguments as in ``to_arrow``.

        Raises:
            EngineError: polars is not installed.
            UnsupportedFeatureError: a column has a type that polars does not have.
        """
        return self._read_version(scan_polars, columns, where, version, timestamp, time_zone)

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: tzinfo | str | None = None,
    ) -> PolarsDataFrame:
        """Read the rows of one version as a ``polars.DataFrame``; arguments and errors as in :meth:`scan_polars`."""
        return self.scan_polars(columns, where, version, timestamp, time_zone).collect()
