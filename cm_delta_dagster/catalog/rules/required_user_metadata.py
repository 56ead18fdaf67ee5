"""Rule ``required_user_metadata``: ``commitInfo.userMetadata`` of every commit matches a pattern, or is at least not empty."""

import re
from collections.abc import Mapping

from cm_delta_dagster.catalog.commit_rules import CommitRuleKind
from cm_delta_dagster.catalog.rules.rule_kind import GuardedCommit, RuleArguments, RuleKind
from cm_delta_dagster.catalog.texts import is_storable
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import SetUserMetadata

_ANYTHING = ".+"
_FLAGS = re.DOTALL | re.ASCII
"""The classes ``\\d``, ``\\s`` and ``\\w`` have ASCII characters only."""


def _arguments(stated: Mapping[str, object]) -> RuleArguments:
    pattern = stated.get("pattern", _ANYTHING)
    if not is_storable(pattern) or not pattern:
        raise InvalidArgumentError(
            f"A rule required_user_metadata takes pattern: a regular expression as text; given was {pattern!r}. Nothing was set."
        )
    try:
        re.compile(pattern, _FLAGS)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(
            f"A rule required_user_metadata takes pattern: a regular expression; {pattern[:200]!r} is not one ({error}). Nothing "
            "was set."
        ) from error
    return {"pattern": pattern}


def _violation(arguments: RuleArguments, commit: GuardedCommit) -> str | None:
    info = commit.actions.commit_info
    text = "" if info is None else info.user_metadata or ""
    pattern = str(arguments["pattern"])
    if re.fullmatch(pattern, text, _FLAGS):
        return None
    what = f"has the userMetadata {text!r}, and the pattern is {pattern!r}" if text else "has no userMetadata"
    return what


REQUIRED_USER_METADATA = RuleKind(
    kind=CommitRuleKind.REQUIRED_USER_METADATA,
    takes=("pattern",),
    arguments=_arguments,
    violation=_violation,
    summary="userMetadata that matches a regular expression, or is at least not empty",
    remedy=SetUserMetadata(),
)
