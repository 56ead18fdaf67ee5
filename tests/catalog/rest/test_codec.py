"""Values of the interfaces of the catalog survive the way over HTTP."""

import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from types import UnionType
from typing import Any, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.durations import LONGEST
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceRule
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.recovery import CommitHistory
from cm_delta_dagster.catalog.rest.codec import codec_of
from cm_delta_dagster.catalog.rest.operations import CatalogOperation, operations
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.commits.proposal_checks.content import CheckedContent
from tests.contracts.catalog_bench import inline

OPERATIONS = [operation for part in operations().values() for operation in part.values()]
EVERY_OPERATION = pytest.mark.parametrize("operation", OPERATIONS, ids=str)

_NUMBERS = st.none() | st.integers(0, 2**40)
_DURATIONS = st.none() | st.timedeltas(timedelta(0), LONGEST)
st.register_type_strategy(timedelta, st.timedeltas(timedelta(0), LONGEST))
st.register_type_strategy(
    CommitPolicy,
    st.sampled_from([CommitPolicy(), CommitPolicy(kind=CommitPolicyKind.AUTO, inline_max_bytes=65536)]),
)
st.register_type_strategy(
    MaintenanceConditions,
    st.builds(
        MaintenanceConditions,
        principals=st.lists(st.text()).map(tuple),
        min_retention=_DURATIONS,
        max_files=_NUMBERS,
        max_bytes=_NUMBERS,
    ),
)
st.register_type_strategy(
    MaintenanceRule,
    st.builds(MaintenanceRule, allowed=st.just(True), set_by=st.none() | st.text(), set_ms=_NUMBERS),
)
# A client cannot set what the catalog has parsed of a commit.
st.register_type_strategy(CheckedContent, st.none())
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(
    CommitHistory,
    st.builds(CommitHistory, proposals=st.lists(st.from_type(CommitProposal), min_size=1, max_size=2).map(tuple)),
)


def _values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a type, with a tuple for each iterable."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, UnionType):
        return st.one_of(*map(_values, arguments))
    if origin in (Iterable, Sequence, Collection):
        return st.lists(_values(arguments[0]), max_size=3).map(tuple)
    return st.from_type(annotation)


@EVERY_OPERATION
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_arguments_of_an_operation_survive_the_way(operation: CatalogOperation, data: st.DataObject) -> None:
    hints = typing.get_type_hints(operation.method)
    arguments = {
        name: data.draw(_values(hints[name]), label=name)
        for name, parameter in operation.signature.parameters.items()
        if parameter.default is parameter.empty or data.draw(st.booleans())
    }
    assert operation.arguments.decode(operation.arguments.encode(arguments)) == arguments


@EVERY_OPERATION
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_answer_of_an_operation_survives_the_way(operation: CatalogOperation, data: st.DataObject) -> None:
    answer = data.draw(_values(typing.get_type_hints(operation.method)["return"]))
    decoded = operation.answer.decode(operation.answer.encode(answer))
    assert decoded == answer
    assert type(decoded) is type(answer) or isinstance(answer, Mapping)


def test_each_json_of_an_operation_names_the_class_of_a_value_of_a_union() -> None:
    outcome = codec_of(CommitPolicy | MaintenanceRule)
    text = outcome.encode(CommitPolicy())
    assert text == b'{"CommitPolicy":{"kind":"staged","inline_max_bytes":null}}'
    assert outcome.decode(text) == CommitPolicy()


def test_a_client_cannot_state_what_the_catalog_has_parsed() -> None:
    codec = operations()["coordinator"]["commit"].arguments
    text = codec.encode({"table_id": "t", "proposal": inline(1)})
    assert b'"checked"' not in text
    forged = text.replace(b'"lease_token":null', b'"lease_token":null,"checked":{"marks":{}}')
    assert forged != text
    with pytest.raises(InvalidArgumentError, match="checked"):
        codec.decode(forged)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"table_id": 1, "version": 2}',
        b'{"table_id": "t"}',
        b'{"table_id": "t", "version": "2"}',
        b'{"table_id": "t", "version": 2.5}',
        b'{"table_id": "t", "version": true}',
        b'{"table_id": "t", "version": 2, "now_ms": 3}',
        b'{"table_id": "\\ud800", "version": 2}',
        b'{"table_id": "\xff", "version": 2}',
    ],
)
def test_a_json_of_another_form_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="Nothing was changed"):
        operations()["coordinator"]["set_published_version"].arguments.decode(text)


def test_a_value_of_another_type_is_not_sent() -> None:
    arguments = operations()["coordinator"]["set_published_version"].arguments
    for version in ("2", 2.5, [1], "\ud800"):
        with pytest.raises(InvalidArgumentError):
            arguments.encode({"table_id": "t", "version": version})


def test_a_value_that_the_class_refuses_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="auto requires"):
        codec_of(CommitPolicy).decode(b'{"kind": "auto"}')


def test_a_type_without_a_form_in_json_is_found_when_the_table_is_made() -> None:
    with pytest.raises(TypeError, match="complex"):
        codec_of(complex)
