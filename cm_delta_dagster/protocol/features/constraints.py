"""CHECK constraints and column invariants (protocol headings "CHECK Constraints", "Column Invariants").

A CHECK constraint is a table property, an invariant is in the metadata of a field. Both are boolean SQL expressions that must be
true for every row; NULL is a violation. Spark evaluates them when rows are written.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX
from cm_delta_dagster.protocol.schema.types import StructType, walk_fields

if TYPE_CHECKING:
    from cm_delta_dagster.protocol.features import expressions
else:  # The catalog reads the names of constraints. Only a new constraint needs the SQL parser.
    expressions = DeferredModule("cm_delta_dagster.protocol.features.expressions")

INVARIANTS = "delta.invariants"
"""Key of an invariant in the metadata of a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """An expression that must be true for every row.

    Attributes:
        name: of a CHECK constraint; the path of the column for an invariant.
        kind: ``CHECK constraint`` or ``invariant of column``, for messages.
    """

    name: str
    expression: str
    kind: str = "CHECK constraint"

    @property
    def description(self) -> str:
        """The constraint in an error message."""
        return f"the {self.kind} {self.name!r} ({self.expression})"


def check_constraints(configuration: Mapping[str, str]) -> tuple[Constraint, ...]:
    """The CHECK constraints of a table, in order of their names."""
    return tuple(
        Constraint(name=key.removeprefix(CONSTRAINT_PREFIX), expression=configuration[key])
        for key in sorted(configuration)
        if key.startswith(CONSTRAINT_PREFIX)
    )


def invariants(schema: StructType) -> Iterator[Constraint]:
    """The invariants of the columns.

    Raises:
        CorruptLogError: an invariant is not the JSON that the protocol defines.
    """
    for path, item in walk_fields(schema):
        text = item.metadata.get(INVARIANTS)
        if text is not None:
            name = ".".join(path)
            yield Constraint(name=name, expression=_invariant(text, name), kind="invariant of column")


def with_constraint(configuration: Mapping[str, str], name: str, expression: str) -> dict[str, str]:
    """The configuration with one more CHECK constraint.

    The name is stored in lower case, in which delta-spark looks it up.

    Raises:
        InvalidArgumentError: the name is empty or taken, or the expression is not deterministic.
    """
    if not name.strip() or name != name.strip():
        raise InvalidArgumentError(
            f"{name!r} is not the name of a constraint: it is empty or begins or ends with a blank."
        )
    taken = constraint_key(configuration, name)
    if taken is not None:
        raise InvalidArgumentError(
            f"The table has a constraint {name!r} already: {configuration[taken]}. Nothing was changed. Choose another name, or "
            "drop that constraint first."
        )
    expressions.check_deterministic(expression, what=f"the CHECK constraint {name!r}", allows_clock=True)
    expressions.check_clock_brackets(expression, what=f"the CHECK constraint {name!r}")
    return {**configuration, CONSTRAINT_PREFIX + name.lower(): expression}


def constraint_key(configuration: Mapping[str, str], name: str) -> str | None:
    """The key of the constraint of that name, ignoring case; None if the table has none."""
    lowered = (CONSTRAINT_PREFIX + name).lower()
    return next((key for key in configuration if key.lower() == lowered and key.startswith(CONSTRAINT_PREFIX)), None)


def _invariant(text: object, name: str) -> str:
    try:
        expression = json.loads(text)["expression"]["expression"] if isinstance(text, str) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        expression = None
    if not isinstance(expression, str):
        raise CorruptLogError(
            f"The invariant of column {name!r} cannot be read: {text!r} is not the JSON that the protocol defines. Rows cannot be "
            "checked, so nothing was written."
        )
    return expression
