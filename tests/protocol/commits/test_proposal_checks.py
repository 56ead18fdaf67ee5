"""The checks of a proposed commit refuse the same commits in columns and line by line."""

import json

import pytest

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.commit_json import LARGE_COMMIT_BYTES
from cm_delta_dagster.protocol.commits.proposal_checks.content import check_content
from tests.support.unreadable_commits import CASES, Reading, UnreadableCommit, line_of

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
    assert check_content(data).absolute_paths == ()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_commit_that_must_not_be_made_is_refused_alone_and_among_many_files(case: UnreadableCommit) -> None:
    for good in ((), MANY):
        with pytest.raises(IllegalCommitError):
            check_content(case.data(txn_id="t", timestamp_ms=1, good=good))


@pytest.mark.parametrize("line", OTHER_LINES.values(), ids=OTHER_LINES.keys())
def test_a_line_that_a_parser_of_columns_might_accept_is_refused(line: str) -> None:
    with pytest.raises(IllegalCommitError):
        check_content(_data(line, good=MANY))


@pytest.mark.parametrize("good", [(), MANY], ids=["few", "many"])
def test_absolute_paths_are_reported(good: tuple[str, ...]) -> None:
    paths = ("s3://other/a.parquet", "file:///other/b.parquet", "/other/c.parquet")
    lines = tuple(line_of("add", path=json.dumps(path)) for path in paths)
    assert set(check_content(_data(line_of("txn"), good=(*good, *lines))).absolute_paths) == set(paths)


@pytest.mark.parametrize("good", [(), MANY], ids=["few", "many"])
def test_an_unknown_action_passes(good: tuple[str, ...]) -> None:
    assert check_content(_data('{"future":{"a":[1,{"b":null}]}}', good=good)).absolute_paths == ()
