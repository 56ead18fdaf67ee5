"""Deletes the rows that satisfy a condition within a write. DELETE and the overwrite of a slice share it.

A file whose partition values prove that every row satisfies the condition is removed without being read.
"""

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cm_delta_dagster.operations.writing.change_counts import ChangeCounts
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.data_skipping import partition_matches_exactly
from cm_delta_dagster.spark.changes.change_clauses import ChangeClause, ClauseAction, ClauseKind
from cm_delta_dagster.spark.changes.row_changes import RowChangeQuery
from cm_delta_dagster.spark.expressions.predicates import holds
from cm_delta_dagster.spark.session.errors import spark_errors

_ALIAS = "target"


def delete_rows(
    write: WriteTransaction, session: SparkSession, where: Predicate, *, marks: bool = True
) -> ChangeCounts:
    """Delete the rows that satisfy ``where``, with at most two Spark jobs; the caller declares the read and commits.

    Args:
        marks: files may get deletion vectors.

    Raises:
        InvalidArgumentError: Spark does not accept the condition, such as a number.
    """
    snapshot = write.transaction.snapshot
    candidates = snapshot.matching_files(where)
    fully_matching = partition_matches_exactly(
        candidates,
        where,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.column_mapping,
        zone=snapshot.time_zone,
    )
    whole, mixed = candidates.filter(fully_matching), candidates.filter(pc.invert(fully_matching))
    clause = ChangeClause(
        kind=ClauseKind.NOT_MATCHED_BY_SOURCE,
        action=ClauseAction.DELETE,
        condition=holds(where, snapshot.schema),
        values={},
    )
    query = RowChangeQuery(
        schema=snapshot.schema, target_alias=_ALIAS, clauses=(clause,), row_ids=kept_row_ids(snapshot)
    )
    run = RowChangeRun(
        write=write, session=session, query=query, candidates=mixed, where=where, whole=whole, marks=marks
    )
    with spark_errors(f"deleting rows of {snapshot.identifier}"):
        return run.run()
