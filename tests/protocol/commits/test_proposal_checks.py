"""The checks of a proposed commit refuse the same commits in columns and line by line."""

import itertools
import json
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.commit_json import LARGE_COMMIT_BYTES, decode_commit
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, DELETION_VECTOR_TYPE
from cm_delta_dagster.protocol.actions.json_columns import strict_file_actions
from cm_delta_dagster.protocol.commits.proposal_checks.content import check_content
from cm_delta_dagster.protocol.commits.proposal_checks.file_columns import (
    flaw_of_files,
    suspect_statistics,
    suspect_vectors,
)
from cm_delta_dagster.protocol.commits.proposal_rules import FOREIGN_RULES
from cm_delta_dagster.protocol.features.deletion_vectors import encode_relative_name
from tests.support.unreadable_commits import CASES, REFUSED, Reading, UnreadableCommit, line_of, vector_of

GOOD = UnreadableCommit(name="", action="", field="", reading=Reading.WORKS)
MANY = tuple(
    line_of(action, path=f'"part-{number}.parquet"', baseRowId="7")
    for action, numbers in (("add", range(1500)), ("remove", range(1500, 2000)))
    for number in numbers
)
ADD = line_of("add", path='"part-x.parquet"')

OTHER_LINES = {
    "two objects in a line": ADD + ADD,
    "another action": ADD[:-1] + ',"txn":{"appId":"a","version":1}}',
    "another action that is null": ADD[:-1] + ',"remove":null}',
    "null": '{"add":null}',
    "a file a second time": MANY[3],
    "a removed file with the same vector": line_of("add", path='"part-1700.parquet"'),
    "an unknown field twice": ADD.replace('"size"', '"x":1,"x":2,"size"'),
    "a partition value twice": ADD.replace('{"day"', '{"day":"2026-01-02","day"'),
    "statistics that end twice": line_of("add", stats=json.dumps('{"numRecords":1}}')),
    "two statistics": line_of("add", stats=json.dumps('{"numRecords":1}{"numRecords":1}')),
    "empty statistics": line_of("add", stats='""'),
}


def _data(line: str, *, good: tuple[str, ...]) -> bytes:
    case = UnreadableCommit(name="", action="", field="", reading=Reading.WORKS, line=line)
    return case.data(txn_id="t", timestamp_ms=1, good=good)


def test_many_valid_files_are_checked_in_columns() -> None:
    data = GOOD.data(txn_id="t", timestamp_ms=1, good=MANY)
    assert len(data) > LARGE_COMMIT_BYTES
    content = check_content(data)
    assert content.absolute_paths == ()
    assert content.actions(version=3) == decode_commit(data, version=3)


def test_odd_lines_are_among_the_actions_of_large_content() -> None:
    data = _data(line_of("add", newField="1"), good=(*MANY, line_of("txn"), '{"future":{}}'))
    actions = check_content(data).actions(version=3)
    expected = decode_commit(data, version=3)
    assert actions.adds.sort_by("path") == expected.adds.sort_by("path")
    assert actions.removes == expected.removes
    assert replace(actions, adds=expected.adds) == expected


@pytest.mark.parametrize("field", ["tags", "clusteringProvider", "deletionVector", "stats"])
def test_a_field_that_few_lines_have_is_checked_in_columns(field: str) -> None:
    texts = {"tags": '{"a":"b"}', "clusteringProvider": '"c"', "deletionVector": vector_of(), "stats": None}
    lines = [*MANY[:1400], line_of("add", **{field: texts[field]}), *MANY[1400:]]
    files = strict_file_actions(_data(line_of("txn"), good=tuple(lines)))
    assert len(files.others) - 2 <= (64 if field == "tags" else 0)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_commit_that_must_not_be_made_is_refused_alone_and_among_many_files(case: UnreadableCommit) -> None:
    for good in ((), MANY):
        with pytest.raises(IllegalCommitError):
            check_content(case.data(txn_id="t", timestamp_ms=1, good=good))


@pytest.mark.parametrize("case", [case for case in CASES if case not in REFUSED], ids=lambda case: case.name)
def test_what_every_reader_ignores_passes_alone_and_among_many_files(case: UnreadableCommit) -> None:
    for good in ((), MANY):
        assert check_content(case.data(txn_id="t", timestamp_ms=1, good=good)).absolute_paths == ()


@pytest.mark.parametrize("line", OTHER_LINES.values(), ids=OTHER_LINES.keys())
def test_a_line_that_a_parser_of_columns_might_accept_is_refused(line: str) -> None:
    with pytest.raises(IllegalCommitError):
        check_content(_data(line, good=MANY))


@pytest.mark.parametrize(
    "odd",
    [
        (line_of("add", newField="1"),),
        (line_of("add", partitionValues='{"day":null,"other":"1"}'),),
        (line_of("add", tags='{"a":"' + "[" * 6000 + '"}'),),
        tuple(line_of("add", path=f'"odd-{number}.parquet"', newField="1") for number in range(20)),
    ],
    ids=["a new field", "another partition column", "many brackets", "scattered"],
)
def test_only_odd_lines_and_few_others_are_parsed_one_by_one(odd: tuple[str, ...]) -> None:
    step = len(MANY) // len(odd)
    lines = [line for place, line in enumerate(odd) for line in (*MANY[place * step : (place + 1) * step], line)]
    files = strict_file_actions(_data(line_of("txn"), good=tuple(lines)))
    assert len(files.others) - 2 <= 64 * len(odd)
    assert files.adds.num_rows + files.removes.num_rows + len(files.others) == len(lines) + 2
    assert check_content(_data(line_of("txn"), good=tuple(lines))).absolute_paths == ()


_NAME = encode_relative_name(uuid.UUID(int=7))
_TEXTS = (
    "",
    "a",
    _NAME,
    f"ab{_NAME}",
    f"../{_NAME}",
    f"a/{_NAME}",
    "%$#00" * 4,
    "a\u00e9" + _NAME,
    _NAME[:-1] + " ",
    "s3://b/v.bin",
)


def test_vectors_in_columns_have_the_flaws_of_each() -> None:
    rule = FOREIGN_RULES["add"]["deletionVector"][1]
    num_flaws = 0
    for kind, text, offset, size, cardinality in itertools.product(
        ("u", "i", "p", "x", None), (*_TEXTS, None), (None, 1, -1), (40, -1, None), (2, -1, None)
    ):
        vector = {
            "storageType": kind,
            "pathOrInlineDv": text,
            "offset": offset,
            "sizeInBytes": size,
            "cardinality": cardinality,
        }
        row = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        files = pa.Table.from_pylist([row | {"deletionVector": vector}], schema=ADD_SCHEMA)
        why = rule(vector)
        assert flaw_of_files("add", files) == (None if why is None else ("deletionVector", why)), vector
        num_flaws += why is not None
    assert 0 < num_flaws < 5 * (len(_TEXTS) + 1) * 27


def test_usual_vectors_are_not_checked_one_by_one() -> None:
    usual = [
        {"storageType": kind, "pathOrInlineDv": text, "offset": offset, "sizeInBytes": 40, "cardinality": 2}
        for kind, text, offset in (
            ("u", _NAME, 1),
            ("u", f"aB3{_NAME}", None),
            ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None),
        )
    ]
    assert suspect_vectors(pa.array(usual, DELETION_VECTOR_TYPE)).to_pylist() == []


def test_only_odd_statistics_and_few_others_are_parsed_one_by_one() -> None:
    texts = ['{"numRecords":10}'] * 5000
    texts[3000] = '{"numRecords":10.0}'
    suspects = list(suspect_statistics(pa.chunked_array([texts])))
    assert texts[3000] in suspects and len(suspects) <= 64


@pytest.mark.parametrize("good", [(), MANY], ids=["few", "many"])
def test_absolute_paths_are_reported(good: tuple[str, ...]) -> None:
    paths = ("s3://other/a.parquet", "file:///other/b.parquet", "/other/c.parquet")
    lines = tuple(line_of("add", path=json.dumps(path)) for path in paths)
    assert set(check_content(_data(line_of("txn"), good=(*good, *lines))).absolute_paths) == set(paths)


@pytest.mark.parametrize("good", [(), MANY], ids=["few", "many"])
def test_absolute_paths_of_vectors_are_reported_if_a_file_is_added_with_them(good: tuple[str, ...]) -> None:
    """The vector of a remove repeats what the table has."""
    paths = [f"s3://other/{name}.bin" for name in ("added", "removed")]
    vectors = [vector_of(storageType='"p"', pathOrInlineDv=json.dumps(path)) for path in paths]
    lines = (line_of("add", deletionVector=vectors[0]), line_of("remove", deletionVector=vectors[1]), line_of("cdc"))
    assert check_content(_data(line_of("txn"), good=(*good, *lines))).absolute_paths == (paths[0],)


@pytest.mark.parametrize("good", [(), MANY], ids=["few", "many"])
def test_an_unknown_action_passes(good: tuple[str, ...]) -> None:
    assert check_content(_data('{"future":{"a":[1,{"b":null}]}}', good=good)).absolute_paths == ()
