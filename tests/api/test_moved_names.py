"""The old place of a method is an error that names the new call, which exists."""

import ast
import inspect
import re
import typing
from functools import cached_property
from pathlib import Path
from types import UnionType

import pytest

import cm_delta_dagster
from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.moved_names import MOVED_NAMES
from cm_delta_dagster.api.multi_table_transaction import MultiTableTransaction, TransactionTable
from cm_delta_dagster.api.peer_names import CONNECTION_NAMES, PACKAGE_NAMES
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.api.table.path_delta_table import PathDeltaTable

CLASSES: dict[str, type] = {
    "Connection": Connection,
    "DeltaTable": DeltaTable,
    "PathDeltaTable": PathDeltaTable,
    "TransactionTable": TransactionTable,
}
MOVES = [(kind, old, new) for kind, moves in MOVED_NAMES.items() for old, new in moves.items() if kind in CLASSES]


def test_the_table_has_classes_of_the_public_api_only() -> None:
    assert set(MOVED_NAMES) == {*CLASSES, "cm_delta_dagster"}


@pytest.mark.parametrize(("kind", "old", "new"), MOVES)
def test_an_old_method_is_an_error_that_names_the_new_call(kind: str, old: str, new: str) -> None:
    """The class has no such name, and the message has the new call, all of whose parts exist."""
    assert not hasattr(CLASSES[kind], old)
    with pytest.raises(AttributeError, match=rf"^{kind} has no attribute '{old}': write {re.escape(new)}$"):
        getattr(CLASSES[kind].__new__(CLASSES[kind]), old)
    check_call(new, table=CLASSES[kind])


@pytest.mark.parametrize(("old", "new"), MOVED_NAMES["cm_delta_dagster"].items())
def test_an_old_exported_name_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    with pytest.raises(ImportError, match=rf"has no attribute '{old}': write {re.escape(new)}$"):
        getattr(cm_delta_dagster, old)
    assert new.partition("(")[0].partition(".")[0] in cm_delta_dagster.__all__


@pytest.mark.parametrize(("of_peer", "here"), CONNECTION_NAMES.items())
def test_a_name_of_another_library_is_an_error_that_names_the_call(of_peer: str, here: str) -> None:
    assert not hasattr(Connection, of_peer)
    with pytest.raises(
        AttributeError, match=rf"^Connection has no attribute '{re.escape(of_peer)}': write {re.escape(here)}$"
    ):
        getattr(Connection.__new__(Connection), of_peer)
    for call in here.split(", or "):
        check_call(call)


@pytest.mark.parametrize(("of_peer", "here"), PACKAGE_NAMES.items())
def test_a_name_that_the_package_does_not_export_is_an_error_that_names_what_it_has(of_peer: str, here: str) -> None:
    with pytest.raises(ImportError, match=rf"has no attribute '{of_peer}': write {re.escape(here)}$"):
        exec(f"from cm_delta_dagster import {of_peer}")
    if here.startswith("from "):
        exec(here)
    else:
        assert here.startswith("connect(") and "connect" in cm_delta_dagster.__all__
    assert not hasattr(cm_delta_dagster, "nothing_like_it")


@pytest.mark.parametrize("arguments", [(), ("s3://bucket/table",), (Path("table"), "more")])
def test_a_table_of_a_path_is_opened_by_a_connection(arguments: tuple[object, ...]) -> None:
    assert list(inspect.signature(DeltaTable).parameters) == ["connection", "table"]
    with pytest.raises(
        TypeError, match=r"^DeltaTable is opened by a connection: write connect\(\.\.\.\)\.table\(name\), or"
    ):
        DeltaTable(*arguments)  # type: ignore[arg-type]  # The error is the point.


def test_a_connection_is_not_subscriptable_and_says_how_to_open_a_table() -> None:
    with pytest.raises(TypeError, match=r"'Connection' object is not subscriptable: write lake\.table\(\.\.\.\)$"):
        Connection.__new__(Connection)["main.s.t"]  # type: ignore[index]  # The error is the point.


def test_an_error_in_a_property_is_not_taken_for_an_absent_method() -> None:
    class Broken(AbsentMethods):
        @property
        def rows(self) -> int:
            raise AttributeError("the cause")

    with pytest.raises(AttributeError, match=r"^the cause$"):
        _ = Broken().rows


def test_a_name_that_never_was_has_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"^Connection has no attribute 'nope'$"):
        Connection.__new__(Connection).nope  # type: ignore[attr-defined]  # The error is the point.  # noqa: B018


def test_calls_that_do_not_exist_are_found() -> None:
    """The check of the tests above follows annotations through properties and methods, and knows their parameters."""
    check_call("lake.table(...).alter.rename_column(...)")
    check_call("lake.table(...).to_arrow(where=...).to_pandas()")
    for call in ("lake.tabel(...)", "lake.table(...).altar", "lake.table(nmae=...)", "lake.tables.count()"):
        with pytest.raises(AssertionError):
            check_call(call)


def check_call(text: str, *, table: type = DeltaTable) -> None:
    """Fail unless every attribute and every keyword of the call exists, and what is called can be called."""
    _type_of(ast.parse(text, mode="eval").body, {"lake": Connection, "tx": MultiTableTransaction, "table": table})


def _type_of(node: ast.expr, names: dict[str, type]) -> type:
    """The class of what an expression of names, attributes and calls gives, by the annotations."""
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        owner = _type_of(node.value, names)
        member = inspect.getattr_static(owner, node.attr, None)
        assert isinstance(member, property | cached_property), f"{owner.__name__}.{node.attr} is not a property"
        return _returned(member.fget if isinstance(member, property) else member.func, owner)
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute), ast.unparse(node)
    owner = _type_of(node.func.value, names)
    method = getattr(owner, node.func.attr, None)
    assert callable(method), f"{owner.__name__}.{node.func.attr} is not a method"
    if not owner.__module__.startswith("cm_delta_dagster."):
        return object
    parameters = inspect.signature(method).parameters
    unknown = {keyword.arg for keyword in node.keywords} - set(parameters)
    assert not unknown, f"{owner.__name__}.{node.func.attr} has no parameter {unknown}"
    return _returned(method, owner)


def _returned(function: typing.Any, owner: type) -> type:
    hint = typing.get_type_hints(function)["return"]
    hint = owner if hint is typing.Self else hint
    hint = typing.get_args(hint)[0] if isinstance(hint, UnionType) else hint
    return hint if isinstance(hint, type) else typing.get_origin(hint) or object
