"""Conflicts of concurrent operations with real rows: both commit with the outcome of a serial execution, or one fails."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CommitConflictError
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from tests.operations.writing.test_write import Interleaved
from tests.support.builders import TableBuilder

Row = tuple[int, str, int]
Rows = frozenset[Row]

START: tuple[tuple[Row, ...], ...] = (((1, "a", 0), (3, "b", 0)), ((2, "a", 0), (4, "b", 0)))
"""Rows of two appends: two files in each partition."""

VERBS: Mapping[str, tuple[Callable[[TableBuilder, Any], Any], Callable[[Rows], Rows]]] = {
    "append a": (
        lambda it, table: append(table, frame=it.frame((5, "a", 1))),
        lambda rows: rows | {(5, "a", 1)},
    ),
    "overwrite": (
        lambda it, table: overwrite(table, frame=it.frame((6, "a", 1))),
        lambda rows: frozenset({(6, "a", 1)}),
    ),
    "overwrite a": (
        lambda it, table: overwrite(table, frame=it.frame((7, "a", 1)), where="p = 'a'"),
        lambda rows: frozenset(row for row in rows if row[1] != "a") | {(7, "a", 1)},
    ),
    "delete b": (
        lambda it, table: delete(table, spark=it.spark, where="p = 'b'"),
        lambda rows: frozenset(row for row in rows if row[1] != "b"),
    ),
    "delete 1": (
        lambda it, table: delete(table, spark=it.spark, where="id = 1"),
        lambda rows: frozenset(row for row in rows if row[0] != 1),
    ),
    "update 2": (
        lambda it, table: update(table, spark=it.spark, assignments={"v": "7"}, where="id = 2"),
        lambda rows: frozenset((*row[:2], 7) if row[0] == 2 else row for row in rows),
    ),
    "merge 2": (
        lambda it, table: merge(table, frame=it.frame((2, "a", 1)), keys=["id", "p"]),
        lambda rows: frozenset(row for row in rows if row[:2] != (2, "a")) | {(2, "a", 1)},
    ),
    "optimize": (
        lambda it, table: optimize(table, spark=it.spark),
        lambda rows: rows,
    ),
}
"""Each operation, and its effect on a set of rows."""

PAIRS = (
    ("WriteSerializable", "append a", "overwrite", True),
    ("WriteSerializable", "overwrite", "append a", True),
    ("Serializable", "overwrite", "append a", False),
    ("WriteSerializable", "overwrite a", "delete b", True),
    ("WriteSerializable", "overwrite a", "delete 1", False),
    ("WriteSerializable", "delete 1", "merge 2", True),
    ("Serializable", "merge 2", "append a", True),
    ("Serializable", "delete b", "append a", True),
    ("WriteSerializable", "merge 2", "optimize", False),
    ("WriteSerializable", "merge 2", "delete b", True),
)
"""Isolation level, loser, winner, and whether both commit."""


@pytest.fixture
def allowed(client: DeltaClient) -> Iterator[DeltaClient]:
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    client.catalog.maintenance_policies.set_maintenance_rule(rule)
    yield client


@pytest.mark.requirements("OCC-3", "OCC-8", "OCC-9", "OCC-10", "OCC-11", "OCC-12", "OCC-14")
@pytest.mark.parametrize(("level", "loser", "winner", "both"), PAIRS)
def test_the_outcome_is_that_of_a_serial_execution(
    allowed: DeltaClient, spark: SparkSession, tmp_path: Path, level: str, loser: str, winner: str, both: bool
) -> None:
    properties = {"delta.isolationLevel": level}
    builder = TableBuilder(allowed, spark, "id long, p string, v long", partition_by=["p"], properties=properties)
    for rows in START:
        builder.append(*rows)
    (lose, do_loser), (win, do_winner) = VERBS[loser], VERBS[winner]
    rows = frozenset(row for some in START for row in some)
    late: Any = Interleaved(builder.table, lambda: win(builder, builder.table))
    if not both:
        with pytest.raises(CommitConflictError):
            lose(builder, late)
        assert frozenset(builder.rows()) == do_winner(rows)
        return
    assert lose(builder, late).retries == 1
    assert frozenset(builder.rows()) in (do_loser(do_winner(rows)), do_winner(do_loser(rows)))


VECTOR_PAIRS = (
    ("delete 1", "delete 1"), ("delete 1", "update 2"), ("update 2", "delete 1"), ("update 2", "merge 2"), ("merge 2", "delete 1"),
    ("delete 1", "optimize"), ("optimize", "delete 1"),
)  # fmt: skip
"""Loser and winner, which mark the same rows or different rows of one file by deletion vectors, or rewrite that file."""


@pytest.mark.requirements("OCC-8", "OCC-9", "OCC-10", "DV-2")
@pytest.mark.parametrize(("loser", "winner"), VECTOR_PAIRS)
def test_vectors_of_one_file_conflict_even_for_different_rows(
    allowed: DeltaClient, spark: SparkSession, tmp_path: Path, loser: str, winner: str
) -> None:
    """Vectors are not merged, as in delta-spark; the second attempt loses no row of the winner."""
    properties = {"delta.enableDeletionVectors": "true"}
    builder = TableBuilder(allowed, spark, "id long, p string, v long", properties=properties)
    rows = frozenset((number, "a", 0) for number in range(1, 10))
    builder.append(*sorted(rows)[:5])
    builder.append(*sorted(rows)[5:])
    (lose, do_loser), (win, do_winner) = VERBS[loser], VERBS[winner]
    late: Any = Interleaved(builder.table, lambda: win(builder, builder.table))
    with pytest.raises(CommitConflictError):
        lose(builder, late)
    assert frozenset(builder.rows()) == do_winner(rows)
    if winner != "optimize":
        vectors = builder.table.snapshot().files["deletionVector"]
        assert len(vectors) - vectors.null_count == 1
    lose(builder, builder.table)
    assert frozenset(builder.rows()) == do_loser(do_winner(rows))


def test_an_overwrite_replaces_the_winner_if_it_may(client: DeltaClient, spark: SparkSession) -> None:
    """The files are written once, and nothing of the winner is left in the table."""
    builder = TableBuilder(client, spark, "id long")
    builder.append((1,))
    late: Any = Interleaved(builder.table, lambda: overwrite(builder.table, frame=builder.frame((2,))))
    with pytest.raises(CommitConflictError):
        overwrite(late, frame=builder.frame((3,)))
    assert builder.rows() == [(2,)]
    again: Any = Interleaved(builder.table, lambda: overwrite(builder.table, frame=builder.frame((4,))))
    result = overwrite(again, frame=builder.frame((5,)), options=CommitOptions(replaces_winners=True))
    assert (builder.rows(), result.retries, result.version) == ([(5,)], 1, 4)
