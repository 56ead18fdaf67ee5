"""High-water marks of a table that no commit lowers (protocol headings "Row Tracking", "Identity Columns").

Below a mark, row ids and numbers of identity columns have been assigned. A writer that lowers it assigns them again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME
from cm_delta_dagster.protocol.features.identity_columns import HIGH_WATER_MARK, START, STEP
from cm_delta_dagster.protocol.schema.types import parse_schema

_REPLACE = ("REPLACE TABLE", "CREATE OR REPLACE TABLE", "CLONE")
"""Beginnings of the operations that define all columns again. A clone has the columns of its source."""

IdentityMark: TypeAlias = tuple[int, int, int]
"""Start, step and high-water mark of an identity column."""


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
        return json.dumps(dict(self.identity), sort_keys=True) if self.identity else None

    @classmethod
    def stored(cls, row_id: int | None, identity_text: str | None) -> "Marks":
        """The marks of :meth:`identity_text`."""
        identity = {} if identity_text is None else json.loads(identity_text)
        return cls(row_id=row_id, identity={name: (mark[0], mark[1], mark[2]) for name, mark in identity.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMarks:
    """What a commit says about marks.

    Attributes:
        row_id: the highest row id; None if the commit does not say.
        forgets_row_id: whether it removes the domain of row tracking together with the feature.
        identity: start, step and high-water mark of each identity column by its physical name, if the commit sets the metadata; the
            last is None before the first value.
        redefines_columns: whether all columns are defined again.
    """

    row_id: int | None = None
    forgets_row_id: bool = False
    identity: Mapping[str, tuple[int, int, int | None]] | None = None
    redefines_columns: bool = False

    def flaw_after(self, before: Marks) -> CommitFlaw | None:
        """The first mark of the table that the commit lowers; None if it lowers none."""
        if self.row_id is not None and before.row_id is not None and self.row_id < before.row_id:
            why = f"has the row id high-water mark {self.row_id}, and that of the table is {before.row_id}"
            return CommitFlaw(action="domainMetadata", field="configuration", why=why)
        for name, (_, _, mark) in (self.identity or {}).items():
            if (known := self._lowered(name, before)) is not None:
                why = (
                    f"has the high-water mark {mark} of the identity column {name}, and that of the table is {known[2]}"
                )
                return CommitFlaw(action="metaData", field="schemaString", why=why)
        return None

    def _lowered(self, name: str, before: Marks) -> IdentityMark | None:
        """The high-water mark of the identity column before the commit, if the commit lowers it."""
        known = before.identity.get(name)
        if self.redefines_columns or self.identity is None or known is None:
            return None
        start, step, mark = self.identity[name]
        if known[:2] != (start, step):
            return None
        return known if mark is None or (mark - known[2]) * step < 0 else None

    def after(self, before: Marks) -> Marks:
        """The marks after the commit; what it does not say, and what it lowers although it must not, stays."""
        row_ids = [row_id for row_id in (before.row_id, self.row_id) if row_id is not None]
        row_id = None if self.forgets_row_id or not row_ids else max(row_ids)
        if self.identity is None:
            return replace(before, row_id=row_id)
        identity: dict[str, IdentityMark] = {}
        for name, (start, step, mark) in self.identity.items():
            if (known := self._lowered(name, before)) is not None:
                identity[name] = known
            elif mark is not None:
                identity[name] = (start, step, mark)
        return Marks(row_id=row_id, identity=identity)


def stated_marks(
    *, domain: DomainMetadata | None, metadata: Metadata | None, protocol: Protocol | None, operation: str | None
) -> StatedMarks:
    """The marks in a commit whose actions are valid.

    Args:
        domain: that of row tracking.
        operation: of commitInfo.
    """
    is_removed = domain is not None and domain.removed
    return StatedMarks(
        row_id=None if domain is None or is_removed else row_tracking.high_water_mark({domain.domain: domain}),
        forgets_row_id=is_removed and protocol is not None and not row_tracking.is_supported(protocol),
        identity=None if metadata is None else _identity(metadata),
        redefines_columns=(operation or "").startswith(_REPLACE),
    )


def _identity(metadata: Metadata) -> dict[str, tuple[int, int, int | None]]:
    identity: dict[str, tuple[int, int, int | None]] = {}
    for column in parse_schema(metadata.schema_string).fields:
        start, step, mark = (column.metadata.get(key) for key in (START, STEP, HIGH_WATER_MARK))
        if isinstance(start, int) and isinstance(step, int) and (mark is None or isinstance(mark, int)):
            identity[str(column.metadata.get(PHYSICAL_NAME, column.name))] = (start, step, mark)
    return identity
