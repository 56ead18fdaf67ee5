"""OPTIMIZE, REORG, VACUUM and RESTORE."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.optimize import optimize as optimize_table
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizeOutcome, OptimizeResult
from cm_delta_dagster.operations.maintenance.reorg import reorg as reorg_table
from cm_delta_dagster.operations.maintenance.rewritten_partitions import partition_predicate
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum
from cm_delta_dagster.operations.maintenance.vacuum import vacuum as vacuum_table
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.names import Name
from cm_delta_dagster.operations.sql.qualifiers import TableQualifiers
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.targets import SqlSession, open_table, time_of, time_travel
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.operations.tables.restore import restore as restore_table
from cm_delta_dagster.protocol.schema.column_paths import path_text

_HOUR_MS = 60 * 60 * 1000
_SIZES = "struct<min: bigint, max: bigint, avg: double, totalFiles: bigint, totalSize: bigint>"
_OPTIMIZED = {
    "path": "string",
    "metrics": (
        f"struct<numFilesAdded: bigint, numFilesRemoved: bigint, filesAdded: {_SIZES}, filesRemoved: {_SIZES}, "
        "partitionsOptimized: bigint, numBins: bigint, totalConsideredFiles: bigint, totalFilesSkipped: bigint>"
    ),
}
"""The part of delta-spark's metrics that applies here, under its names."""
_RESTORED = {
    "table_size_after_restore": "bigint",
    "num_of_files_after_restore": "bigint",
    "num_removed_files": "bigint",
    "num_restored_files": "bigint",
    "removed_files_size": "bigint",
    "restored_files_size": "bigint",
}
_NO_FILES: tuple[Any, ...] = (None, None, 0.0, 0, 0)
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


def optimize(session: SqlSession, statement: Statement) -> Answer:
    """``OPTIMIZE name [FULL] [WHERE condition] [ZORDER BY (columns)]``.

    Raises:
        CmDeltaError: as :func:`cm_delta_dagster.operations.maintenance.optimize.optimize`.
    """
    words = Words(statement, after=1)
    words.take("TABLE")
    name = words.table()
    full = words.takes("FULL")
    where = words.until("ZORDER BY", what="the condition").text if words.takes("WHERE") else None
    columns: list[str] = []
    if words.takes("ZORDER BY"):
        columns = words.listed(lambda: path_text(words.name()), brackets=words.peek() == "(")
    words.done()
    return _rewritten(session, name, where, partial(optimize_table, spark=session.spark, z_order_by=columns, full=full))


def reorg(session: SqlSession, statement: Statement) -> Answer:
    """``REORG TABLE name [WHERE condition] APPLY (PURGE)``.

    Raises:
        CmDeltaError: as :func:`cm_delta_dagster.operations.maintenance.reorg.reorg`.
    """
    words = Words(statement, after=1)
    words.expect("TABLE")
    name = words.table()
    where = words.until("APPLY", what="the condition").text if words.takes("WHERE") else None
    words.expect("APPLY")
    words.bracket("(")
    if not words.takes("PURGE"):
        raise words.refusal("this form of REORG", "Write REORG TABLE name APPLY (PURGE).")
    words.bracket(")")
    words.done()
    return _rewritten(session, name, where, partial(reorg_table, spark=session.spark))


def vacuum(session: SqlSession, statement: Statement) -> Answer:
    """``VACUUM name [RETAIN n HOURS] [DRY RUN]``.

    Raises:
        CmDeltaError: as :func:`cm_delta_dagster.operations.maintenance.vacuum.vacuum`.
    """
    words = Words(statement, after=1)
    words.take("TABLE")
    name = words.table()
    retention, dry = None, False
    while not words.is_done():
        if words.takes("RETAIN"):
            retention = _hours(words)
        elif words.takes("DRY RUN"):
            dry = True
        elif words.peek() in ("LITE", "USING"):
            raise words.refusal(f"VACUUM {words.peek()}", "Leave it out: VACUUM lists the files of the table.")
        elif not words.takes("FULL"):
            raise words.fault("RETAIN n HOURS or DRY RUN")
    table = open_table(session, name)
    is_checked = str(session.spark.conf.get(_RETENTION_CHECK, "true")).lower() != "false"
    if dry:
        plan = plan_vacuum(table, retention_ms=retention, force=not is_checked)
        return Answer(columns={"path": "string"}, rows=tuple((f"{table.location}/{path}",) for path in plan.paths))
    vacuum_table(table, retention_ms=retention, force=not is_checked)
    return Answer(columns={"path": "string"}, rows=((table.location,),))


def _hours(words: Words) -> int:
    text = words.until("HOURS", "HOUR", what="the number of hours").text
    if not words.take("HOURS", "HOUR"):
        raise words.fault("HOURS")
    try:
        return int(float(text) * _HOUR_MS)
    except ValueError:
        raise words.refusal(f"the retention {text}", "Write a number of hours, such as RETAIN 168 HOURS.") from None


def restore(session: SqlSession, statement: Statement) -> Answer:
    """``RESTORE TABLE name TO VERSION AS OF n``, or ``TO TIMESTAMP AS OF time``.

    Raises:
        CmDeltaError: as :func:`cm_delta_dagster.operations.tables.restore.restore`.
    """
    words = Words(statement, after=1)
    words.take("TABLE")
    name = words.table()
    words.take("TO")
    target = time_travel(words, statement)
    if target is None:
        raise words.fault("VERSION AS OF or TIMESTAMP AS OF")
    words.done()
    table = open_table(session, name)
    result = restore_table(table, version=target.version, timestamp_ms=time_of(session, target, table))
    after = table.snapshot(version=result.version)
    row = (
        after.size_bytes,
        after.num_files,
        result.num_removed_files,
        result.num_restored_files,
        result.removed_bytes,
        result.restored_bytes,
    )
    return Answer(columns=_RESTORED, rows=(row,))


def _rewritten(session: SqlSession, name: Name, where: str | None, rewrite: Callable[..., OptimizeResult]) -> Answer:
    """Open the table, rewrite its files in the partitions of the condition, and return the metrics."""
    table = open_table(session, name)
    condition = _condition(table, where)
    considered = _considered(table, condition)
    return _optimized(table, rewrite(table, where=condition), considered=considered)


def _condition(table: Table, where: str | None) -> str | None:
    if where is None:
        return None
    return TableQualifiers(table.identifier, None, table.snapshot().schema).expression(where)


def _considered(table: Table, where: str | None) -> int:
    """The number of files in the partitions of a condition."""
    snapshot = table.snapshot()
    return int(snapshot.matching_files(partition_predicate(snapshot, where)).num_rows)


def _optimized(table: Table, result: OptimizeResult, *, considered: int) -> Answer:
    added = removed = _NO_FILES
    partitions = 0
    if result.outcome is OptimizeOutcome.COMMITTED:
        for commit in table.commit_actions(result.version, result.version):
            added, removed = _sizes(commit.adds["size"]), _sizes(commit.removes["size"])
            partitions = len(_partitions(commit.adds["partitionValues"].to_pylist()))
    metrics = (
        result.num_added_files,
        result.num_removed_files,
        added,
        removed,
        partitions,
        result.num_bins,
        considered,
        max(0, considered - result.num_removed_files),
    )
    return Answer(columns=_OPTIMIZED, rows=((table.location, metrics),))


def _sizes(column: pa.ChunkedArray) -> tuple[Any, ...]:
    if not len(column):
        return _NO_FILES
    bounds = pc.min_max(column)
    total = pc.sum(column).as_py()
    return (bounds["min"].as_py(), bounds["max"].as_py(), total / len(column), len(column), total)


def _partitions(values: Iterable[Any]) -> set[tuple[tuple[str, str | None], ...]]:
    """The distinct partition values of files, which Arrow returns as pairs."""
    return {tuple(sorted(dict(value or ()).items())) for value in values}
