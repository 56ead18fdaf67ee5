"""High-water marks of a table that no commit lowers (protocol headings "Row Tracking", "Identity Columns").

Below a mark, row ids and numbers of identity columns have been assigned. A writer that lowers it assigns them again.

What is defined again has no mark at first. Actions show it of row tracking: a protocol without the feature removes that of row
ids. They show it of an identity column that was absent before, and of one with another physical name or another column id. Another
start or another step is another sequence of numbers. Each sequence keeps its mark while the column has another sequence or is not
an identity column, so that a commit that brings the sequence back does not lower it. Physical names and ids count only with column
mapping: readers ignore them otherwise. Names are compared ignoring case, as clients compare them.

A replacement of the table that reuses a column looks like a lower mark. Only ``commitInfo`` says that it is one, by an operation of
``_REPLACE``. The writer states that, so that it counts only if the commit sets ``metaData``, which requires the privilege ``alter``
while grants are enforced, and if it removes as many files as the table has, if the catalog knows their number.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME, ColumnMappingMode
from cm_delta_dagster.protocol.features.identity_columns import HIGH_WATER_MARK, START, STEP
from cm_delta_dagster.protocol.features.table_features import COLUMN_MAPPING, supports
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema.types import parse_schema

_REPLACE = frozenset(
    {
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "CLONE",
    }
)
"""The operations that define all columns again, as delta-spark, deltalake and this package name them.

A clone has the columns of its source.
"""

_MIN, _MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class IdentityMark:
    """The numbers of an identity column.

    Attributes:
        number: the high-water mark; None before the first value.
        column_id: of column mapping; None if the schema does not say.
        earlier: the marks of sequences with another start or step that the same column had before.
    """

    start: int
    step: int
    number: int | None
    column_id: int | None = None
    earlier: tuple["IdentityMark", ...] = ()

    @property
    def is_used(self) -> bool:
        """Whether numbers of this or an earlier sequence have been assigned."""
        return self.number is not None or bool(self.earlier)

    def is_of_column(self, column_id: int | None) -> bool:
        """Whether the column of the same physical name with this id is the same column."""
        return None in (self.column_id, column_id) or self.column_id == column_id

    def lowered_by(self, after: "IdentityMark") -> "IdentityMark | None":
        """Which mark of this column ``after`` lowers, in the direction of the step; None if it lowers none."""
        if not self.is_of_column(after.column_id):
            return None
        for mark in (self, *self.earlier):
            if (mark.start, mark.step) == (after.start, after.step) and mark.number is not None:
                is_lower = after.number is None or (after.number - mark.number) * mark.step < 0
                return mark if is_lower else None
        return None

    def continued_by(self, after: "IdentityMark") -> "IdentityMark":
        """The numbers of the column after a commit that says ``after``; what that lowers although it must not, stays."""
        if not self.is_of_column(after.column_id):
            return after
        lowered = self.lowered_by(after)
        earlier = tuple(
            replace(mark, earlier=())
            for mark in (self, *self.earlier)
            if mark.number is not None and (mark.start, mark.step) != (after.start, after.step)
        )
        return replace(after, number=after.number if lowered is None else lowered.number, earlier=earlier)

    def values(self) -> list[object]:
        """The attributes as JSON values; those that say nothing are left out at the end."""
        values: list[object] = [self.start, self.step, self.number]
        if self.earlier:
            return [*values, self.column_id, [mark.values() for mark in self.earlier]]
        return values if self.column_id is None else [*values, self.column_id]

    @classmethod
    def of_values(
        cls, start: int, step: int, number: int | None, column_id: int | None = None, earlier: Sequence[Any] = ()
    ) -> "IdentityMark":
        """Read what :meth:`values` returns."""
        return cls(start, step, number, column_id, tuple(cls.of_values(*values) for values in earlier))


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks of a table after a commit.

    Attributes:
        row_id: the highest row id; None if it is not known.
        identity: the marks that are known, by the physical name of the column in lower case.
    """

    row_id: int | None = None
    identity: Mapping[str, IdentityMark] = field(default_factory=dict)

    def identity_text(self) -> str | None:
        """``identity`` as JSON; None without marks."""
        values = {name: mark.values() for name, mark in self.identity.items()}
        return json.dumps(values, sort_keys=True) if values else None

    @classmethod
    def stored(cls, row_id: int | None, identity_text: str | None) -> "Marks":
        """The marks of :meth:`identity_text`. Earlier releases stored names as the schema had them."""
        identity = {} if identity_text is None else json.loads(identity_text)
        return cls(
            row_id=row_id,
            identity={name.lower(): IdentityMark.of_values(*values) for name, values in identity.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMarks:
    """What a commit says about marks.

    Attributes:
        row_id: the highest row id; None if the commit does not say.
        forgets_row_id: whether its protocol does not have row tracking.
        identity: the identity columns by their physical names in lower case, if the commit sets the metadata.
        other_columns: the column ids of the other columns by their physical names in lower case; None for those without an id.
        redefines_columns: whether it states that all columns are defined again.
        num_removed: number of files that the table does not have any more.
    """

    row_id: int | None = None
    forgets_row_id: bool = False
    identity: Mapping[str, IdentityMark] | None = None
    other_columns: Mapping[str, int | None] = field(default_factory=dict)
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
        return known.lowered_by(self.identity[name])

    def after(self, before: Marks) -> Marks:
        """The marks after the commit; what it does not say, and what it lowers although it must not, stays."""
        row_ids = [row_id for row_id in (before.row_id, self.row_id) if row_id is not None]
        row_id = None if self.forgets_row_id or not row_ids else max(row_ids)
        if self.identity is None:
            return replace(before, row_id=row_id)
        known = {} if self.redefines_columns else before.identity
        identity = {
            name: known[name].continued_by(mark) if name in known else mark for name, mark in self.identity.items()
        }
        for name, column_id in self.other_columns.items():
            if name in known and known[name].is_of_column(column_id):
                identity[name] = known[name]
        return Marks(row_id=row_id, identity={name: mark for name, mark in identity.items() if mark.is_used})

    def removes_all(self, num_files: int | None) -> bool:
        """Whether no file of the table stays. If its number is not known: whether the commit removes any, or says that it does.

        Args:
            num_files: files of the table before the commit; None if the number is not known.
        """
        if num_files is None:
            return self.redefines_columns or self.num_removed > 0
        return self.num_removed >= num_files

    def believed(self, *, num_files: int | None) -> "StatedMarks":
        """These marks, without the statement that all columns are defined again if files of the table stay.

        Args:
            num_files: files of the table before the commit; None if the number is not known.
        """
        return self if num_files is None or self.removes_all(num_files) else replace(self, redefines_columns=False)


def redefines_columns(operation: str | None) -> bool:
    """Whether the operation of a commit defines all columns again."""
    return operation in _REPLACE


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
        num_removed: as of :class:`StatedMarks`.
    """
    is_removed = domain is not None and domain.removed
    identity, other_columns = (None, {}) if metadata is None else _columns(metadata, protocol)
    return StatedMarks(
        row_id=None if domain is None or is_removed else row_tracking.high_water_mark({domain.domain: domain}),
        forgets_row_id=protocol is not None and not row_tracking.is_supported(protocol),
        identity=identity,
        other_columns=other_columns,
        redefines_columns=redefines_columns(operation),
        num_removed=num_removed,
    )


def flaw_of_identity(metadata: Metadata) -> CommitFlaw | None:
    """The first number of an identity column that no reader takes for one; a mark may be absent or null."""
    for column in parse_schema(metadata.schema_string).fields:
        for key in (START, STEP, HIGH_WATER_MARK):
            value = column.metadata.get(key)
            if value is not None and not _is_long(value):
                why = f"has {key} {json.dumps(value)} in column {column.name}, which is not a 64-bit integer"
                return CommitFlaw(action="metaData", field="schemaString", why=why)
    return None


def _columns(metadata: Metadata, protocol: Protocol | None) -> tuple[dict[str, IdentityMark], dict[str, int | None]]:
    """The identity columns, and the column ids of the others, by physical names in lower case."""
    identity: dict[str, IdentityMark] = {}
    others: dict[str, int | None] = {}
    is_mapped = _is_mapped(metadata, protocol)
    for column in parse_schema(metadata.schema_string).fields:
        start, step, mark, column_id = (column.metadata.get(key) for key in (START, STEP, HIGH_WATER_MARK, COLUMN_ID))
        name = str(column.metadata.get(PHYSICAL_NAME, column.name) if is_mapped else column.name).lower()
        column_id = column_id if is_mapped and isinstance(column_id, int) else None
        if _is_long(start) and _is_long(step) and (mark is None or _is_long(mark)):
            identity[name] = IdentityMark(start, step, mark, column_id)
        else:
            others[name] = column_id
    return identity, others


def _is_mapped(metadata: Metadata, protocol: Protocol | None) -> bool:
    """Whether readers know columns by their physical names.

    If the commit does not set the protocol, that of the table lists the feature: other metadata with a mode is refused.
    """
    if protocol is not None and not supports(protocol, COLUMN_MAPPING):
        return False
    try:
        return TableProperties(metadata.configuration).column_mapping_mode != ColumnMappingMode.NONE
    except InvalidArgumentError:  # Of a commit that exists already.
        return False


def _is_long(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and _MIN <= value <= _MAX
