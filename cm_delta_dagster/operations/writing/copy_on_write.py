"""Taking the rows that satisfy a predicate out of a table, copy-on-write (heading "DML", DML-2, DML-3). Room:
operations.

Shared by DELETE and by the overwrite of a slice. Files whose partition values prove that every row goes are removed
without a look into them; only files that hold rows of both kinds are rewritten.
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
class Removal:
    """Which files go and which rows of them stay.

    Attributes:
        removed: files that leave the table.
        stays: rows that must be written again, or None if no file is rewritten.
        num_removed_rows: rows that leave, or None where the log does not tell and nothing was read.
    """

    removed: pa.Table
    stays: DataFrame | None
    num_removed_rows: int | None


def plan_removal(table: WriteTarget, snapshot: Snapshot, session: SparkSession, predicate: Predicate) -> Removal:
    """Find the files that hold rows satisfying ``predicate``; at most one Spark job. Changes nothing."""
    candidates = snapshot.matching_files(predicate)
    whole = partition_matches_exactly(
        candidates, predicate, schema=snapshot.schema, partition_columns=snapshot.partition_columns
    )
    certain, mixed = candidates.filter(whole), candidates.filter(pc.invert(whole))
    known = logical_row_count(certain)
    if not mixed.num_rows:
        return Removal(removed=certain, stays=None, num_removed_rows=known)
    matches = matches_by_file(
        scan_files_by_name(table, snapshot, session, mixed, snapshot.schema), predicate, snapshot.schema
    )
    touched = files_named(mixed, snapshot.location, matches)
    gone = sum(matches.values())
    stays = None
    if touched.num_rows and rows_of_files(table, snapshot, session, touched) != gone:
        rows = scan_files(table, snapshot, session, touched, snapshot.schema)
        stays = rows_that_stay(rows, predicate, snapshot.schema)
    return Removal(
        removed=pa.concat_tables([certain, touched]),
        stays=stays,
        num_removed_rows=None if known is None else known + gone,
    )
