"""Which cells a run carries out.

All of them with ``-m exhaustive``; by default those of SQLite with staged commits, and of the others a sample that covers every
object with every harm, and every act.
"""

from enum import StrEnum
from itertools import product

from tests.disasters.table import KNOWN_DIFFERENCES, ONLY_SQLITE, expectations
from tests.disasters.vocabulary import Act, Cell, Expected, Harm, Mode, Object, Outcome


class Kind(StrEnum):
    """The catalog's database."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


EXPECTED = expectations()
DIFFERENT = frozenset(cell for rule in KNOWN_DIFFERENCES for cell in rule.pattern())
PAIRS = tuple(product(Object, Harm))

_EVERY = {(Kind.SQLITE, Mode.STAGED)}


def cells(kind: Kind, mode: Mode, object_: Object, harm: Harm) -> list[tuple[Cell, Expected]]:
    """The cells of an object and a harm that can be carried out without Spark, in the order of the acts."""
    if kind is Kind.POSTGRES and object_ is Object.CATALOG_DATABASE and harm in ONLY_SQLITE:
        return []
    found = []
    for act in Act:
        cell = Cell(object=object_, harm=harm, act=act, mode=mode)
        expected = EXPECTED[cell]
        if act is not Act.OPTIMIZE and expected.outcome is not Outcome.INAPPLICABLE:
            found.append((cell, expected))
    return found


def sample(kind: Kind, mode: Mode, object_: Object, harm: Harm) -> list[tuple[Cell, Expected]]:
    """Of :func:`cells` all for SQLite with staged commits, one for SQLite in other modes, and for PostgreSQL one in one mode."""
    every = cells(kind, mode, object_, harm)
    if (kind, mode) in _EVERY or not every:
        return every
    number = PAIRS.index((object_, harm))
    if kind is Kind.POSTGRES:
        modes = [each for each in Mode if cells(kind, each, object_, harm)]
        if mode is not modes[number % len(modes)]:
            return []
    return [every[(number + 3 * list(Mode).index(mode)) % len(every)]]


def pairs_of(kind: Kind, mode: Mode) -> list[tuple[Object, Harm]]:
    """Objects and harms of which there is a cell."""
    return [pair for pair in PAIRS if cells(kind, mode, *pair)]
