"""A merge by Arrow, in this process. Rows are read and written in streams.

In memory are the places and partners of the rows of the table that have a partner or change, and a flag for each row of the source.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.arrow.joined_rows import JoinedRows, JoinSource, RowNumbers
from cm_delta_dagster.arrow.scan import files_and_positions, scan_places
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.operations.writing.engines.arrow_clauses import ArrowClause
from cm_delta_dagster.operations.writing.engines.arrow_files import (
    ArrowFiles,
    NewValues,
    inserted_rows,
    of_kind,
    stored_schema,
)
from cm_delta_dagster.operations.writing.engines.arrow_join import (
    NO_CLAUSE,
    NO_PARTNER,
    ArrowJoin,
    JoinedPlaces,
    first_true,
)
from cm_delta_dagster.operations.writing.engines.change_engine import ChangedFile, FilePlan, RecordedRows
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.changes.change_data_feed import ChangeType
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind, FileChanges, FoundChanges
from cm_delta_dagster.protocol.features.computed_columns import computed_columns
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.statistics.data_file_writes import WrittenFiles

_INSERTED_ROWS = 2**20
"""At most so many rows are inserted from one batch."""


class _Changed(NamedTuple):
    """Positions of the rows of a file that have a partner or change, in order, their partners, and the clauses that apply."""

    positions: RowNumbers
    rows: RowNumbers
    clauses: RowNumbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowMerge:
    """A :class:`~cm_delta_dagster.operations.writing.engines.change_engine.ChangeEngine`.

    Attributes:
        join: finds the rows of the table that have a partner or change.
        inserted: the clauses for rows of the source without a partner.
        read: every row of the table that has a partner or changes satisfies it; None for all.
    """

    transaction: WriteTransaction
    join: ArrowJoin
    inserted: Sequence[ArrowClause] = ()
    read: Predicate | None = None
    row_ids: RowIdColumns | None = None
    _changed: dict[str, _Changed] = field(default_factory=dict)
    _partners: list[RowNumbers] = field(default_factory=list)

    @property
    def inserts(self) -> bool:
        return bool(self.inserted)

    @property
    def num_source_rows(self) -> int:
        return self.source.num_rows

    @property
    def source(self) -> JoinSource:
        return self.join.source

    @property
    def files(self) -> ArrowFiles:
        return ArrowFiles(transaction=self.transaction, row_ids=self.row_ids)

    def without_inserts(self) -> "ArrowMerge":
        return replace(self, inserted=())

    def find(self, candidates: pa.Table) -> FoundChanges:
        searched = self._search(candidates)
        changes: dict[str, FileChanges] = {}
        keys = file_keys(self.files.layout.location, candidates["path"]).to_pylist()
        for number, changed in _by_file(searched):
            self._changed[keys[number]] = changed
            changes[keys[number]] = self._file_changes(changed)
        num_partners = len(np.unique(searched.partners)) if self.inserts else None
        return FoundChanges(
            files=changes,
            num_ambiguous=searched.num_ambiguous,
            num_partners=num_partners,
            has_checked_rows=True,
        )

    def write(self, plan: FilePlan) -> int:
        files = self.files
        touched = [file for file in (*plan.kept, *plan.updated) if file.changes.all_updated]
        news = list(self._new_rows()) if self.inserts else []
        together = not computed_columns(files.layout.schema)
        written = 0
        if plan.kept or touched or (together and news):
            rows = files.rewritten(plan, self._new_values(plan, [*plan.kept, *plan.updated]))
            inserted = chain.from_iterable(map(self._completed, news)) if together else ()
            written = files.add(chain(rows, inserted), checked=bool(touched) or self.inserts)
        return written if together else written + sum(self._insert(rows).num_rows for rows in news)

    def write_recorded(self, plan: FilePlan) -> RecordedRows:
        written = self.without_inserts().write(plan)
        files = ArrowFiles(transaction=self.transaction)  # Change files have no ids of rows.
        rows = files.changed(plan, plan.changed, [file.changes.changed for file in plan.changed])
        recorded = files.record(self._images(rows, plan))
        num_inserted = 0
        for news in self._new_rows():
            added = self._insert(news)
            num_inserted += added.num_rows
            self.transaction.add_changes(inserted_rows(self.transaction, added))
        return RecordedRows(written=written + num_inserted, recorded=recorded)

    def insert(self, candidates: pa.Table) -> int:
        if candidates.num_rows:
            self._search(candidates)
        return sum(self._insert(rows).num_rows for rows in self._new_rows())

    def count_rows(self, files: pa.Table) -> int:
        return self.files.count(files)

    def _search(self, candidates: pa.Table) -> JoinedPlaces:
        layout, columns = self.files.layout, sorted(self.join.columns)
        batches = scan_places(
            store=self.files.store, layout=layout, files=candidates, columns=columns, predicate=self.read
        )
        searched = self.join.search(batches)
        self._partners.append(searched.partners)
        return searched

    def _file_changes(self, changed: _Changed) -> FileChanges:
        updated: dict[ClauseKind, BitMap64] = {}
        deleted: dict[ClauseKind, BitMap64] = {}
        for number in np.unique(changed.clauses[changed.clauses != NO_CLAUSE]):
            clause = self.join.clauses[number]
            by_kind = updated if clause.action is ClauseAction.UPDATE else deleted
            positions = _bitmap(changed.positions[changed.clauses == number])
            by_kind[clause.kind] = by_kind.get(clause.kind, BitMap64()) | positions
        matched = changed.positions[changed.rows != NO_PARTNER]
        return FileChanges(matched=_bitmap(matched), updated=updated, deleted=deleted)

    def _new_values(self, plan: FilePlan, files: Sequence[ChangedFile]) -> NewValues:
        """What the updated rows of files become, which are handed over in the order of files and positions."""
        rows, clauses = self._updates(plan, files)
        first = 0

        def new_values(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            nonlocal first
            part = slice(first, first + batch.num_rows)
            first += batch.num_rows
            return self._with_new_values(batch, rows[part], clauses[part])

        return new_values

    def _with_new_values(
        self, batch: pa.RecordBatch, rows: RowNumbers, clauses: RowNumbers
    ) -> Iterator[pa.RecordBatch]:
        """Updated rows, whose partners are ``rows``, after the clause that applies to each, in the order of the clauses."""
        for number in np.unique(clauses):
            places = np.flatnonzero(clauses == number)
            some = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
            joined = JoinedRows(source=self.source, num_rows=some.num_rows, target=some, rows=rows[places])
            yield from self.join.clauses[number].applied(joined)

    def _images(self, batches: Iterable[pa.RecordBatch], plan: FilePlan) -> Iterator[pa.RecordBatch]:
        """The rows of change files: of rows that are updated before and after, of others as they are deleted.

        Args:
            batches: the rows of the changed files of the plan that change.
        """
        is_updated = np.concatenate([np.empty(0, np.bool_), *map(_marks, plan.changed)])
        new_values = self._new_values(plan, plan.changed)
        first = 0
        for batch in batches:
            marks = is_updated[first : first + batch.num_rows]
            first += batch.num_rows
            yield of_kind(batch.filter(pa.array(~marks)), ChangeType.DELETE)
            before = batch.filter(pa.array(marks))
            yield of_kind(before, ChangeType.UPDATE_PREIMAGE)
            for after in new_values(before):
                yield of_kind(after, ChangeType.UPDATE_POSTIMAGE)

    def _updates(self, plan: FilePlan, files: Sequence[ChangedFile]) -> tuple[RowNumbers, RowNumbers]:
        """The partners of the updated rows of files, in the order of files and positions, and the clauses that update them."""
        keys = file_keys(self.files.layout.location, plan.files(files)["path"]).to_pylist()
        updates = [number for number, clause in enumerate(self.join.clauses) if clause.action is ClauseAction.UPDATE]
        changes = [_NONE, *(self._changed[key] for key in keys)]
        rows = np.concatenate([changed.rows for changed in changes])
        clauses = np.concatenate([changed.clauses for changed in changes])
        is_updated = np.isin(clauses, updates)
        return rows[is_updated], clauses[is_updated]

    def _new_rows(self) -> Iterator[pa.RecordBatchReader]:
        """The values of the rows of the source without a partner that a clause inserts; a stream for each set of columns."""
        has_partner = np.zeros(self.num_source_rows, np.bool_)
        for partners in self._partners:
            has_partner[partners] = True
        alone = np.flatnonzero(~has_partner)
        conditions = {number: clause.condition for number, clause in enumerate(self.inserted)}
        applied = first_true(conditions, len(alone), lambda some: self._from_source(alone[some]))
        by_columns: dict[tuple[str, ...], list[tuple[ArrowClause, RowNumbers]]] = {}
        for number, clause in enumerate(self.inserted):
            rows = alone[applied == number]
            if len(rows):
                names = tuple(sorted(value.item.name for value in clause.values))
                by_columns.setdefault(names, []).append((clause, rows))
        for names, clauses in by_columns.items():
            batches = self._inserted(names, clauses)
            first = next(batches)
            yield pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))

    def _inserted(
        self, names: Sequence[str], clauses: Sequence[tuple[ArrowClause, RowNumbers]]
    ) -> Iterator[pa.RecordBatch]:
        """The values that clauses insert for rows of the source, at least one batch."""
        for clause, rows in clauses:
            for first in range(0, len(rows), _INSERTED_ROWS):
                for part in self._from_source(rows[first : first + _INSERTED_ROWS]).parts(clause.paths):
                    yield pa.RecordBatch.from_pydict(clause.new_values(part)).select(list(names))

    def _from_source(self, rows: RowNumbers) -> JoinedRows:
        return JoinedRows(source=self.source, num_rows=len(rows), rows=rows)

    def _insert(self, news: pa.RecordBatchReader) -> WrittenFiles:
        """Write rows of the source to files of their own; the table computes the columns that they lack."""
        return self.transaction.add_rows(ArrowRows(source=news, schema=from_arrow_schema(news.schema)))

    def _completed(self, news: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Rows of the source with NULL in the columns that they lack, as rows of the table."""
        schema = stored_schema(self.files.layout, self.row_ids)
        for batch in news:
            columns = [
                batch.column(item.name) if item.name in news.schema.names else pa.nulls(batch.num_rows, item.type)
                for item in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


_NO_ROWS: RowNumbers = np.empty(0, np.int64)
_NONE = _Changed(_NO_ROWS, _NO_ROWS, _NO_ROWS)


def _by_file(searched: JoinedPlaces) -> Iterator[tuple[int, _Changed]]:
    """The rows that have a partner or change, by the number of the file. The places are in order."""
    files, positions = files_and_positions(searched.places)
    numbers, starts = np.unique(files, return_index=True)
    ends = [*starts[1:], len(files)][: len(numbers)]
    for number, start, end in zip(numbers, starts, ends, strict=True):
        part = slice(start, end)
        yield int(number), _Changed(positions[part], searched.rows[part], searched.clauses[part])


def _bitmap(positions: RowNumbers) -> BitMap64:
    return BitMap64(positions.astype(np.uint64))


def _marks(file: ChangedFile) -> npt.NDArray[np.bool_]:
    """Whether each changed row of a file, in order, is updated."""
    return np.isin(file.changes.changed.to_array(), file.changes.all_updated.to_array(), assume_unique=True)
