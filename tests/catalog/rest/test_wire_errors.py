"""Errors survive the way over HTTP: class, message, attributes and remedy."""

import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster import errors, remedies
from cm_delta_dagster.catalog.rest import wire_errors
from cm_delta_dagster.errors import CatalogError, CmDeltaError, CommitRefusedError, TableNotFoundError
from cm_delta_dagster.refusals import Refusal
from cm_delta_dagster.remedies import CheckTable, Remedy

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, CmDeltaError)]
REMEDIES = [cls for cls in vars(remedies).values() if isinstance(cls, type) and issubclass(cls, Remedy)]


def _attributes(cls: type) -> dict[str, Any]:
    hints = (
        typing.get_type_hints(cls.__init__) if "__init__" in dir(cls) and cls.__init__ is not Exception.__init__ else {}
    )
    return {name: hint for name, hint in hints.items() if name not in ("message", "return")}


@pytest.mark.parametrize("cls", CLASSES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_an_error_of_each_class_survives_the_way(cls: type[CmDeltaError], data: st.DataObject) -> None:
    fields = {name: data.draw(st.from_type(hint)) for name, hint in _attributes(cls).items()}
    error = cls(data.draw(st.text()), **fields).with_remedy(data.draw(st.none() | st.sampled_from([CheckTable()])))
    arrived = wire_errors.from_json(wire_errors.as_json(error))
    assert arrived is not None and type(arrived) is cls
    assert (arrived.message, arrived.remedy) == (error.message, error.remedy)
    assert {name: getattr(arrived, name) for name in fields} == fields


@pytest.mark.parametrize("cls", REMEDIES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_remedy_of_each_class_survives_the_way(cls: type[Remedy], data: st.DataObject) -> None:
    error = CatalogError("It failed.").with_remedy(data.draw(st.from_type(cls)))
    arrived = wire_errors.from_json(wire_errors.as_json(error))
    assert arrived is not None and arrived.remedy == error.remedy and type(arrived.remedy) is type(error.remedy)


def test_a_refusal_keeps_the_rule_and_whom_to_ask() -> None:
    refusal = Refusal(what="The commit", reason="it removes rows", rule="grants", scope="main", ask=("ana",))
    arrived = wire_errors.from_json(wire_errors.as_json(CommitRefusedError(str(refusal), refusal=refusal)))
    assert isinstance(arrived, CommitRefusedError) and arrived.refusal == refusal and str(arrived) == str(refusal)


def test_the_version_of_a_missing_object_arrives() -> None:
    error = errors.ObjectNotFoundError("There is none.")
    error.version = 7
    arrived = wire_errors.from_json(wire_errors.as_json(error))
    assert isinstance(arrived, errors.ObjectNotFoundError) and arrived.version == 7


def test_a_message_that_utf_8_cannot_have_is_escaped() -> None:
    arrived = wire_errors.from_json(wire_errors.as_json(TableNotFoundError("No table \ud800.")))
    assert arrived is not None and arrived.message == "No table \\ud800."


def test_a_class_of_a_newer_release_is_an_error_of_the_catalog() -> None:
    arrived = wire_errors.from_json(b'{"error": {"kind": "NewError", "message": "New.", "remedy": {"New": {}}}}')
    assert type(arrived) is CatalogError and arrived.message == "New." and arrived.remedy is None


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>", b"[]", b"{}", b'{"error": 1}', b'{"error": {"kind": "", "message": "Not Found"}}', b"[" * 9999],
)
def test_another_text_is_not_an_error_of_an_operation(text: bytes) -> None:
    assert wire_errors.from_json(text) is None
