"""A keyword that a public method does not have is an error that names the right one."""

import inspect
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.api.keyword_hints import PEER_KEYWORDS, checking_keywords
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.errors import InvalidArgumentError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        yield lake


@pytest.mark.parametrize(
    ("method", "keyword", "meant"),
    [
        ("to_arrow", "snapshot_id", "version"),
        ("overwrite", "delete_filter", "where"),
        ("merge", "predicate", "on"),  # deltalake
        ("to_df", "versionAsOf", "version"),  # delta-spark
        ("to_df", "colums", "columns"),  # Misspelled
        ("history", "limits", "limit"),
    ],
)
def test_a_foreign_or_misspelled_keyword_is_an_error_that_names_the_right_one(
    lake: Connection, method: str, keyword: str, meant: str
) -> None:
    table = lake.table("main.sales.orders")
    assert meant in inspect.signature(getattr(table, method)).parameters
    with pytest.raises(
        TypeError, match=rf"^DeltaTable\.{method}\(\) has no argument '{keyword}': write {meant}=\.\.\.$"
    ):
        getattr(table, method)(**{keyword: "x"})


def test_namespaces_and_the_alterer_name_arguments_too(lake: Connection) -> None:
    with pytest.raises(TypeError, match=r"list_grants\(\) has no argument 'scpe': write scope="):
        lake.access.list_grants(scpe="main")  # type: ignore[call-arg]  # The error is the point.
    with pytest.raises(TypeError, match=r"rename_column\(\) has no argument 'new_name': write to="):
        lake.table("main.sales.orders").alter.rename_column("id", new_name="n")  # type: ignore[call-arg]  # As above.


def test_a_keyword_that_resembles_none_lists_the_arguments(lake: Connection) -> None:
    with pytest.raises(TypeError, match=r"tables\(\) has no argument 'x': its arguments are scope$"):
        lake.tables(x=1)  # type: ignore[call-arg]  # The error is the point.
    with pytest.raises(TypeError, match=r"^connect\(\) has no argument 'storage_option': write storage_options="):
        connect("sqlite://", storage_option={})  # type: ignore[call-arg]  # As above.


def test_signatures_and_documentation_stay() -> None:
    def function(self: object, name: str, *, where: str | None = None) -> int:
        """What it does."""
        return len(name)

    checked = checking_keywords(function)
    assert inspect.signature(checked) == inspect.signature(function)
    assert (checked.__doc__, checked.__name__) == ("What it does.", "function")
    assert checked(None, name="four") == 4
    assert (
        str(inspect.signature(DeltaTable.history))
        == "(self, limit: int | None = None) -> tuple["
        + str(inspect.signature(DeltaTable.history)).partition("tuple[")[2]
    )


def test_names_that_delta_spark_has_on_the_class_say_what_to_write() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'forName': write connect\(\.\.\.\)\.table\(name\)$"):
        DeltaTable.forName  # type: ignore[attr-defined]  # The error is the point.  # noqa: B018
    assert not hasattr(DeltaTable, "something_else")


def test_no_foreign_keyword_stands_for_itself_alone() -> None:
    assert [name for name, here in PEER_KEYWORDS.items() if here == (name,)] == []


def test_a_dry_run_is_the_plan_of_a_method(lake: Connection) -> None:
    table = lake.table("main.sales.orders")
    for method in (table.vacuum, table.optimize):
        with pytest.raises(
            TypeError,
            match=rf"has no argument 'dry_run': write plan_{method.__name__}\(\.\.\.\), whose result has apply",
        ):
            method(dry_run=True)
    with pytest.raises(TypeError, match="its arguments are"):
        table.history(dry_run=True)  # type: ignore[call-arg]  # It has no plan.


@pytest.mark.parametrize("value", [None, {"job": "nightly"}, "job=nightly"])
def test_properties_of_a_commit_are_of_their_class_before_anything_happens(lake: Connection, value: object) -> None:
    table = lake.table("main.sales.orders")
    with pytest.raises(InvalidArgumentError, match=r"commit_properties is .*CommitProperties\(tags="):
        table.delete("id = 1", commit_properties=value)
    assert table.version() == 0


def test_a_namespace_lists_its_methods_for_an_unknown_name(lake: Connection) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'add': its methods are approve, .*set_commit_rule"):
        _ = lake.rules.add  # type: ignore[attr-defined]  # The error is the point.


def test_columns_are_added_by_name_and_type(lake: Connection) -> None:
    table = lake.table("main.sales.orders")
    with pytest.raises(InvalidArgumentError, match=r"columns is 'note'; give the types by name, such as {'note'"):
        table.alter.add_columns("note")
    assert table.version() == 0


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        (
            "delete",
            (),
            r"^DeltaTable\.delete\(\) lacks where: write DeltaTable\.delete\(where, \*, idempotency=\.\.\., ",
        ),
        (
            "history",
            (1, 2),
            r"\.history\(\) takes one argument without a name: write DeltaTable\.history\(limit=\.\.\.\)$",
        ),
        ("clone", (), r"\.clone\(\) lacks name: write DeltaTable\.clone\(name, mode=\.\.\., \*, version"),
    ],
)
def test_a_wrong_number_of_arguments_is_an_error_with_the_signature(
    lake: Connection, method: str, arguments: tuple[int, ...], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(lake.table("main.sales.orders"), method)(*arguments)
    assert len(lake.table("main.sales.orders").history(limit=1)) == 1


def test_a_keyword_of_the_same_meaning_is_accepted(lake: Connection) -> None:
    table: Any = lake.table("main.sales.orders")
    for keyword in ("predicate", "row_filter", "overwrite_filter", "filter", "filters"):
        with pytest.raises(InvalidArgumentError, match="nope"):
            table.scan(**{keyword: "nope = 1"})
        for arguments in ({"where": "id = 1", keyword: "id = 2"}, {keyword: "id = 2", "where": "id = 1"}):
            with pytest.raises(TypeError, match=rf"scan\(\) has two values for where: leave out {keyword}=\.\.\.$"):
                table.scan(**arguments)
    with pytest.raises(TypeError, match="two values for where"):
        table.delete("id = 1", predicate="id = 2")
    with pytest.raises(TypeError, match="two values for where"):
        table.scan(filter="id = 1", predicate="id = 2")
    with pytest.raises(TypeError, match=r"has no argument 'filters': write where="):
        table.scan(filters=[("id", "=", 1)])
    assert table.to_arrow(selected_fields=["id"], row_filter="id = 1").num_rows == 0
    for keyword in ("updates", "set"):
        with pytest.raises(InvalidArgumentError, match=r"^assignments is 'x'"):
            table.update(**{keyword: "x"})
    with pytest.raises(InvalidArgumentError, match=r"^on is 5"):
        table.upsert(None, join_cols=5)


@pytest.mark.parametrize(
    ("method", "keyword", "hint"),
    [
        ("vacuum", "retain", "write retention=timedelta(hours=...)"),
        ("clone", "isShallow", "write clone(name), which is shallow"),
        ("append", "snapshot_properties", "write commit_properties=CommitProperties(custom_metadata={...})"),
        ("scan", "limit", "write scan(...).to_df().limit(n)"),
        ("overwrite", "mode", "append(frame) adds rows"),
        ("to_df", "readChangeFeed", "write table.changes(starting_version=...).to_df()"),
    ],
)
def test_a_keyword_that_means_another_call_names_it(lake: Connection, method: str, keyword: str, hint: str) -> None:
    with pytest.raises(TypeError, match=f"has no argument '{keyword}': .*{re.escape(hint)}"):
        getattr(lake.table("main.sales.orders"), method)(**{keyword: 1})


def test_a_method_that_is_an_object_elsewhere_names_the_call(lake: Connection) -> None:
    table = lake.table("main.sales.orders")
    with pytest.raises(AttributeError, match=r"^optimize is a method, without 'compact': write optimize\(\)$"):
        table.optimize.compact()  # type: ignore[attr-defined]  # The error is the point.
    with pytest.raises(AttributeError, match=r"without 'z_order': write optimize\(z_order_by="):
        table.optimize.z_order(["id"])  # type: ignore[attr-defined]  # As above.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("table.restore('1')", r"^version is '1'; give a whole number\.$"),
        (
            "table.restore(date(2026, 1, 31))",
            r"^version is datetime\.date.*; give a whole number, or the time as timestamp=\.\.\.",
        ),
        ("table.restore()", "Neither a version nor a timestamp to restore was given"),
        ("table.restore(0, timestamp=5)", "Both a version and a timestamp to restore was given"),
        (
            "table.optimize(target_size='128MB')",
            r"^target_size is '128MB'; give a whole number of bytes, e\.g\. 128 \* 1024",
        ),
        ("table.history('x')", r"^limit is 'x'; give a whole number"),
        ("table.history(True)", r"^limit is True; give a whole number"),
        (
            "table.append(None, idempotency='job1')",
            r"^idempotency is 'job1'; give an Idempotency, e\.g\. Idempotency\(app_id=",
        ),
        ("table.scan(columns=[1])", r"^columns is \[1\]; give a list of texts, e\.g\. \['id'\]"),
        ("table.scan('id')", r"^columns is 'id'; give a list of texts"),
        ("table.scan().duckdb('x')", r"^connection is 'x'; give a connection of DuckDB"),
        ("lake.duckdb('x')", r"^connection is 'x'; give a connection of DuckDB"),
        ("table.write_stream(None, checkpoint=5)", r"^checkpoint is 5; give a text"),
        (
            "table.write_stream(None, checkpoint='c', trigger='availableNow')",
            r"give a mapping, e\.g\. {'availableNow': True}",
        ),
        ("table.update('x')", r"^assignments is 'x'; give the values by column, e\.g\. {'status'"),
        ("lake.rules.approve(0)", r"^approval_id is 0; give a text\.$"),
        ("lake.rules.approve(Requested(approval_id='7'))", r"^approval_id is .*; give a text: its approval_id\.$"),
        ("lake.maintenance.set_policy('main', 'data_cleanup', allowed='no')", r"^allowed is 'no'; give True or False"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_says_what_to_give(lake: Connection, call: str, message: str) -> None:
    names = {"lake": lake, "table": lake.table("main.sales.orders"), "date": date, "Requested": SimpleNamespace}
    with pytest.raises(InvalidArgumentError, match=message):
        eval(call, names)
    assert lake.table("main.sales.orders").version() == 0
    assert lake.maintenance.list_policies() == ()


def test_values_that_stand_for_the_type_are_taken(lake: Connection) -> None:
    table = lake.table("main.sales.orders")
    assert len(table.history(np.int64(1))) == 1
    for columns in (("id",), iter(["id"]), {"id": 1}.keys(), None):
        assert table.to_arrow(columns).column_names == ["id"]  # type: ignore[arg-type]  # Run-time values of other types.


def test_a_rule_without_a_kind_names_the_kinds(lake: Connection) -> None:
    with pytest.raises(
        TypeError, match=r"lacks kind: write .*\*\*arguments\); kind is one of append_only, .*required_tags"
    ):
        lake.rules.set_commit_rule("main", require_tags="x")  # type: ignore[call-arg]  # The error is the point.


@pytest.mark.parametrize("mode", ["CREATE_OR_REPLACE", "Create_Or_Replace"])
def test_words_for_a_choice_are_taken_in_upper_case(lake: Connection, mode: str) -> None:
    lake.create_table("main.sales.orders", pa.schema([("id", pa.int64())]), mode=mode)
    lake.access.grant("READ", "main.sales", "ana")
    assert [grant.privilege.value for grant in lake.access.list_grants()] == ["read"]
    with pytest.raises(InvalidArgumentError, match="VACUUM is DATA_CLEANUP"):
        lake.maintenance.set_policy("main.sales", "VACUUM")
    with pytest.raises(InvalidArgumentError, match="SELECT is read"):
        lake.access.grant("SELECT", "main.sales", "ana")
