"""Rule ``required_tags``: tags that ``commitInfo`` of every commit must have, with a value that is not empty."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, names_of
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments, RuleKind, quoted, texts
from cm_delta_dagster.remedies import SetTags


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    return {"tags": names_of(stated, "tags", kind=CommitRuleKind.REQUIRED_TAGS)}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    info = commit.actions.commit_info
    tags = {} if info is None else dict(info.tags or {})
    missing = [name for name in texts(arguments["tags"]) if not tags.get(name)]
    return f"lacks the tag {quoted(missing)} in commitInfo" if missing else None


REQUIRED_TAGS = RuleKind(
    kind=CommitRuleKind.REQUIRED_TAGS,
    takes=("tags",),
    arguments=_arguments,
    violation=_violation,
    summary="tags that commitInfo of every commit must have",
    remedy=SetTags(),
)
