"""Commit rules and approvals of a connection: what callers may give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, OnViolation
from cm_delta_dagster.errors import InvalidArgumentError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as connection:
        yield connection


@pytest.mark.parametrize("wrong", [None, 5, b"x", [], "", "a..b", "a.b.c.d", "\ud800"])
def test_a_scope_that_is_none_is_an_argument_error(lake: Connection, wrong: Any) -> None:
    for call in (
        lambda: lake.add_commit_rule(wrong, "append_only"),
        lambda: lake.remove_commit_rule(wrong, "append_only"),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    if wrong != "":
        with pytest.raises(InvalidArgumentError):
            lake.commit_rules(wrong)
        with pytest.raises(InvalidArgumentError):
            lake.approvals(wrong)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("append_only", {"name": 5}),
        ("append_only", {"name": ""}),
        ("append_only", {"reason": None}),
        ("append_only", {"reason": "\ud800"}),
        ("append_only", {"contact": b"x"}),
        ("append_only", {"on_violation": "warn"}),
        ("append_only", {"rows": 5}),
        ("no_kind", {}),
        ("protected_columns", {"columns": ["id", 5]}),
        ("required_tags", {"tags": "\0"}),
        ("required_user_metadata", {"pattern": "a{99999999999999999999}"}),
        ("required_user_metadata", {"pattern": "(" * 5000 + ")" * 5000}),
        ("required_user_metadata", {"pattern": "\ud800"}),
    ],
)
def test_odd_values_of_a_rule_are_argument_errors(lake: Connection, kind: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        lake.add_commit_rule("main", kind, **arguments)
    assert lake.commit_rules() == ()


def test_an_argument_that_is_none_counts_as_not_given(lake: Connection) -> None:
    rule = lake.add_commit_rule("main", "required_user_metadata", on_violation="approval", pattern=None, columns=None)
    assert (rule.kind, rule.on_violation) == (CommitRuleKind.REQUIRED_USER_METADATA, OnViolation.APPROVAL)
    assert rule.arguments == {"pattern": ".+"}


@pytest.mark.parametrize("wrong", [None, 5, "", "unknown", "\ud800"])
def test_an_id_that_no_request_has_is_an_argument_error(lake: Connection, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        lake.approve(wrong)
    with pytest.raises(InvalidArgumentError):
        lake.reject(wrong, "no")
    with pytest.raises(InvalidArgumentError):
        lake.reject("unknown", wrong)
