"""DELETE and UPDATE by Arrow, in this process. Rows are read and written in streams."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from cm_delta_dagster.arrow.write.assigned_values import AssignedValues
from cm_delta_dagster.operations.writing.engines.arrow_files import ArrowFiles, of_kind
from cm_delta_dagster.operations.writing.engines.change_engine import FilePlan, RecordedRows
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.changes.change_data_feed import ChangeType
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind, FoundChanges
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.predicates.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowChanges:
    """A :class:`~cm_delta_dagster.operations.writing.engines.change_engine.ChangeEngine` for one clause without a source.

    Attributes:
        where: the rows that change; Arrow evaluates it.
        values: new values of these rows; None if they are deleted.
    """

    transaction: WriteTransaction
    where: Predicate
    values: AssignedValues | None = None
    row_ids: RowIdColumns | None = None

    @property
    def inserts(self) -> bool:
        return False

    @property
    def num_source_rows(self) -> int:
        return 0

    @property
    def files(self) -> ArrowFiles:
        return ArrowFiles(transaction=self.transaction, row_ids=self.row_ids)

    def without_inserts(self) -> "ArrowChanges":
        return self

    def find(self, candidates: pa.Table) -> FoundChanges:
        action = ClauseAction.DELETE if self.values is None else ClauseAction.UPDATE
        return FoundChanges.at(self.files.find(candidates, self.where), ClauseKind.NOT_MATCHED_BY_SOURCE, action)

    def write(self, plan: FilePlan) -> int:
        if not plan.kept and not plan.updated:
            return 0
        return self.files.add(self.files.rewritten(plan, self._new_values), checked=self.values is not None)

    def _new_values(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.values is not None:
            yield self.values.applied(batch)

    def write_recorded(self, plan: FilePlan) -> RecordedRows:
        files = ArrowFiles(transaction=self.transaction)  # Change files have no ids of rows.
        changed = files.changed(plan, plan.changed, [file.changes.changed for file in plan.changed])
        whole = () if plan.whole is None else files.all(plan.whole)
        written = self.write(plan)
        return RecordedRows(written=written, recorded=files.record(self._images(chain(changed, whole))))

    def insert(self, candidates: pa.Table) -> int:
        raise AssertionError("there is no source")

    def count_rows(self, files: pa.Table) -> int:
        return self.files.count(files)

    def _images(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of change files: deleted rows, or rows before and after the change."""
        for batch in batches:
            if self.values is None:
                yield of_kind(batch, ChangeType.DELETE)
            else:
                yield of_kind(batch, ChangeType.UPDATE_PREIMAGE)
                yield of_kind(self.values.applied(batch), ChangeType.UPDATE_POSTIMAGE)
