"""What a sequence consists of: one value for each call of the API. Their ``repr`` is the text that repeats them."""

from dataclasses import dataclass, field
from typing import Any

from tests.api_model.conditions import Condition
from tests.api_model.values import Value


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column of a table.

    Attributes:
        default: the value of rows that give none; None for NULL.
        twice: the column that a generated column doubles.
        numbered: whether it is an identity column that a write cannot set.
        identity: differs for a column that was added later, which is not a dropped one of its name.
    """

    name: str
    kind: str
    nullable: bool = True
    default: Value = None
    twice: str | None = None
    numbered: bool = False
    identity: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with the columns that they have, each with its type."""

    columns: tuple[tuple[str, str], ...]
    values: tuple[tuple[Value, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def dicts(self) -> list[dict[str, Value]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.values]


@dataclass(frozen=True, slots=True)
class Assign:
    """``column = value``: a literal, another column (``column``), or the column plus an integer (``plus``)."""

    target: str
    how: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a merge. ``condition`` is on the row of the source (``on_source``) or of the table."""

    kind: str
    action: str
    condition: Condition | None = None
    on_source: bool = False
    assignments: tuple[Assign, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A call. ``client`` is the number of the client that makes it."""


@dataclass(frozen=True, slots=True)
class OnTable(Step):
    table: str
    client: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Create(OnTable):
    columns: tuple[ColumnSpec, ...]
    partition_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    cluster_by: tuple[str, ...] = ()
    mode: str = "create"


@dataclass(frozen=True, slots=True)
class Append(OnTable):
    rows: Rows
    schema_mode: str = "strict"
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Overwrite(OnTable):
    """At most one of ``where``, ``dynamic`` and ``replace_using``."""

    rows: Rows
    where: Condition | None = None
    dynamic: bool = False
    replace_using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete(OnTable):
    where: Condition


@dataclass(frozen=True, slots=True)
class Update(OnTable):
    assignments: tuple[Assign, ...]
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class MergeKeys(OnTable):
    """A merge by key columns in one of the modes."""

    rows: Rows
    keys: tuple[str, ...]
    mode: str = "upsert"
    where: Condition | None = None


@dataclass(frozen=True, slots=True)
class Merge(OnTable):
    """A merge with clauses, on equal ``keys`` and perhaps a condition on the table."""

    rows: Rows
    keys: tuple[str, ...]
    clauses: tuple[Clause, ...]
    null_safe: bool = False
    and_target: Condition | None = None


@dataclass(frozen=True, slots=True)
class AddColumn(OnTable):
    name: str
    kind: str
    first: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn(OnTable):
    name: str
    to: str


@dataclass(frozen=True, slots=True)
class DropColumn(OnTable):
    name: str


@dataclass(frozen=True, slots=True)
class WidenColumn(OnTable):
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class SetProperty(OnTable):
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Restore(OnTable):
    """``version`` counts from the latest one backwards."""

    back: int


@dataclass(frozen=True, slots=True)
class Optimize(OnTable):
    """``how``: ``compact``, ``zorder``, ``full`` or ``reorg``."""

    how: str = "compact"


@dataclass(frozen=True, slots=True)
class Vacuum(OnTable):
    """``hours``: the retention; None for that of the table."""

    hours: int | None = None


@dataclass(frozen=True, slots=True)
class LogStep(OnTable):
    """``what``: ``checkpoint``, ``clean_log``, ``publish``, ``clean_staged``, ``compact_log``."""

    what: str


@dataclass(frozen=True, slots=True)
class PassTime(Step):
    hours: int


@dataclass(frozen=True, slots=True)
class Rename(OnTable):
    to: str


@dataclass(frozen=True, slots=True)
class Drop(OnTable):
    pass


@dataclass(frozen=True, slots=True)
class Undrop(OnTable):
    pass


@dataclass(frozen=True, slots=True)
class Clone(OnTable):
    to: str
    mode: str = "shallow"
    back: int = 0


@dataclass(frozen=True, slots=True)
class Begin(Step):
    """Begin a transaction of ``client`` with these writes, which are staged immediately and committed later."""

    writes: tuple[OnTable, ...]
    client: int = field(default=1, kw_only=True)


@dataclass(frozen=True, slots=True)
class Commit(Step):
    """Commit the oldest open transaction."""


@dataclass(frozen=True, slots=True)
class Abandon(Step):
    """End the oldest open transaction by an exception."""


@dataclass(frozen=True, slots=True)
class Release(OnTable):
    pass


@dataclass(frozen=True, slots=True)
class Adopt(OnTable):
    """Adopt a released table again, under ``to``."""

    to: str


@dataclass(frozen=True, slots=True)
class CreateByPath(OnTable):
    """Create a table with another library, outside of the warehouse, and append the rows to it again. ``table`` can be adopted."""

    rows: Rows
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Read(OnTable):
    """Read the rows of a condition at a version by all readers."""

    where: Condition
    back: int = 0


@dataclass(frozen=True, slots=True)
class Stream(OnTable):
    """Continue a stream that skips commits that change rows, or begin it with the rows of the latest version."""


@dataclass(frozen=True, slots=True)
class Rule(OnTable):
    """Set a commit rule: ``append_only`` or ``max_removed_rows`` (0 rows); ``approval`` keeps the commits that it stops."""

    kind: str
    approval: bool = False


@dataclass(frozen=True, slots=True)
class RemoveRules(OnTable):
    pass


@dataclass(frozen=True, slots=True)
class Decide(Step):
    """Approve or reject the oldest commit that waits."""

    approve: bool
