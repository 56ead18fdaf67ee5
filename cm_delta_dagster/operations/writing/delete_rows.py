"""Deletes the rows that satisfy a condition within a write. DELETE and the overwrite of a slice share it.

A file whose partition values prove that every row satisfies the condition is removed without being read.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts, VectorCounts, with_files
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.engines.arrow_changes import ArrowChanges
from cm_delta_dagster.operations.writing.engines.change_engine import ChangeEngine
from cm_delta_dagster.operations.writing.engines.spark_changes import SparkChanges
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.data_skipping import partition_matches_exactly
from cm_delta_dagster.spark.changes.change_clauses import ChangeClause
from cm_delta_dagster.spark.changes.row_changes import RowChangeQuery
from cm_delta_dagster.spark.expressions.predicates import holds
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.session.errors import spark_errors

_ALIAS = "target"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatchingFiles:
    """Files that may hold rows that satisfy a condition.

    Attributes:
        whole: files of which the partition values prove that all rows satisfy it.
        mixed: the others.
    """

    where: Predicate
    whole: pa.Table
    mixed: pa.Table


def matching_files(snapshot: Snapshot, where: Predicate) -> MatchingFiles:
    """The files that may hold rows that satisfy ``where``. No file is read."""
    candidates = snapshot.matching_files(where)
    fully_matching = partition_matches_exactly(
        candidates,
        where,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.column_mapping,
        zone=snapshot.time_zone,
    )
    return MatchingFiles(
        where=where, whole=candidates.filter(fully_matching), mixed=candidates.filter(pc.invert(fully_matching))
    )


def delete_whole_files(write: WriteTransaction, files: MatchingFiles) -> ChangeCounts:
    """Delete the rows of files that all satisfy the condition, without Spark; the caller declares the read and commits."""
    assert not files.mixed.num_rows, "some files may also hold rows that stay"
    write.transaction.keeps_row_ids = True  # No row is copied.
    counts = ChangeCounts(
        removed_files=files.mixed,
        num_updated_rows={},
        num_deleted_rows={},
        num_copied_rows=0,
        num_inserted_rows=0,
        vectors=VectorCounts(),
    )
    return with_files(counts, files.whole)


def delete_rows(
    write: WriteTransaction, session: SparkSession | None, files: MatchingFiles, *, marks: bool = True
) -> ChangeCounts:
    """Delete the rows that satisfy the condition; the caller declares the read and commits.

    Args:
        session: that finds and copies rows with at most two jobs; None for Arrow, which evaluates the condition.
        marks: files may get deletion vectors.

    Raises:
        InvalidArgumentError: Spark does not accept the condition, such as a number.
    """
    snapshot = write.transaction.snapshot
    engine = _engine(write, session, files.where)
    run = RowChangeRun(write=write, engine=engine, candidates=files.mixed, whole=files.whole, marks=marks)
    with spark_errors(f"deleting rows of {snapshot.identifier}"):
        return run.run()


def _engine(write: WriteTransaction, session: SparkSession | None, where: Predicate) -> ChangeEngine:
    snapshot = write.transaction.snapshot
    if session is None:
        return ArrowChanges(transaction=write, where=where, row_ids=kept_row_ids(snapshot))
    clause = ChangeClause(
        kind=ClauseKind.NOT_MATCHED_BY_SOURCE,
        action=ClauseAction.DELETE,
        condition=holds(where, snapshot.schema),
        values={},
    )
    query = RowChangeQuery(
        schema=snapshot.schema, target_alias=_ALIAS, clauses=(clause,), row_ids=kept_row_ids(snapshot)
    )
    return SparkChanges(transaction=write, session=session, query=query, where=where)
