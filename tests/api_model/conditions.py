"""Conditions on rows: their SQL text, and their truth for a row by the three-valued logic of SQL."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.api_model.values import Value, literal, rank

Types = Mapping[str, str]
"""The type of each column."""
RowValues = Mapping[str, Value]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class Condition:
    """A condition on one row."""

    def columns(self) -> frozenset[str]:
        """The columns that the condition names."""
        raise NotImplementedError

    def sql(self, types: Types, alias: str = "") -> str:
        """The text; ``alias`` ends with a dot."""
        raise NotImplementedError

    def truth(self, row: RowValues) -> bool | None:
        """True, False or None for unknown."""
        raise NotImplementedError

    def holds(self, row: RowValues) -> bool:
        return self.truth(row) is True


@dataclass(frozen=True, slots=True)
class Compare(Condition):
    """``column operator value``; the operators are ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=`` and ``<=>``."""

    column: str
    operator: str
    value: Value

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def sql(self, types: Types, alias: str = "") -> str:
        return f"{alias}{quoted(self.column)} {self.operator} {literal(self.value, types[self.column])}"

    def truth(self, row: RowValues) -> bool | None:
        return compared(row[self.column], self.operator, self.value)


@dataclass(frozen=True, slots=True)
class InList(Condition):
    column: str
    values: tuple[Value, ...]

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def sql(self, types: Types, alias: str = "") -> str:
        listed = ", ".join(literal(value, types[self.column]) for value in self.values)
        return f"{alias}{quoted(self.column)} IN ({listed})"

    def truth(self, row: RowValues) -> bool | None:
        return _any([compared(row[self.column], "=", value) for value in self.values])


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    column: str
    negated: bool = False

    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def sql(self, types: Types, alias: str = "") -> str:
        return f"{alias}{quoted(self.column)} IS {'NOT ' if self.negated else ''}NULL"

    def truth(self, row: RowValues) -> bool | None:
        return (row[self.column] is None) != self.negated


@dataclass(frozen=True, slots=True)
class Not(Condition):
    part: Condition

    def columns(self) -> frozenset[str]:
        return self.part.columns()

    def sql(self, types: Types, alias: str = "") -> str:
        return f"NOT ({self.part.sql(types, alias)})"

    def truth(self, row: RowValues) -> bool | None:
        truth = self.part.truth(row)
        return None if truth is None else not truth


@dataclass(frozen=True, slots=True)
class Both(Condition):
    left: Condition
    right: Condition

    def columns(self) -> frozenset[str]:
        return self.left.columns() | self.right.columns()

    def sql(self, types: Types, alias: str = "") -> str:
        return f"({self.left.sql(types, alias)}) AND ({self.right.sql(types, alias)})"

    def truth(self, row: RowValues) -> bool | None:
        truths = [self.left.truth(row), self.right.truth(row)]
        return False if False in truths else None if None in truths else True


@dataclass(frozen=True, slots=True)
class Either(Condition):
    left: Condition
    right: Condition

    def columns(self) -> frozenset[str]:
        return self.left.columns() | self.right.columns()

    def sql(self, types: Types, alias: str = "") -> str:
        return f"({self.left.sql(types, alias)}) OR ({self.right.sql(types, alias)})"

    def truth(self, row: RowValues) -> bool | None:
        return _any([self.left.truth(row), self.right.truth(row)])


def compared(left: Value, operator: str, right: Value) -> bool | None:
    """``left operator right`` in SQL."""
    if operator == "<=>":
        return (left is None and right is None) or (
            left is not None and right is not None and bool(rank(left) == rank(right))
        )
    if left is None or right is None:
        return None
    one, other = rank(left), rank(right)
    return bool(
        {
            "=": one == other,
            "<>": one != other,
            "<": one < other,
            "<=": one <= other,
            ">": one > other,
            ">=": one >= other,
        }[operator]
    )


def _any(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False
