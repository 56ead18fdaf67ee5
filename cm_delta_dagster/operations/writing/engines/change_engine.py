"""What an engine does for a change of rows. It finds and writes rows; the change decides what happens to each file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.operations.writing.change_counts import VectorCounts
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.changes.row_changes import FileChanges, FoundChanges
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangedFile:
    """A live file that changes.

    Attributes:
        position: its row in the table of candidates.
        deleted: positions that were deleted before.
        num_rows: physical rows; None if the log has no number.
    """

    position: int
    changes: FileChanges
    deleted: BitMap64
    num_rows: int | None

    @property
    def is_gone(self) -> bool:
        return self.num_rows is not None and len(self.changes.changed) + len(self.deleted) == self.num_rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilePlan:
    """What happens to the files.

    Attributes:
        candidates: the files that can hold rows that change, as add actions.
        whole: files of which all rows are deleted, which need not be read to know that; None if there are none.
        marked: files that get a new deletion vector.
        removed: files that leave the table.
        kept: the removed files whose unchanged rows are written again.
        updated: the files besides ``kept`` with updated rows.
        others: further files with partners of source rows, by their rows in the table of candidates.
        num_partners: rows of the table with partners.
    """

    candidates: pa.Table
    whole: pa.Table | None
    marked: tuple[ChangedFile, ...]
    removed: tuple[ChangedFile, ...]
    kept: tuple[ChangedFile, ...]
    updated: tuple[ChangedFile, ...]
    others: Mapping[int, FileChanges]
    num_partners: int

    @property
    def vectors(self) -> VectorCounts:
        return VectorCounts(
            added=sum(not file.deleted for file in self.marked),
            removed=sum(bool(file.deleted) for file in self.removed),
            updated=sum(bool(file.deleted) for file in self.marked),
        )

    @property
    def changed(self) -> tuple[ChangedFile, ...]:
        """The files that change, in the order of the candidates."""
        files = {file.position: file for file in (*self.marked, *self.removed)}
        return tuple(files[position] for position in sorted(files))

    def files(self, files: Sequence[ChangedFile]) -> pa.Table:
        """``files`` as add actions."""
        return self.candidates.take(pa.array([file.position for file in files], pa.int64()))


class RecordedRows(NamedTuple):
    """Rows in data files, and rows in change files without those of inserted rows."""

    written: int
    recorded: int


class ChangeEngine(Protocol):
    """Finds and writes the rows of one change in its transaction.

    Attributes:
        row_ids: hidden columns in which rows that move keep their ids.
        inserts: whether rows of the source may be added.
        num_source_rows: rows of the source; 0 without one.
    """

    @property
    def row_ids(self) -> RowIdColumns | None: ...

    @property
    def inserts(self) -> bool: ...

    @property
    def num_source_rows(self) -> int: ...

    def without_inserts(self) -> "ChangeEngine":
        """An engine for the clauses that change rows of the table."""

    def find(self, candidates: pa.Table) -> FoundChanges:
        """The rows of ``candidates`` that have a partner or change."""

    def write(self, plan: FilePlan) -> int:
        """Write the rows of a plan to data files. Returns their number."""

    def write_recorded(self, plan: FilePlan) -> RecordedRows:
        """As :meth:`write`, with change files for the rows that change, and for all rows of the whole files."""

    def insert(self, candidates: pa.Table) -> int:
        """Add the rows of the source without a partner in ``candidates``. Returns their number."""

    def count_rows(self, files: pa.Table) -> int:
        """The number of rows of files, counted in the files."""


def by_file_key(location: str, positions: Mapping[str, BitMap64]) -> dict[str, BitMap64]:
    """Positions of rows by file key, of those by the path of the file in the log of the table at ``location``."""
    keys = file_keys(location, pa.array(list(positions), pa.string())).to_pylist()
    return dict(zip(keys, positions.values(), strict=True))
