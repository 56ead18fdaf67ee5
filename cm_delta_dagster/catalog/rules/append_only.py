"""Rule ``append_only``: no commit removes rows. Files may be rearranged."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind
from cm_delta_dagster.catalog.rules.removals import removes_data
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments, RuleKind


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    return {}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    return "removes or changes rows" if removes_data(commit) else None


APPEND_ONLY = RuleKind(
    kind=CommitRuleKind.APPEND_ONLY,
    takes=(),
    arguments=_arguments,
    violation=_violation,
    summary="no commit removes or changes rows",
)
