"""Entry points of ``check.py``: each takes a local path as other readers get it, and goes through the public verbs.

Functions on rows come twice: through Spark (``read``, ``catalog``, ``cdf``, ``rowids``, ``variant``) and without a JVM (the same
names with ``_arrow``). Both sorts of imports are late, so that a process loads only the one it uses.
"""

import functools
from typing import Any

import pyarrow as pa

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import PathTable, open_path_table
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.reading.history import history as history_of
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.storage.stores import Stores
from tests.golden.catalog import IDENTIFIER, RecordedCatalog

_STORES = Stores()


def _table(path: str) -> PathTable:
    return open_path_table(_STORES, path)


def _catalog_table(path: str, commits: list[dict[str, Any]], max_version: int | None) -> ReadableTable:
    catalog: Any = RecordedCatalog(f"file://{path}", commits, max_version)
    return DeltaClient(catalog, stores=_STORES).table(IDENTIFIER)


# --- the log ----------------------------------------------------------------------------------------------------------


def files(path: str, version: int | None) -> list[str]:
    snapshot = _table(path).snapshot(version=version)
    return [resolve_path(snapshot.location, name) for name in snapshot.files["path"].to_pylist()]


def meta(path: str, version: int | None) -> dict[str, Any]:
    snapshot = _table(path).snapshot(version=version)
    return {
        "version": snapshot.version,
        "min_reader_version": snapshot.protocol.min_reader_version,
        "min_writer_version": snapshot.protocol.min_writer_version,
        "reader_features": list(snapshot.protocol.reader_features or ()),
        "writer_features": list(snapshot.protocol.writer_features or ()),
        "properties": dict(snapshot.metadata.configuration),
        "partition_columns": list(snapshot.partition_columns),
        "columns": list(snapshot.schema.names),
    }


def schema(path: str, version: int | None) -> str:
    return _table(path).snapshot(version=version).metadata.schema_string


def domains(path: str, version: int | None) -> dict[str, str]:
    snapshot = _table(path).snapshot(version=version)
    return {name: domain.configuration for name, domain in snapshot.domains.items()}


def txn(path: str, app_id: str) -> int | None:
    found = _table(path).snapshot().transactions.get(app_id)
    return None if found is None else found.version


def timestamp(path: str, timestamp_ms: int) -> int:
    return _table(path).snapshot(timestamp_ms=timestamp_ms).version


def catalog_timestamp(path: str, timestamp_ms: int, commits: list[dict[str, Any]], max_version: int | None) -> int:
    return _catalog_table(path, commits, max_version).snapshot(timestamp_ms=timestamp_ms).version


def history(path: str) -> list[dict[str, Any]]:
    rows = []
    for entry in history_of(_table(path)):
        info = entry.commit_info
        rows.append(
            {
                "version": entry.version,
                "timestamp": entry.timestamp_ms,
                "operation": info and info.operation,
                "operationMetrics": dict((info and info.operation_metrics) or {}),
                "readVersion": info and info.read_version,
                "isBlindAppend": info and info.is_blind_append,
                "userMetadata": info and info.user_metadata,
            }
        )
    return rows


def catalog_files(path: str, version: int | None, commits: list[dict[str, Any]], max_version: int | None) -> list[str]:
    """Not one of ``check.py``: the live files of a catalog-managed table, where rows are not wanted."""
    snapshot = _catalog_table(path, commits, max_version).snapshot(version=version)
    return [resolve_path(snapshot.location, name) for name in snapshot.files["path"].to_pylist()]


# --- rows without a JVM -----------------------------------------------------------------------------------------------


def read_arrow(path: str, version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read_arrow import read_arrow as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    return rows(open_scan(_table(path), version=version))


def rowids_arrow(path: str, version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read_arrow import read_arrow as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    table = _table(path)
    columns = [*table.snapshot(version=version).schema.names, "_row_id", "_row_commit_version"]
    return rows(open_scan(table, columns=columns, version=version))


def variant_arrow(path: str, version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read_arrow import read_arrow as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
    from tests.support.variant_texts import variant_columns_to_json

    table = _table(path)
    return variant_columns_to_json(rows(open_scan(table, version=version)), table.snapshot(version=version).schema)


def catalog_arrow(path: str, version: int | None, commits: list[dict[str, Any]], max_version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read_arrow import read_arrow as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    return rows(open_scan(_catalog_table(path, commits, max_version), version=version))


def cdf_arrow(path: str, start: int, end: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
    from cm_delta_dagster.operations.reading.read_changes_arrow import read_changes_arrow

    return read_changes_arrow(open_changes(_table(path), ChangeRange(starting_version=start, ending_version=end)))


# --- rows through Spark -----------------------------------------------------------------------------------------------


@functools.cache
def _spark() -> Any:
    import os

    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[1]")
        .appName("cm-delta-dagster-golden")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def read(path: str, version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read import read as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    return _to_arrow(rows(open_scan(_table(path), version=version), spark=_spark()))


def catalog(path: str, version: int | None, commits: list[dict[str, Any]], max_version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read import read as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    return _to_arrow(rows(open_scan(_catalog_table(path, commits, max_version), version=version), spark=_spark()))


def rowids(path: str, version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read import read as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    table = _table(path)
    names = [*table.snapshot(version=version).schema.names, "_row_id", "_row_commit_version"]
    return rows(open_scan(table, version=version, columns=names), spark=_spark()).toArrow()


def variant(path: str, version: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.read import read as rows
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    return _to_arrow(rows(open_scan(_table(path), version=version), spark=_spark()))


def _to_arrow(frame: Any) -> pa.Table:
    """The rows; a column that holds a variant anywhere as JSON text, because Spark cannot give Arrow a null variant."""
    from pyspark.sql import functions as F

    from cm_delta_dagster.spark.expressions.schema import quoted

    columns = [
        F.to_json(quoted(item.name)).alias(item.name)
        if "variant" in item.dataType.simpleString()
        else F.col(quoted(item.name))
        for item in frame.schema
    ]
    return frame.select(*columns).toArrow()


def cdf(path: str, start: int, end: int | None) -> pa.Table:
    from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
    from cm_delta_dagster.operations.reading.read_changes import read_changes

    return read_changes(
        open_changes(_table(path), ChangeRange(starting_version=start, ending_version=end)), spark=_spark()
    ).toArrow()
