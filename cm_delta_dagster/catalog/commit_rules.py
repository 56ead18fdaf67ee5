"""Values of commit rules: what the commits to a table must satisfy, for every writer.

A rule belongs to a catalog, a schema or a table. All rules of the three scopes apply; a narrower rule does not replace a wider
one. ``catalog.rules`` has one module for each kind. ``catalog.commit_policy`` is something else: how commits are made.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from cm_delta_dagster.catalog.texts import is_storable
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import Remedy

RuleArgument: TypeAlias = tuple[str, ...] | int | float | str
"""A value of a rule: names, a number, or a text."""


class CommitRuleKind(StrEnum):
    """What a rule demands. Each kind has a module in ``catalog.rules``."""

    APPEND_ONLY = "append_only"
    MAX_REMOVED_FILES = "max_removed_files"
    MAX_REMOVED_ROWS = "max_removed_rows"
    PROTECTED_COLUMNS = "protected_columns"
    PROTECTED_PROPERTIES = "protected_properties"
    REQUIRED_CONSTRAINTS = "required_constraints"
    REQUIRED_TAGS = "required_tags"
    REQUIRED_USER_METADATA = "required_user_metadata"
    SCHEMA_CHANGE = "schema_change"


class OnViolation(StrEnum):
    """What the catalog does with a commit that violates a rule."""

    REFUSE = "refuse"
    APPROVAL = "approval"
    """It keeps the commit until an owner approves or rejects it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRule:
    """One rule.

    Attributes:
        scope: ``catalog``, ``catalog.schema`` or ``catalog.schema.table``.
        name: unique within the scope.
        arguments: as the module of the kind checks them.
        reason: shown with each refusal.
        contact: whom to ask, free text; empty for the principal who set the rule.
        set_by: principal who set the rule; the catalog sets it.
        set_ms: when it was set, epoch milliseconds; the catalog sets it.
    """

    scope: str
    name: str
    kind: CommitRuleKind
    arguments: Mapping[str, RuleArgument] = field(default_factory=dict)
    on_violation: OnViolation = OnViolation.REFUSE
    reason: str = ""
    contact: str = ""
    set_by: str = ""
    set_ms: int = 0

    def __str__(self) -> str:
        return f"{self.name!r} of {self.scope}"

    @property
    def label(self) -> str:
        """The name with the kind; the kind alone if it is the name, which is the default."""
        return self.name if self.name == self.kind.value else f"{self.name} ({self.kind.value})"

    @property
    def demand(self) -> str:
        """What the rule demands under which name, as text: an approval holds for a rule as long as this stays the same.

        Reason, contact, and who set the rule when are left out: they do not change which commits violate it.
        """
        arguments = dict(sorted(self.arguments.items()))
        return json.dumps({"scope": self.scope, "name": self.name, "kind": self.kind.value, "arguments": arguments})

    @property
    def whom_to_ask(self) -> str:
        """The contact of the rule, else the principal who set it."""
        return self.contact or self.set_by or "the owner of the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleViolation:
    """What a commit does against a rule; ``what`` is a clause without subject, e.g. ``removes 40 rows of 100``."""

    rule: CommitRule
    what: str
    remedy: Remedy | None = None

    def __str__(self) -> str:
        rule = self.rule
        because = f": {rule.reason}" if rule.reason else ""
        kind = "" if rule.name == rule.kind.value else rule.kind.value
        details = ", ".join(text for text in (kind, f"set by {rule.set_by}" if rule.set_by else "") if text)
        return f"it {self.what}, which the rule {rule}{f' ({details})' if details else ''} does not permit{because}"


def names_of(stated: Mapping[str, object], key: str, *, kind: CommitRuleKind) -> tuple[str, ...]:
    """The argument ``key`` of a rule as names, at least one. Raises InvalidArgumentError."""
    value = stated.get(key)
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not names or not all(name and is_storable(name) for name in names):
        raise InvalidArgumentError(
            f"A rule {kind.value} takes {key}: names, at least one; given was {value!r}. Nothing was set."
        )
    return tuple(dict.fromkeys(names))


def limit_of(stated: Mapping[str, object], key: str, *, kind: CommitRuleKind) -> dict[str, RuleArgument]:
    """The argument ``key`` (a number) or ``fraction`` (of the table, from 0 to 1) of a rule. Raises InvalidArgumentError."""
    number, fraction = stated.get(key), stated.get("fraction")
    if fraction is None and isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return {key: number}
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if (
        number is None
        and is_number
        and isinstance(fraction, int | float)
        and math.isfinite(fraction)
        and 0 <= fraction < 1
    ):
        return {"fraction": float(fraction)}
    raise InvalidArgumentError(
        f"A rule {kind.value} takes {key} (a whole number of at least 0) or fraction (a share of the table of at least 0 and below "
        f"1); given were {key} {number!r} and fraction {fraction!r}. Nothing was set."
    )
