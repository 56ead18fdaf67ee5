"""What users read of a rule."""

import pytest

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, RuleViolation


@pytest.mark.parametrize(
    ("name", "set_by", "shown"),
    [
        ("append_only", "", "the rule 'append_only' of main does not permit"),
        ("append_only", "ada", "the rule 'append_only' of main (set by ada) does not permit"),
        ("audit", "", "the rule 'audit' of main (append_only) does not permit"),
        ("audit", "ada", "the rule 'audit' of main (append_only, set by ada) does not permit"),
    ],
)
def test_a_violation_says_what_the_rule_is_and_who_set_it(name: str, set_by: str, shown: str) -> None:
    rule = CommitRule(scope="main", name=name, kind=CommitRuleKind.APPEND_ONLY, set_by=set_by)
    assert shown in str(RuleViolation(rule=rule, what="removes 2 rows"))
