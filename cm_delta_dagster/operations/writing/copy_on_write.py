"""Delete the rows that satisfy a predicate by copy-on-write. DELETE and the overwrite of a slice share it.

A file whose partition values prove that every row satisfies the predicate is removed without being read. A file that holds
matching and other rows is rewritten.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.writing.write_transaction import rows_of_files, scan_files, scan_files_by_name
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.data_skipping import partition_matches_exactly
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.rewrite import files_named, matches_by_file, rows_that_stay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopyOnWritePlan:
    """Which files a copy-on-write delete removes, and which of their rows it writes again.

    Attributes:
        removed_files: files that leave the table, as add actions.
        copied_rows: rows of the removed files that do not satisfy the predicate; None if there are none.
        num_deleted_rows: rows that leave the table; None if the log has no row count for a file that was not read.
    """

    removed_files: pa.Table
    copied_rows: DataFrame | None
    num_deleted_rows: int | None


def plan_copy_on_write(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, predicate: Predicate
) -> CopyOnWritePlan:
    """Find the files that hold rows satisfying ``predicate``, with at most two Spark jobs. Changes nothing."""
    candidates = snapshot.matching_files(predicate)
    fully_matching = partition_matches_exactly(
        candidates,
        predicate,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.column_mapping,
        zone=snapshot.time_zone,
    )
    whole, mixed = candidates.filter(fully_matching), candidates.filter(pc.invert(fully_matching))
    num_rows = logical_row_count(whole)
    if not mixed.num_rows:
        return CopyOnWritePlan(removed_files=whole, copied_rows=None, num_deleted_rows=num_rows)
    matches = matches_by_file(
        scan_files_by_name(table, snapshot, session, mixed, snapshot.schema), predicate, snapshot.schema
    )
    touched = files_named(mixed, snapshot.location, matches)
    num_matches = sum(matches.values())
    copied_rows = None
    if touched.num_rows and rows_of_files(table, snapshot, session, touched) != num_matches:
        rows = scan_files(table, snapshot, session, touched, snapshot.schema)
        copied_rows = rows_that_stay(rows, predicate, snapshot.schema)
    return CopyOnWritePlan(
        removed_files=pa.concat_tables([whole, touched]),
        copied_rows=copied_rows,
        num_deleted_rows=None if num_rows is None else num_rows + num_matches,
    )
