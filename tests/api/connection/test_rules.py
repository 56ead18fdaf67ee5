"""Commit rules and approvals of a connection: what callers may give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster import CommitProperties, Connection, connect
from cm_delta_dagster.catalog.commit_rules import CommitRuleKind, OnViolation
from cm_delta_dagster.errors import CommitRefusedError, InvalidArgumentError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as connection:
        yield connection


@pytest.mark.parametrize("wrong", [None, 5, b"x", [], "", "a..b", "a.b.c.d", "\ud800"])
def test_a_scope_that_is_none_is_an_argument_error(lake: Connection, wrong: Any) -> None:
    for call in (
        lambda: lake.rules.set_commit_rule(wrong, "append_only"),
        lambda: lake.rules.remove_commit_rule(wrong, "append_only"),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    if wrong != "":
        with pytest.raises(InvalidArgumentError):
            lake.rules.list_commit_rules(wrong)
        with pytest.raises(InvalidArgumentError):
            lake.rules.list_approvals(wrong)


def test_an_empty_list_of_a_scope_that_names_nothing_is_an_error(lake: Connection) -> None:
    lists = (
        lake.rules.list_commit_rules,
        lake.rules.list_approvals,
        lake.rules.held,
        lake.access.list_grants,
        lake.access.audit,
    )
    for of_scope in lists:
        assert of_scope("main.sales") == ()  # A catalog without a table has no names to compare with.
    lake.create_table("main.sales.orders", "id bigint")
    for of_scope in lists:
        assert of_scope("main.sales") == of_scope("main.sales.orders") == ()
        with pytest.raises(InvalidArgumentError, match=r"no schema main\.sale\. Did you mean main\.sales\?"):
            of_scope("main.sale")
    lake.rules.set_commit_rule("other.s", "append_only", future=True)
    (rule,) = lake.rules.list_commit_rules("other.s")
    assert rule.scope == "other.s"
    assert [entry.scope for entry in lake.access.audit("other.s")] == ["other.s"]
    assert lake.access.audit("main.sale", after=0) == ()  # A reader may wait for entries.


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
        lake.rules.set_commit_rule("main", kind, **arguments)
    assert lake.rules.list_commit_rules() == ()


def test_an_argument_that_is_none_counts_as_not_given(lake: Connection) -> None:
    rule = lake.rules.set_commit_rule(
        "main", "required_user_metadata", on_violation="approval", pattern=None, columns=None
    )
    assert (rule.kind, rule.on_violation) == (CommitRuleKind.REQUIRED_USER_METADATA, OnViolation.APPROVAL)
    assert rule.arguments == {"pattern": ".+"}


@pytest.mark.parametrize("wrong", [None, 5, "", "unknown", "\ud800"])
def test_an_id_that_no_request_has_is_an_argument_error(lake: Connection, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        lake.rules.approve(wrong)
    with pytest.raises(InvalidArgumentError):
        lake.rules.reject(wrong, "no")
    with pytest.raises(InvalidArgumentError):
        lake.rules.reject("unknown", wrong)


SCHEMA = pa.schema([("order_id", pa.int64()), ("amount", pa.float64()), ("at", pa.struct([("city", pa.string())]))])


def test_a_second_rule_of_a_kind_does_not_replace_the_first_unasked(lake: Connection) -> None:
    lake.create_table("main.sales.orders", SCHEMA)
    first = lake.rules.set_commit_rule("main.sales.orders", "protected_columns", columns=["order_id"])
    with pytest.raises(
        InvalidArgumentError, match=r"order_id.*repeat the call with this argument: name='protected_columns'"
    ):
        lake.rules.set_commit_rule("main.sales.orders", "protected_columns", columns=["amount"])
    assert lake.rules.list_commit_rules() == (first,)
    lake.rules.set_commit_rule("main.sales.orders", "protected_columns", columns=["order_id"], reason="a key")
    lake.rules.set_commit_rule("main.sales.orders", "protected_columns", name="amounts", columns=["amount"])
    assert [(one.name, one.reason) for one in lake.rules.list_commit_rules()] == [
        ("amounts", ""),
        ("protected_columns", "a key"),
    ]
    lake.rules.set_commit_rule("main.sales.orders", "protected_columns", name="protected_columns", columns=["at.city"])
    assert [one.arguments["columns"] for one in lake.rules.list_commit_rules()] == [("amount",), ("at.city",)]


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("protected_columns", {"columns": ["order_id", "amuont"]}, r"column 'amuont' \(did you mean 'amount'\?\)"),
        ("protected_columns", {"columns": ["at.town"]}, r"column 'at\.town' \(it has at\.city\)"),
        (
            "required_constraints",
            {"constraints": ["positiv"]},
            r"CHECK constraint 'positiv' \(did you mean 'positive'\?\)",
        ),
    ],
)
def test_what_the_table_does_not_have_is_asked_for_twice(
    lake: Connection, kind: str, arguments: dict[str, Any], message: str
) -> None:
    properties = {"delta.constraints.positive": "amount > 0"}
    lake.create_table("main.sales.orders", SCHEMA, properties=properties)
    with pytest.raises(InvalidArgumentError, match=message):
        lake.rules.set_commit_rule("main.sales.orders", kind, **arguments)
    assert lake.rules.list_commit_rules() == ()
    lake.rules.set_commit_rule("main.sales", kind, **arguments)
    lake.rules.set_commit_rule("main.sales.orders", kind, force=True, **arguments)
    assert [one.scope for one in lake.rules.list_commit_rules()] == ["main.sales", "main.sales.orders"]


def test_every_operation_of_a_connection_carries_its_context(lake: Connection, tmp_path: Path) -> None:
    """Creations, alterations, SQL statements and writes with their own tags satisfy rules about commitInfo."""
    lake.rules.set_commit_rule("main.sales", "required_tags", future=True, tags=["owner"])
    lake.rules.set_commit_rule("main.sales", "required_user_metadata", future=True, pattern="T-[0-9]+")
    recorded = CommitProperties(tags={"owner": "etl", "team": "a"}, user_metadata="T-1")
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path), commit_properties=recorded) as tagged:
        orders = tagged.create_table("main.sales.orders", pa.schema([("id", pa.int64())]))
        orders.alter.add_columns({"note": "string"})
        tagged.sql("ALTER TABLE main.sales.orders SET TBLPROPERTIES ('a' = '1')")
        own = CommitProperties(tags={"team": "b"}, user_metadata="T-2")
        orders.alter.unset_properties("a", commit_properties=own)
        infos = [each.commit_info for each in orders.history()]
        found = [(dict(info.tags or {}), info.user_metadata) for info in infos if info is not None]
    assert found[0] == ({"owner": "etl", "team": "b"}, "T-2")
    assert found[1:] == [({"owner": "etl", "team": "a"}, "T-1")] * 3


def test_a_refusal_says_how_a_commit_gets_tags(lake: Connection) -> None:
    lake.create_table("main.sales.orders", SCHEMA)
    for kind, arguments, attribute in (
        ("required_tags", {"tags": ["owner"]}, "tags="),
        ("required_user_metadata", {}, "user_metadata="),
    ):
        rule = lake.rules.set_commit_rule("main.sales", kind, **arguments)
        with pytest.raises(CommitRefusedError, match=rf"connect\(url, commit_properties=CommitProperties\({attribute}"):
            lake.table("main.sales.orders").alter.add_columns({"note": "string"})
        lake.rules.remove_commit_rule("main.sales", rule.name)


@pytest.mark.parametrize("wrong", [None, {"owner": "etl"}, "owner=etl"])
def test_a_context_of_another_type_is_an_argument_error(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="give CommitProperties"):
        connect(f"sqlite:///{tmp_path}/catalog.db", commit_properties=wrong)
