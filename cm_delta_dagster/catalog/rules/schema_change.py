"""Rule ``schema_change``: only owners, or the principals and roles that the rule names, change columns or partition columns."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.access import plain_name
from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, names_of
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments, RuleKind, texts
from cm_delta_dagster.protocol.schema.types import StructField, StructType, map_fields, parse_schema

_VOLATILE_METADATA = ("delta.identity.highWaterMark",)
"""Keys of a field's metadata that ordinary writes change."""


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    if stated.get("principals") is None:
        return {}
    return {"principals": names_of(stated, "principals", kind=CommitRuleKind.SCHEMA_CHANGE)}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    metadata, before, author = commit.actions.metadata, commit.before, commit.author
    if metadata is None:
        return None
    allowed = arguments.get("principals")
    if allowed is None:
        if author.is_owner:
            return None
        who = "an owner of the table"
    else:
        if not author.names.isdisjoint(texts(allowed)):
            return None
        who = " or ".join(map(plain_name, texts(allowed)))
    same = (
        before is not None
        and before.partition_columns == metadata.partition_columns
        and (
            before.schema_string == metadata.schema_string
            or _stable(before.schema_string) == _stable(metadata.schema_string)
        )
    )
    return (
        None
        if same
        else f"changes the schema as {author.principal or 'a client without a principal'}, and not as {who}"
    )


def _stable(text: str) -> StructType:
    return map_fields(parse_schema(text), _without_volatile)


def _without_volatile(item: StructField) -> StructField:
    metadata = {key: value for key, value in item.metadata.items() if key not in _VOLATILE_METADATA}
    return StructField(item.name, item.type, item.nullable, metadata)


SCHEMA_CHANGE = RuleKind(
    kind=CommitRuleKind.SCHEMA_CHANGE,
    takes=("principals",),
    arguments=_arguments,
    violation=_violation,
    summary="only owners, or the given principals and roles, change the schema",
)
