"""What a change does to rows: kinds of clauses, and positions of the rows of each file (protocol heading "Deletion Vectors")."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import or_

from pyroaring import BitMap64


class ClauseKind(StrEnum):
    """Which rows of the join of table and source a clause applies to."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    """Rows of the source without a partner."""
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"
    """Rows of the table without a partner; all rows of the table if there is no source."""


class ClauseAction(StrEnum):
    """What a clause does."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileChanges:
    """Positions of the rows of one file that have a partner or change."""

    matched: BitMap64
    updated: Mapping[ClauseKind, BitMap64]
    deleted: Mapping[ClauseKind, BitMap64]

    @property
    def all_updated(self) -> BitMap64:
        return reduce(or_, self.updated.values(), BitMap64())

    @property
    def changed(self) -> BitMap64:
        return reduce(or_, self.deleted.values(), self.all_updated)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundChanges:
    """The rows that a change concerns.

    Attributes:
        files: changes by file key.
        num_ambiguous: pairs of a row of the table with a second or further partner.
        num_partners: rows of the source with a partner; None if there are no clauses for the others.
        has_checked_rows: the row counts in the log were compared with those of the files.
    """

    files: Mapping[str, FileChanges]
    num_ambiguous: int
    num_partners: int | None
    has_checked_rows: bool = False

    @classmethod
    def at(cls, positions: Mapping[str, BitMap64], kind: ClauseKind, action: ClauseAction) -> "FoundChanges":
        """The changes of one clause without a source.

        Args:
            positions: of the rows for which its condition is true, by file key, as ``arrow.scan.row_positions`` finds them.
        """
        none: Mapping[ClauseKind, BitMap64] = {}
        files = {
            key: FileChanges(
                matched=BitMap64(),
                updated={kind: bitmap} if action is ClauseAction.UPDATE else none,
                deleted={kind: bitmap} if action is ClauseAction.DELETE else none,
            )
            for key, bitmap in positions.items()
        }
        return cls(files=files, num_ambiguous=0, num_partners=None, has_checked_rows=True)


def totals(parts: Iterable[Mapping[ClauseKind, BitMap64]]) -> dict[ClauseKind, int]:
    """The numbers of rows by the kind of clause."""
    totals: dict[ClauseKind, int] = {}
    for part in parts:
        for kind, positions in part.items():
            totals[kind] = totals.get(kind, 0) + len(positions)
    return totals
