"""The terms of the disaster table: object, harm, act, commit mode and expected outcome. Values only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product


class Object(StrEnum):
    """The harmed object."""

    PUBLISHED_COMMIT = "published commit"
    STAGED_COMMIT = "staged commit"
    CHECKPOINT = "checkpoint"
    SIDECAR = "sidecar"
    CHECKSUM = "checksum"
    HINT = "hint"
    DATA_FILE = "data file"
    VECTOR_FILE = "vector file"
    TABLE_DIRECTORY = "table directory"
    WAREHOUSE = "warehouse"
    CATALOG_DATABASE = "catalog database"
    CATALOG_ROW = "catalog row"


class Harm(StrEnum):
    """What happened to the object."""

    MISSING = "missing"
    TRUNCATED = "truncated"
    ONE_BIT = "one bit"
    OTHER_CONTENT = "same-size other content"
    OLDER_COPY = "older copy"


class Act(StrEnum):
    """What the next process does, which has no information about the harm."""

    READ_LATEST = "read the latest version"
    READ_OLD = "read an old version"
    APPEND = "append"
    PUBLISH = "publish"
    CHECKPOINT = "checkpoint"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"
    CLEAN_LOG = "clean the log"
    CLEAN_STAGED = "clean staged commits"
    DOCTOR = "doctor"
    REPAIR = "doctor --repair"
    RECOVER = "recover"


class Mode(StrEnum):
    """Commit mode of the table, which decides where copies of its commits are."""

    STAGED = "staged"
    INLINE = "inline"
    PUT_IF_ABSENT = "put_if_absent"


class Outcome(StrEnum):
    """Outcome of an act."""

    RIGHT = "right"
    WARNED = "right, with a warning"
    OLDER = "older rows, with a warning"
    REFUSED = "refused"
    FINDING = "finding"
    REPAIRED = "repaired"
    RECOVERED = "recovered"
    UNKNOWABLE = "cannot be known"
    INAPPLICABLE = "does not apply"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One line of the table."""

    object: Object
    harm: Harm
    act: Act
    mode: Mode

    def __str__(self) -> str:
        return f"{self.object.value} / {self.harm.value} / {self.act.value} / {self.mode.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected outcome of an act, and why.

    Attributes:
        error: for REFUSED: name of the error class.
        reason: one sentence; the page gives the advice by object.
    """

    outcome: Outcome
    error: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.error}" if self.error else self.outcome.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The same expectation for every combination of some harms, acts and modes of one object, except for ``exceptions``."""

    object: Object
    expected: Expected
    harms: tuple[Harm, ...] = tuple(Harm)
    acts: tuple[Act, ...] = tuple(Act)
    modes: tuple[Mode, ...] = tuple(Mode)
    exceptions: tuple["Rule", ...] = ()

    def pattern(self) -> frozenset[Cell]:
        """The cells that the rule and its exceptions cover."""
        return frozenset(
            Cell(object=self.object, harm=harm, act=act, mode=mode)
            for harm, act, mode in product(self.harms, self.acts, self.modes)
        )

    def expansion(self) -> Iterator[tuple[Cell, Expected]]:
        """Each cell with its expectation; a cell is yielded twice if two exceptions overlap."""
        excepted = {cell for exception in self.exceptions for cell in exception.pattern()}
        for cell in sorted(self.pattern() - excepted):
            yield cell, self.expected
        for exception in self.exceptions:
            yield from exception.expansion()


def all_cells() -> Iterable[Cell]:
    """Every combination."""
    return (
        Cell(object=object_, harm=harm, act=act, mode=mode)
        for object_, harm, act, mode in product(Object, Harm, Act, Mode)
    )
