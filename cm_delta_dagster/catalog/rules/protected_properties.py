"""Rule ``protected_properties``: table properties that no commit sets, changes or removes."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, names_of
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments, RuleKind, quoted, texts


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    return {"properties": names_of(stated, "properties", kind=CommitRuleKind.PROTECTED_PROPERTIES)}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    if commit.actions.metadata is None:
        return None
    protected = {name.lower() for name in texts(arguments["properties"])}
    if commit.before is None:
        return "changes the metadata of a table whose properties the catalog does not have"
    before, after = commit.before.configuration, commit.actions.metadata.configuration
    changed = [
        key for key in sorted({*before, *after}) if key.lower() in protected and before.get(key) != after.get(key)
    ]
    return f"changes the property {quoted(changed)}" if changed else None


PROTECTED_PROPERTIES = RuleKind(
    kind=CommitRuleKind.PROTECTED_PROPERTIES,
    takes=("properties",),
    arguments=_arguments,
    violation=_violation,
    summary="table properties that no commit sets, changes or removes",
)
