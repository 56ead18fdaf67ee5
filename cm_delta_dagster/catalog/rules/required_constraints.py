"""Rule ``required_constraints``: CHECK constraints that the table must have when rows are written.

A commit that only changes metadata may leave one out that was missing before, so that several can be added one by one.
"""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, names_of
from cm_delta_dagster.catalog.rules.rule_kind import Absent, GuardedCommit, RuleArguments, RuleKind, quoted, texts
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.constraints import check_constraints, constraint_key


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    return {"constraints": names_of(stated, "constraints", kind=CommitRuleKind.REQUIRED_CONSTRAINTS)}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    required = texts(arguments["constraints"])
    after = commit.after
    if after is None:
        return "is for a table whose constraints the catalog does not have"
    missing = _missing(required, after)
    if not missing:
        return None
    dropped = [name for name in missing if commit.before is not None and name not in _missing(required, commit.before)]
    if dropped:
        return f"drops the CHECK constraint {quoted(dropped)}"
    if not commit.actions.adds.num_rows:
        return None
    return f"writes to a table without the CHECK constraint {quoted(missing)}"


def _absent(arguments: RuleArguments, metadata: Metadata) -> list[Absent]:
    known = tuple(constraint.name for constraint in check_constraints(metadata.configuration))
    missing = _missing(texts(arguments["constraints"]), metadata)
    return [Absent(what="CHECK constraint", name=name, known=known) for name in missing]


def _missing(required: tuple[str, ...], metadata: Metadata) -> list[str]:
    return [name for name in required if constraint_key(metadata.configuration, name) is None]


REQUIRED_CONSTRAINTS = RuleKind(
    kind=CommitRuleKind.REQUIRED_CONSTRAINTS,
    takes=("constraints",),
    arguments=_arguments,
    violation=_violation,
    absent=_absent,
    summary="CHECK constraints that a table must have when rows are written",
)
