"""A merge by key by Arrow, in this process. The rows of the source are in memory; those of the table are read in streams."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.arrow.keyed_rows import NO_ROW, KeyedRows
from cm_delta_dagster.arrow.scan import PLACE, files_and_positions, scan_places
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.arrow.write.assigned_values import UpdatedRows
from cm_delta_dagster.operations.writing.engines.arrow_files import ArrowFiles, inserted_rows, of_kind, stored_schema
from cm_delta_dagster.operations.writing.engines.change_engine import ChangedFile, FilePlan, RecordedRows
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.changes.change_data_feed import ChangeType
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind, FileChanges, FoundChanges
from cm_delta_dagster.protocol.features.computed_columns import computed_columns
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WrittenFiles

_RowNumbers = npt.NDArray[np.int64]

_SEARCHED_ROWS = 2**20
"""Rows of the table that are compared with the source at a time, at least."""


@dataclass(frozen=True, slots=True)
class _Partners:
    """Positions of the rows of a file that have a partner, in order, and the rows of the source that are their partners."""

    positions: _RowNumbers
    rows: _RowNumbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowMerge:
    """A :class:`~cm_delta_dagster.operations.writing.engines.change_engine.ChangeEngine`.

    Attributes:
        source: as readers of the table will see its rows. Its keys are unique, unless rows with partners are deleted.
        matched: what happens to rows of the table with a partner; None for nothing.
        updated: columns that an update takes from the source.
        inserts: whether rows of the source without a partner are added.
        deletes_others: whether rows of the table without a partner are deleted.
        only: rows of the table that do not satisfy it have no partner, and are not deleted; None for all.
    """

    transaction: WriteTransaction
    source: KeyedRows
    matched: ClauseAction | None
    updated: Sequence[str] = ()
    inserts: bool = False
    deletes_others: bool = False
    only: Predicate | None = None
    row_ids: RowIdColumns | None = None
    _partners: dict[str, _Partners] = field(default_factory=dict)

    @property
    def num_source_rows(self) -> int:
        num_rows: int = self.source.rows.num_rows
        return num_rows

    @property
    def files(self) -> ArrowFiles:
        return ArrowFiles(transaction=self.transaction, row_ids=self.row_ids)

    def without_inserts(self) -> "ArrowMerge":
        return replace(self, inserts=False)

    def find(self, candidates: pa.Table) -> FoundChanges:
        places, rows, deleted = self._search(candidates)
        changes: dict[str, FileChanges] = {}
        keys = file_keys(self.files.layout.location, candidates["path"]).to_pylist()
        by_file, removed = _by_file(places, rows), _by_file(deleted, deleted)
        for number in sorted({*by_file, *removed}):
            partners = by_file.get(number, _NONE)
            positions = _bitmap(partners.positions)
            self._partners[keys[number]] = partners
            gone = {ClauseKind.NOT_MATCHED_BY_SOURCE: _bitmap(removed[number].positions)} if number in removed else {}
            if self.matched is ClauseAction.DELETE:
                gone[ClauseKind.MATCHED] = positions
            updated = {ClauseKind.MATCHED: positions} if self.matched is ClauseAction.UPDATE else {}
            changes[keys[number]] = FileChanges(matched=positions, updated=updated, deleted=gone)
        num_partners = len(np.unique(rows)) if self.inserts else None
        return FoundChanges(files=changes, num_ambiguous=0, num_partners=num_partners, has_checked_rows=True)

    def write(self, plan: FilePlan) -> int:
        files = self.files
        touched = [file for file in (*plan.kept, *plan.updated) if file.changes.all_updated]
        news = self._new_rows(plan) if self.inserts else self.source.rows.slice(0, 0)
        together = not computed_columns(files.layout.schema)
        written = 0
        if plan.kept or touched or (together and news.num_rows):
            updated = map(files.with_new_versions, self._updated(plan, touched))
            inserted = self._completed(news) if together else ()
            written = files.add(chain(files.unchanged(plan), updated, inserted), checked=bool(touched) or self.inserts)
        if news.num_rows and not together:
            written += self._insert(news).num_rows
        return written

    def write_recorded(self, plan: FilePlan) -> RecordedRows:
        changes = self.without_inserts()
        written = changes.write(plan)
        files = ArrowFiles(transaction=self.transaction)  # Change files have no ids of rows.
        rows = files.changed(plan, plan.changed, [file.changes.changed for file in plan.changed])
        recorded = files.record(self._images(rows, plan))
        num_inserted = 0
        if self.inserts and (news := self._new_rows(plan)).num_rows:
            added = self._insert(news)
            num_inserted = added.num_rows
            self.transaction.add_changes(inserted_rows(self.transaction, added))
        return RecordedRows(written=written + num_inserted, recorded=recorded)

    def insert(self, candidates: pa.Table) -> int:
        rows = self._search(candidates)[1] if candidates.num_rows else _NO_ROWS
        news = self._without(rows)
        return self._insert(news).num_rows if news.num_rows else 0

    def count_rows(self, files: pa.Table) -> int:
        return self.files.count(files)

    def _search(self, candidates: pa.Table) -> tuple[_RowNumbers, _RowNumbers, _RowNumbers]:
        """The places of rows with a partner, the rows of the source that are their partners, and the places of rows without one
        that are deleted.
        """
        layout = self.files.layout
        fields = [item for name in self.source.names if (item := layout.schema.field(name)) is not None]
        batches = scan_places(
            store=self.files.store,
            layout=layout,
            files=candidates,
            columns=StructType(tuple(fields)),
            predicate=self.only,
        )
        parts = [_NOTHING, *map(self._looked_up, _large(batches))]
        places, rows, deleted = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return places, rows, deleted

    def _looked_up(self, table: pa.Table) -> tuple[_RowNumbers, _RowNumbers, _RowNumbers]:
        places = table[PLACE].to_numpy()
        partners = self.source.find([table[name].combine_chunks() for name in self.source.names])
        has_partner = partners != NO_ROW
        others = places[~has_partner] if self.deletes_others else places[:0]
        return places[has_partner], partners[has_partner], others

    def _updated(self, plan: FilePlan, files: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
        """The updated rows of files, with the values of their partners."""
        rows, first = self._rows_of(plan, files), 0
        batches = self.files.changed(plan, files, [file.changes.all_updated for file in files])
        changed = UpdatedRows.of(self.updated, self.files.layout)
        for batch in batches:
            yield self._from_source(batch, rows[first : first + batch.num_rows], changed)
            first += batch.num_rows

    def _from_source(self, batch: pa.RecordBatch, rows: _RowNumbers, changed: UpdatedRows) -> pa.RecordBatch:
        """Rows of the table with the values of ``rows`` of the source."""
        taken = self.source.rows.select(list(self.updated)).take(pa.array(rows))
        return changed.changed(batch, {name: taken[name].combine_chunks() for name in self.updated})

    def _images(self, batches: Iterable[pa.RecordBatch], plan: FilePlan) -> Iterator[pa.RecordBatch]:
        """The rows of change files: of rows that are updated before and after, of others as they are deleted.

        Args:
            batches: the rows of the changed files of the plan that change.
        """
        is_updated = np.concatenate([np.empty(0, np.bool_), *map(_marks, plan.changed)])
        rows = self._rows_of(plan, [file for file in plan.changed if file.changes.all_updated])
        changed = UpdatedRows.of(self.updated, self.files.layout)
        first = first_updated = 0
        for batch in batches:
            marks = is_updated[first : first + batch.num_rows]
            first += batch.num_rows
            yield of_kind(batch.filter(pa.array(~marks)), ChangeType.DELETE)
            before = batch.filter(pa.array(marks))
            yield of_kind(before, ChangeType.UPDATE_PREIMAGE)
            partners = rows[first_updated : first_updated + before.num_rows]
            first_updated += before.num_rows
            yield of_kind(self._from_source(before, partners, changed), ChangeType.UPDATE_POSTIMAGE)

    def _rows_of(self, plan: FilePlan, files: Sequence[ChangedFile]) -> _RowNumbers:
        """The partners of the updated rows of files, in the order of files and positions."""
        keys = file_keys(self.files.layout.location, plan.files(files)["path"]).to_pylist()
        return np.concatenate([_NO_ROWS, *(self._partners[key].rows for key in keys)])

    def _new_rows(self, plan: FilePlan) -> pa.Table:
        return self._without(np.concatenate([_NO_ROWS, *(part.rows for part in self._partners.values())]))

    def _without(self, rows: _RowNumbers) -> pa.Table:
        """The rows of the source but ``rows``."""
        stays = np.ones(self.num_source_rows, np.bool_)
        stays[rows] = False
        return self.source.rows.filter(pa.array(stays))

    def _insert(self, news: pa.Table) -> WrittenFiles:
        """Write rows of the source to files of their own; the table computes the columns that they lack."""
        return self.transaction.add_rows(ArrowRows(source=news, schema=from_arrow_schema(news.schema)))

    def _completed(self, news: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of the source with NULL in the columns that they lack, as rows of the table."""
        schema = stored_schema(self.files.layout, self.row_ids)
        for batch in news.to_batches():
            columns = [
                batch.column(item.name) if item.name in news.column_names else pa.nulls(batch.num_rows, item.type)
                for item in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


_NO_ROWS: _RowNumbers = np.empty(0, np.int64)
_NONE = _Partners(_NO_ROWS, _NO_ROWS)
_NOTHING = (_NO_ROWS, _NO_ROWS, _NO_ROWS)


def _large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in larger parts."""
    taken: list[pa.RecordBatch] = []
    for batch in batches:
        taken.append(batch)
        if sum(part.num_rows for part in taken) >= _SEARCHED_ROWS:
            yield pa.Table.from_batches(taken)
            taken = []
    if taken:
        yield pa.Table.from_batches(taken)


def _by_file(places: _RowNumbers, rows: _RowNumbers) -> dict[int, _Partners]:
    """Places of rows, and rows of the source, by the number of the file. The places are in order."""
    files, positions = files_and_positions(places)
    numbers, starts = np.unique(files, return_index=True)
    ends = [*starts[1:], len(files)][: len(numbers)]
    return {
        int(number): _Partners(positions[start:end], rows[start:end])
        for number, start, end in zip(numbers, starts, ends, strict=True)
    }


def _bitmap(positions: _RowNumbers) -> BitMap64:
    return BitMap64(positions.astype(np.uint64))


def _marks(file: ChangedFile) -> npt.NDArray[np.bool_]:
    """Whether each changed row of a file, in order, is updated."""
    return np.isin(file.changes.changed.to_array(), file.changes.all_updated.to_array(), assume_unique=True)
