"""High-water marks of a table that no commit lowers (protocol headings "Row Tracking", "Identity Columns").

Below a mark, row ids and numbers of identity columns have been assigned. A writer that lowers it assigns them again.

What is defined again has no mark at first. Actions show it of row tracking: a protocol without the feature removes that of row
ids. They show it of an identity column that was absent before, and of one with another physical name, another column id, another
start or another step.

A replacement of the table that reuses a column looks like a lower mark. Only ``commitInfo`` says that it is one, by an operation of
``_REPLACE``. The writer states that, so that it counts only if the commit sets ``metaData``, which requires the privilege ``alter``
while grants are enforced, and if it removes as many files as the table has, if the catalog knows their number.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.features.identity_columns import HIGH_WATER_MARK, START, STEP
from cm_delta_dagster.protocol.schema.types import parse_schema

_REPLACE = ("REPLACE TABLE", "CREATE OR REPLACE TABLE", "CLONE")
"""Beginnings of the operations that define all columns again. A clone has the columns of its source."""


@dataclass(frozen=True, slots=True)
class IdentityMark:
    """The numbers of an identity column.

    Attributes:
        number: the high-water mark; None before the first value.
        column_id: of column mapping; None if the schema does not say.
    """

    start: int
    step: int
    number: int | None
    column_id: int | None = None

    def is_lowered_by(self, after: "IdentityMark") -> bool:
        """Whether ``after`` is this column with a mark that is behind, in the direction of the step."""
        if (self.start, self.step) != (after.start, after.step):
            return False
        if None not in (self.column_id, after.column_id) and self.column_id != after.column_id:
            return False
        if self.number is None:
            return False
        return after.number is None or (after.number - self.number) * self.step < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks of a table after a commit.

    Attributes:
        row_id: the highest row id; None if it is not known.
        identity: the marks that are known, by the physical name of the column.
    """

    row_id: int | None = None
    identity: Mapping[str, IdentityMark] = field(default_factory=dict)

    def identity_text(self) -> str | None:
        """``identity`` as JSON; None without marks."""
        values = {
            name: [mark.start, mark.step, mark.number, *([] if mark.column_id is None else [mark.column_id])]
            for name, mark in self.identity.items()
        }
        return json.dumps(values, sort_keys=True) if values else None

    @classmethod
    def stored(cls, row_id: int | None, identity_text: str | None) -> "Marks":
        """The marks of :meth:`identity_text`."""
        identity = {} if identity_text is None else json.loads(identity_text)
        return cls(row_id=row_id, identity={name: IdentityMark(*values) for name, values in identity.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMarks:
    """What a commit says about marks.

    Attributes:
        row_id: the highest row id; None if the commit does not say.
        forgets_row_id: whether its protocol does not have row tracking.
        identity: the identity columns by their physical names, if the commit sets the metadata.
        redefines_columns: whether it states that all columns are defined again.
        num_removed: number of ``remove`` actions.
    """

    row_id: int | None = None
    forgets_row_id: bool = False
    identity: Mapping[str, IdentityMark] | None = None
    redefines_columns: bool = False
    num_removed: int = 0

    def flaw_after(self, before: Marks) -> CommitFlaw | None:
        """The first mark of the table that the commit lowers; None if it lowers none."""
        if self.row_id is not None and before.row_id is not None and self.row_id < before.row_id:
            why = f"has the row id high-water mark {self.row_id}, and that of the table is {before.row_id}"
            return CommitFlaw(action="domainMetadata", field="configuration", why=why)
        for name, mark in (self.identity or {}).items():
            if (known := self._lowered(name, before)) is not None:
                why = (
                    f"has the high-water mark {mark.number} of the identity column {name}, and that of the table is "
                    f"{known.number}"
                )
                return CommitFlaw(action="metaData", field="schemaString", why=why)
        return None

    def _lowered(self, name: str, before: Marks) -> IdentityMark | None:
        """The high-water mark of the identity column before the commit, if the commit lowers it."""
        known = before.identity.get(name)
        if self.redefines_columns or self.identity is None or known is None:
            return None
        return known if known.is_lowered_by(self.identity[name]) else None

    def after(self, before: Marks) -> Marks:
        """The marks after the commit; what it does not say, and what it lowers although it must not, stays."""
        row_ids = [row_id for row_id in (before.row_id, self.row_id) if row_id is not None]
        row_id = None if self.forgets_row_id or not row_ids else max(row_ids)
        if self.identity is None:
            return replace(before, row_id=row_id)
        identity = {name: self._lowered(name, before) or mark for name, mark in self.identity.items()}
        return Marks(row_id=row_id, identity={name: mark for name, mark in identity.items() if mark.number is not None})

    def believed(self, *, num_files: int | None) -> "StatedMarks":
        """These marks, without the statement that all columns are defined again if files of the table stay.

        Args:
            num_files: files of the table before the commit; None if the number is not known.
        """
        is_believed = num_files is None or self.num_removed >= num_files
        return self if is_believed else replace(self, redefines_columns=False)


def stated_marks(
    *,
    domain: DomainMetadata | None,
    metadata: Metadata | None,
    protocol: Protocol | None,
    operation: str | None,
    num_removed: int = 0,
) -> StatedMarks:
    """The marks in a commit whose actions are valid.

    Args:
        domain: that of row tracking.
        operation: of commitInfo.
        num_removed: number of ``remove`` actions.
    """
    is_removed = domain is not None and domain.removed
    return StatedMarks(
        row_id=None if domain is None or is_removed else row_tracking.high_water_mark({domain.domain: domain}),
        forgets_row_id=protocol is not None and not row_tracking.is_supported(protocol),
        identity=None if metadata is None else _identity(metadata),
        redefines_columns=(operation or "").startswith(_REPLACE),
        num_removed=num_removed,
    )


def _identity(metadata: Metadata) -> dict[str, IdentityMark]:
    identity: dict[str, IdentityMark] = {}
    for column in parse_schema(metadata.schema_string).fields:
        start, step, mark, column_id = (column.metadata.get(key) for key in (START, STEP, HIGH_WATER_MARK, COLUMN_ID))
        if isinstance(start, int) and isinstance(step, int) and (mark is None or isinstance(mark, int)):
            name = str(column.metadata.get(PHYSICAL_NAME, column.name))
            identity[name] = IdentityMark(start, step, mark, column_id if isinstance(column_id, int) else None)
    return identity
