"""Rule ``max_removed_rows``: the most rows that one commit may remove, as a number or as a fraction of the table."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, limit_of
from cm_delta_dagster.catalog.rules.removals import over_limit, removed_rows
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments, RuleKind


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    return limit_of(stated, "rows", kind=CommitRuleKind.MAX_REMOVED_ROWS)


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    return over_limit(arguments, "rows", removed_rows(commit), commit)


MAX_REMOVED_ROWS = RuleKind(
    kind=CommitRuleKind.MAX_REMOVED_ROWS,
    takes=("rows", "fraction"),
    arguments=_arguments,
    violation=_violation,
    summary="the most rows that one commit may remove: a number, or a fraction of the table",
)
