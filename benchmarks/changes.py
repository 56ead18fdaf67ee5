"""The tasks that change rows or move them, and an append that checks and computes values.

Every engine gets the same files and ends with the same rows: each run starts with a table of links to the files of a shared table,
which is made before the time starts, and returns the number of rows and sums of two columns, which are read after it ends.
Plain Spark has no table: it reads the same files, and writes all of their rows again.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol


class Shared(Protocol):
    """What the tasks need of ``shared.Shared``."""

    @property
    def rows(self) -> int: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...


Task = Callable[[], dict[str, Any] | None]
Answer = tuple[int, int, int]
"""Number of rows, sum of the ids, and sum of the amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The table that a task starts with.

    Attributes:
        source: name of the shared table whose files it has; None for an empty table.
        checked: it has CHECK constraints, a column that is NOT NULL and a generated column.
    """

    source: str | None = "changed"
    vectors: bool = False
    feed: bool = False
    cluster_by: tuple[str, ...] = ()
    checked: bool = False

    @property
    def properties(self) -> dict[str, str]:
        values = {"delta.enableDeletionVectors": str(self.vectors).lower()}
        return {**values, "delta.enableChangeDataFeed": "true"} if self.feed else values


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of a merge: rows with the ids ``first``, ``first + step``, ..., up to ``end``.

    Attributes:
        is_shuffled: they come from a window function, in as many tasks as Spark shuffles to.
        is_arrow: they are an Arrow table, which needs no Spark.
    """

    first: int
    end: int
    step: int
    is_shuffled: bool = False
    is_arrow: bool = False


class Writer(Protocol):
    """What an engine does with the table of a task."""

    def fresh(self, design: Design) -> None:
        """Make the table of ``design``, in place of the one before."""

    def delete(self, where: str) -> None: ...
    def update(self, assignments: Mapping[str, str], where: str) -> None: ...
    def merge(self, source: Source) -> None:
        """Update the rows that the source matches, and insert its other rows."""

    def optimize(self) -> None: ...
    def z_order(self, columns: tuple[str, ...]) -> None: ...
    def cluster(self) -> None: ...
    def append(self) -> None:
        """Append ``shared.rows`` rows without the generated column."""

    def answer(self) -> Answer: ...
    def num_files(self) -> int:
        """Files of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task.

    Attributes:
        keeps: the next run changes the table further, instead of a new one.
    """

    design: Design
    act: Callable[[Writer, Shared], None]
    keeps: bool = False


Measure = Callable[[Callable[[], Any]], dict[str, Any]]
"""Carries out work, and returns figures besides its times."""


def _nothing_else(work: Callable[[], Any]) -> dict[str, Any]:
    work()
    return {}


@dataclass(slots=True)
class Prepared:
    """A task whose table is made before the time starts, and read after it ends."""

    writer: Writer
    shared: Shared
    change: Change
    measure: Measure
    is_made: bool = False

    def prepare(self) -> None:
        if not (self.change.keeps and self.is_made):
            self.writer.fresh(self.change.design)
        self.is_made = True

    def __call__(self) -> dict[str, Any]:
        return self.measure(lambda: self.change.act(self.writer, self.shared))

    def finish(self) -> dict[str, Any]:
        if self.change.keeps:
            return {}
        return {"answer": list(self.writer.answer()), "files": self.writer.num_files()}


SCATTERED = 200
"""One of so many rows changes: 0.5 %."""
DELETED = 100
INSERTED_STEP = 11
ORDER = ("customer", "amount", "day", "label")
ASSIGNMENTS = {"amount": "amount + 1", "label": "'changed'"}
GENERATED = "cast(id % 50 as int)"
CHECKS = {"positive": "amount >= 0", "ordered": "id >= 0 AND customer < 1000"}
_SMALL = "thousand"


def delete(writer: Writer, _: Shared) -> None:
    writer.delete(f"id % {DELETED} = 7")


def update(writer: Writer, _: Shared) -> None:
    writer.update(ASSIGNMENTS, f"id % {SCATTERED} = 7")


def scattered(rows: int) -> Source:
    return Source(first=7, end=rows, step=SCATTERED)


def narrow(rows: int) -> Source:
    first = rows // 2 + 1
    return Source(first=first, end=first + rows // SCATTERED, step=1)


def tenth(rows: int) -> Source:
    """As many rows as a tenth of the table, ten of eleven of which it has."""
    return Source(first=3, end=rows // 10 * INSERTED_STEP, step=INSERTED_STEP)


def merge(source: Callable[[int], Source], **kind: bool) -> Callable[[Writer, Shared], None]:
    """A merge of the source for the number of rows of the table; ``kind``: more of its attributes."""
    return lambda writer, shared: writer.merge(replace(source(shared.rows), **kind))


def one_row(verb: str) -> Callable[[Writer, Shared], None]:
    """A change of one row, another one in each run."""

    def act(writer: Writer, shared: Shared) -> None:
        where = f"id = {uuid.uuid4().int % shared.rows}"
        if verb == "delete":
            writer.delete(where)
        else:
            writer.update(ASSIGNMENTS, where)

    return act


def _by(prefix: str, design: Design) -> dict[str, Change]:
    acts = {
        "delete": delete,
        "update": update,
        "merge": merge(tenth),
        "merge_scattered": merge(scattered),
        "merge_range": merge(narrow),
    }
    return {f"{prefix}_{name}": Change(design=design, act=act) for name, act in acts.items()}


def _merges_of_arrow(prefix: str, design: Design) -> dict[str, Change]:
    sources = {"merge": tenth, "merge_scattered": scattered, "merge_range": narrow}
    return {
        f"{prefix}_{name}": Change(design=design, act=merge(source, is_arrow=True)) for name, source in sources.items()
    }


CHANGES: Mapping[str, Change] = {
    **_by("rewrite", Design()),
    **_by("vector", Design(vectors=True)),
    **_merges_of_arrow("arrow", Design()),
    **_merges_of_arrow("arrow_vector", Design(vectors=True)),
    "vector_merge_shuffled": Change(design=Design(vectors=True), act=merge(scattered, is_shuffled=True)),
    "feed_update": Change(design=Design(vectors=True, feed=True), act=update),
    "feed_merge": Change(design=Design(vectors=True, feed=True), act=merge(tenth)),
    "optimize_small": Change(design=Design(source=_SMALL), act=lambda writer, _: writer.optimize()),
    "z_order": Change(design=Design(), act=lambda writer, _: writer.z_order(ORDER[:2])),
    "cluster": Change(design=Design(cluster_by=ORDER), act=lambda writer, _: writer.cluster()),
    "constraint_append": Change(design=Design(source=None, checked=True), act=lambda writer, _: writer.append()),
    "one_row_update": Change(design=Design(vectors=True), act=one_row("update"), keeps=True),
    "one_row_delete": Change(design=Design(vectors=True), act=one_row("delete"), keeps=True),
}
TASKS = tuple(CHANGES)
SOURCES = {name: change.design.source for name, change in CHANGES.items() if change.design.source is not None}
"""The shared table of each task that has one."""
WITHOUT_SPARK = frozenset(name for name in TASKS if name.startswith(("rewrite", "feed", "one_row", "arrow_merge"))) | {
    "optimize_small",
    "z_order",
}
"""The tasks of deltalake, which writes no deletion vectors."""
PLAIN = frozenset(name for name in TASKS if name.startswith("rewrite")) | {
    "optimize_small",
    "z_order",
    "cluster",
    "constraint_append",
}
"""The tasks that plain Spark can do by writing all rows of the files again."""


def tasks(
    writer: Writer, shared: Shared, names: frozenset[str] = frozenset(TASKS), measure: Measure = _nothing_else
) -> dict[str, Task]:
    """The tasks of an engine that the run wants."""
    return {
        name: Prepared(writer, shared, change, measure)
        for name, change in CHANGES.items()
        if name in names and name in shared.tasks
    }
