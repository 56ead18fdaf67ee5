"""The table of rule kinds, the construction of checked rules, and their evaluation on one commit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation, RuleViolation
from cm_delta_dagster.catalog.rules.append_only import APPEND_ONLY
from cm_delta_dagster.catalog.rules.max_removed_files import MAX_REMOVED_FILES
from cm_delta_dagster.catalog.rules.max_removed_rows import MAX_REMOVED_ROWS
from cm_delta_dagster.catalog.rules.protected_columns import PROTECTED_COLUMNS
from cm_delta_dagster.catalog.rules.protected_properties import PROTECTED_PROPERTIES
from cm_delta_dagster.catalog.rules.required_constraints import REQUIRED_CONSTRAINTS
from cm_delta_dagster.catalog.rules.required_tags import REQUIRED_TAGS
from cm_delta_dagster.catalog.rules.required_user_metadata import REQUIRED_USER_METADATA
from cm_delta_dagster.catalog.rules.rule_kind import Absent, GuardedCommit, RuleArguments, RuleKind
from cm_delta_dagster.catalog.rules.schema_change import SCHEMA_CHANGE
from cm_delta_dagster.catalog.texts import checked_text
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata

KINDS: Mapping[CommitRuleKind, RuleKind] = {
    kind.kind: kind
    for kind in (
        APPEND_ONLY,
        MAX_REMOVED_FILES,
        MAX_REMOVED_ROWS,
        PROTECTED_COLUMNS,
        PROTECTED_PROPERTIES,
        REQUIRED_CONSTRAINTS,
        REQUIRED_TAGS,
        REQUIRED_USER_METADATA,
        SCHEMA_CHANGE,
    )
}


def rule_kind(kind: CommitRuleKind | str) -> CommitRuleKind:
    """The kind with that name. Raises InvalidArgumentError."""
    try:
        return CommitRuleKind(kind)
    except ValueError:
        known = ", ".join(known_kind.value for known_kind in CommitRuleKind)
        raise InvalidArgumentError(f"{str(kind)!r} is not a kind of commit rules; the kinds are {known}.") from None


def checked_arguments(kind: CommitRuleKind, stated: Mapping[str, object]) -> RuleArguments:
    """The arguments of a rule of that kind; those that are None count as not given.

    Raises InvalidArgumentError for unknown, missing or malformed ones.
    """
    present = {key: value for key, value in stated.items() if value is not None}
    takes = KINDS[kind].takes
    unknown = sorted(key for key in present if key not in takes)
    if unknown:
        raise InvalidArgumentError(
            f"A rule {kind.value} does not take {', '.join(unknown)}; it takes {', '.join(takes) or 'no argument'}. Nothing was "
            "set."
        )
    return KINDS[kind].arguments(present)


def checked_action(on_violation: OnViolation | str) -> OnViolation:
    """What to do with a commit that violates a rule. Raises InvalidArgumentError."""
    try:
        return OnViolation(on_violation)
    except ValueError:
        raise InvalidArgumentError(f"on_violation is {on_violation!r}; it is 'refuse' or 'approval'.") from None


def checked_rule(rule: CommitRule) -> CommitRule:
    """``rule`` with checked arguments and texts. Raises InvalidArgumentError as :func:`checked_arguments`."""
    kind = rule_kind(rule.kind)
    if not isinstance(rule.name, str) or not rule.name or len(rule.name) > 120 or not rule.name.isprintable():
        raise InvalidArgumentError(
            f"A commit rule needs a name of 1 to 120 printable characters; given was {rule.name!r}."
        )
    return replace(
        rule,
        kind=kind,
        arguments=checked_arguments(kind, rule.arguments),
        on_violation=checked_action(rule.on_violation),
        reason=checked_text(rule.reason, what="the reason of a rule"),
        contact=checked_text(rule.contact, what="the contact of a rule"),
    )


def absent_names(rule: CommitRule, metadata: Metadata) -> tuple[Absent, ...]:
    """What the rule names and a table with that metadata does not have."""
    return tuple(KINDS[rule.kind].absent(rule.arguments, metadata))


def violations(rules: Iterable[CommitRule], commit: GuardedCommit) -> tuple[RuleViolation, ...]:
    """What the commit does against each of ``rules``, in their order."""
    clauses = ((rule, KINDS[rule.kind].violation(rule.arguments, commit)) for rule in rules)
    return tuple(
        RuleViolation(rule=rule, what=what, remedy=KINDS[rule.kind].remedy)
        for rule, what in clauses
        if what is not None
    )
