"""Which rows of a table have a partner in a source, and which clause of a merge applies to each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cm_delta_dagster.arrow.joined_rows import JoinedRows, JoinSource, RowNumbers, true_rows
from cm_delta_dagster.arrow.keyed_rows import PairedRows
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.scan import PLACE
from cm_delta_dagster.arrow.spill.spooled_rows import sized_batches
from cm_delta_dagster.operations.writing.engines.arrow_clauses import ArrowClause, ArrowCondition
from cm_delta_dagster.protocol.changes.row_changes import ClauseKind
from cm_delta_dagster.protocol.predicates.join_expressions import TARGET
from cm_delta_dagster.protocol.predicates.predicates import Predicate, column_path, columns_of
from cm_delta_dagster.protocol.predicates.scalars import paths_of_scalar
from cm_delta_dagster.protocol.schema.types import StructType

NO_PARTNER = -1
NO_CLAUSE = -1
_SEARCHED_ROWS = 2**20
_SEARCHED_BYTES = 2**28
"""Rows of the table are compared with the source when so many have been read, or so many bytes."""


class JoinedPlaces(NamedTuple):
    """Rows of the table that have a partner or change, in order.

    Attributes:
        places: of the rows.
        rows: the partner in the source of each; :data:`NO_PARTNER` for none.
        clauses: the number of the clause that applies to each; :data:`NO_CLAUSE` for none.
        partners: the rows of the source that have a partner, some more than once.
        num_ambiguous: pairs of a row of the table with a second or further partner.
    """

    places: RowNumbers
    rows: RowNumbers
    clauses: RowNumbers
    partners: RowNumbers
    num_ambiguous: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowJoin:
    """The condition of a merge and its clauses for rows of the table.

    Attributes:
        on: what pairs of rows with equal keys must satisfy; None for nothing.
        where: what rows of the table with a partner must satisfy; None for nothing.
        schema: of the table after the merge.
        clauses: for rows with and without a partner.
    """

    source: JoinSource
    schema: StructType
    clauses: Sequence[ArrowClause]
    on: ArrowCondition | None = None
    where: Predicate | None = None

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the table that are read to find partners and clauses."""
        conditions = [self.on, *(clause.condition for clause in self.clauses)]
        paths = [path for item in conditions if item is not None for path in paths_of_scalar(item.scalar)]
        names = [path[1] for path in paths if path[0] == TARGET]
        used = () if self.where is None else [column_path(column)[0] for column in columns_of(self.where)]
        named = [item.name for name in used if (item := self.schema.field(name)) is not None]
        return frozenset([*self.source.keys.names, *names, *named])

    def search(self, batches: Iterable[pa.RecordBatch]) -> JoinedPlaces:
        """Search rows of the table, with their places in the column ``arrow.scan.PLACE``.

        Raises:
            InvalidDataError: a value cannot be computed.
        """
        large = sized_batches(batches, num_rows=_SEARCHED_ROWS, num_bytes=_SEARCHED_BYTES)
        parts = [_NOTHING, *map(self._searched, self.source.keys.pairs(large))]
        places = np.concatenate([part.places for part in parts])
        order = np.argsort(places, kind="stable")
        return JoinedPlaces(
            places=places[order],
            rows=np.concatenate([part.rows for part in parts])[order],
            clauses=np.concatenate([part.clauses for part in parts])[order],
            partners=np.concatenate([part.partners for part in parts]),
            num_ambiguous=sum(part.num_ambiguous for part in parts),
        )

    def _searched(self, paired: PairedRows) -> JoinedPlaces:
        rows = paired.batch
        numbers, partners = self._pairs(paired)
        is_first = np.diff(numbers, prepend=-1) != 0
        matched, first_partners = numbers[is_first], partners[is_first]
        applied = self._applied(ClauseKind.MATCHED, rows, matched, first_partners)
        places = rows.column(PLACE).to_numpy()
        if any(clause.kind is ClauseKind.NOT_MATCHED_BY_SOURCE for clause in self.clauses):
            others = np.setdiff1d(np.arange(rows.num_rows), matched, assume_unique=True)
            applied_to_others = self._applied(
                ClauseKind.NOT_MATCHED_BY_SOURCE, rows, others, np.full(len(others), NO_PARTNER)
            )
            changes = applied_to_others != NO_CLAUSE
            others, applied_to_others = others[changes], applied_to_others[changes]
            matched = np.concatenate([matched, others])
            order = np.argsort(matched, kind="stable")
            matched = matched[order]
            first_partners = np.concatenate([first_partners, np.full(len(others), NO_PARTNER)])[order]
            applied = np.concatenate([applied, applied_to_others])[order]
        num_ambiguous = len(numbers) - int(is_first.sum())
        return JoinedPlaces(places[matched], first_partners, applied, partners, num_ambiguous)

    def _pairs(self, paired: PairedRows) -> tuple[RowNumbers, RowNumbers]:
        """The pairs for which the condition is true: rows of the table, in order, and rows of the source."""
        rows, numbers, partners = paired
        if self.where is not None and len(numbers):
            inside = true_rows(row_filter(self.where, self.schema).answer(rows.column, rows.num_rows))[numbers]
            numbers, partners = numbers[inside], partners[inside]
        if self.on is not None and len(numbers):
            fits = true_rows(self.on.answers(self._joined(rows, numbers, partners)))
            numbers, partners = numbers[fits], partners[fits]
        return numbers, partners

    def _applied(self, kind: ClauseKind, rows: pa.RecordBatch, numbers: RowNumbers, partners: RowNumbers) -> RowNumbers:
        clauses = enumerate(self.clauses)
        of_kind = {number: clause.condition for number, clause in clauses if clause.kind is kind}
        return first_true(of_kind, len(numbers), lambda some: self._joined(rows, numbers[some], partners[some]))

    def _joined(self, rows: pa.RecordBatch, numbers: RowNumbers, partners: RowNumbers) -> JoinedRows:
        return JoinedRows(source=self.source, num_rows=len(numbers), target=rows, places=numbers, rows=partners)


def first_true(
    conditions: Mapping[int, ArrowCondition | None], num_rows: int, rows_at: Callable[[RowNumbers], JoinedRows]
) -> RowNumbers:
    """For each row the number of the first condition that is true; :data:`NO_CLAUSE` for none.

    Args:
        conditions: by their numbers, in order; None is always true. Each is evaluated for the rows that those before leave.
        rows_at: some of the rows.
    """
    numbers = np.full(num_rows, NO_CLAUSE)
    rest = np.arange(num_rows)
    for number, condition in conditions.items():
        is_true = np.ones(len(rest), np.bool_) if condition is None else true_rows(condition.answers(rows_at(rest)))
        numbers[rest[is_true]] = number
        rest = rest[~is_true]
    return numbers


_NO_ROWS: RowNumbers = np.empty(0, np.int64)
_NOTHING = JoinedPlaces(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS)
