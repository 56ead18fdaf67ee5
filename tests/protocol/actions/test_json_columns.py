"""File actions in bulk are the same columns as those that are parsed line by line."""

import json
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.commit_json import LARGE_COMMIT_BYTES, CommitActions, decode_commit
from cm_delta_dagster.protocol.actions.json_columns import parse_file_actions
from cm_delta_dagster.protocol.actions.paths import flaw_of_log_path

Fields = dict[str, typing.Any]
_MANY = 512


def _lines(action: str, rows: list[Fields], *, spaces: bool = False) -> bytes:
    separators = (", ", ": ") if spaces else (",", ":")
    return b"".join(json.dumps({action: row}, separators=separators).encode() + b"\n" for row in rows)


def _line_by_line(data: bytes, action: str = "add") -> list[Fields]:
    assert len(data) < LARGE_COMMIT_BYTES
    commit = decode_commit(data, version=0)
    return [_plain(row) for row in (commit.adds if action == "add" else commit.removes).to_pylist()]


def _plain(row: Fields) -> Fields:
    maps = {name: None if row[name] is None else dict(row[name]) for name in ("partitionValues", "tags")}
    return {name: value for name, value in {**row, **maps}.items() if value is not None}


def _agree(data: bytes, action: str = "add") -> bool:
    """Whether the lines are read in bulk; if so, checks that both parsers agree."""
    parsed = parse_file_actions(data)
    if parsed is None:
        return False
    rows = (parsed.adds if action == "add" else parsed.removes).to_pylist()
    bulk, single = [_plain(row) for row in rows], _line_by_line(data, action)
    for row in (*bulk, *single):  # A value of a map that is null and one that is absent are the same.
        row |= {name: _without_nulls(row[name]) for name in ("partitionValues", "tags") if name in row}
    assert bulk == single
    return True


def _without_nulls(row: Fields) -> Fields:
    return {name: value for name, value in row.items() if value is not None}


_WORDS = st.text(st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=("Cc",)), max_size=12)
_JSON = st.dictionaries(_WORDS, st.integers() | _WORDS, max_size=2).map(json.dumps)
_ROW = st.fixed_dictionaries(
    {
        "path": _WORDS.map(lambda word: word + "x").filter(lambda path: flaw_of_log_path(path) is None),
        "partitionValues": st.fixed_dictionaries({"p": _WORDS, "q": _WORDS}),
        "size": st.integers(0, 10**17),
        "modificationTime": st.integers(0, 10**13),
        "stats": _JSON,
        "baseRowId": st.integers(0, 99),
    }
)


@pytest.mark.requirements("LOG-3", "FILE-1")
@settings(deadline=None, max_examples=200)
@given(st.lists(_ROW, min_size=1, max_size=6), st.booleans(), st.permutations(list(range(6))))
def test_lines_are_read_in_bulk_as_if_one_by_one(rows: list[Fields], spaces: bool, order: list[int]) -> None:
    """Any order of fields, with and without spaces; letters beyond ASCII unescaped."""
    names = list(rows[0])
    rows = [{names[number]: row[names[number]] for number in order} | {"dataChange": True} for row in rows]
    separators = (", ", ": ") if spaces else (",", ":")
    text = "".join(json.dumps({"add": row}, separators=separators, ensure_ascii=False) + "\n" for row in rows)
    assert _agree(text.encode())


@pytest.mark.requirements("LOG-3", "FILE-1")
@pytest.mark.parametrize("spaces", [False, True])
@pytest.mark.parametrize("tags", [None, {}, {"a": "1", "b": None}])
def test_lines_of_one_layout_are_read_as_if_one_by_one(spaces: bool, tags: Fields | None) -> None:
    rows = [
        {
            "path": f"day=2024-01-{number % 28 + 1:02d}/part-{number}.parquet",
            "partitionValues": {"day": f"2024-01-{number % 28 + 1:02d}", "p": None},
            "size": number * 37,
            "modificationTime": 1700000000000 + number,
            "dataChange": number >= 0,
            "stats": json.dumps({"numRecords": number, "minValues": {"a": "x" * (number % 7)}}),
            "tags": tags,
            "baseRowId": number,
            "clusteringProvider": "liquid",
        }
        for number in range(100)
    ]
    assert _agree(_lines("add", rows, spaces=spaces))
    removes = [{"path": row["path"], "deletionTimestamp": 5 + row["size"], "dataChange": True} for row in rows]
    assert _agree(_lines("remove", removes, spaces=spaces), "remove")


@pytest.mark.requirements("LOG-3")
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_changed_byte_is_never_read_as_anything_else(data: st.DataObject) -> None:
    """The lines are left to the other parser, or both give the same."""
    rows = [
        {"path": f"p{number}", "partitionValues": {"d": "x"}, "size": number, "stats": json.dumps({"n": number})}
        for number in range(9, 12)
    ]
    text = bytearray(_lines("add", rows))
    place = data.draw(st.integers(0, len(text) - 2))
    letters = st.sampled_from(b'"\\{}:,0123456789-eu. \x01\xff\xc3')
    match data.draw(st.sampled_from(["replace", "insert", "delete"])):
        case "replace":
            text[place] = data.draw(letters)
        case "insert":
            text.insert(place, data.draw(letters))
        case "delete":
            del text[place]
    if text.startswith(b'{"add"') and text.count(b'\n{"add"') == 2:  # Other lines are not read in bulk.
        _agree(bytes(text))


@pytest.mark.requirements("LOG-3", "LOG-6", "DV-1")
@pytest.mark.parametrize(
    "odd",
    [
        {"path": 'a"b'},
        {"path": "a\\b"},
        {"path": "a\nb"},
        {"path": "ü"},
        {"size": -1},
        {"size": 10**18},
        {"stats": '{"a":"back\\\\slash"}'},
        {"stats": None},
        {"tags": {"a": "b"}},
        {"partitionValues": {"p": None}},
        {"partitionValues": {"p": "1", "q": "2"}},
        {"deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}},
        {"unknown": {"deep": [1, {}]}},
    ],
)
@pytest.mark.parametrize("place", [0, 1, 300, -1])
def test_one_line_of_another_layout_is_read_correctly(odd: Fields, place: int) -> None:
    rows: list[Fields] = [
        {
            "path": f"f{n}",
            "partitionValues": {"p": "1"},
            "size": n,
            "modificationTime": 7,
            "dataChange": True,
            "stats": "{}",
        }
        for n in range(_MANY)
    ]
    rows[place] = rows[place] | odd
    data = _lines("add", rows)
    decoded = decode_commit(data + b" " * LARGE_COMMIT_BYTES, version=0).adds.to_pylist()
    found, expected = [_plain(row) for row in decoded], _line_by_line(data)
    for row in (*found, *expected):  # A partition value that is null and one that is absent are the same.
        row["partitionValues"] = _without_nulls(row["partitionValues"])
    assert sorted(found, key=repr) == sorted(expected, key=repr)  # The order within a commit means nothing.


@pytest.mark.requirements("LOG-3")
@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"a\xffb","partitionValues":{},"size":1}}',
        b'{"add":{"path":"a\\ud800b","partitionValues":{},"size":1}}',
        b'{"add":{"path":"a\x01b","partitionValues":{},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{},"size":01}}',
        b'{"add":{"path":"a","partitionValues":{},"size":1}},',
        b'{"add":{"path":"a","partitionValues":{},"size":1}}{"add":{"path":"b","partitionValues":{},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{},"size":1}',
        b'{"add":{"partitionValues":{},"size":1}}',
        b'{"add":{"path":null,"partitionValues":{},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{"p":5},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{"p":{"q":"r"}},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{},"tags":{"t":true},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{"\\ud800":"x"},"size":1}}',
        b'{"add":{"path":"a","partitionValues":{},"size":1,"clusteringProvider":"\\ud800"}}',
        b'{"add":{"path":"a","partitionValues":{},"size":1},"metaData":{}}',
    ],
)
@pytest.mark.parametrize("times", [1, _MANY])
def test_a_damaged_line_is_damage_however_many_there_are(line: bytes, times: int) -> None:
    data = (line + b"\n") * times + b" " * LARGE_COMMIT_BYTES + b"\n"
    assert parse_file_actions(data) is None
    with pytest.raises(CorruptLogError):
        decode_commit(data, version=1)


@pytest.mark.requirements("LOG-3")
@pytest.mark.parametrize(
    ("line", "paths"),
    [
        (b'{"add":{"path":"a","partitionValues":{},"size":1},"add":null}', []),
        (b'{"add":{"path":"a","partitionValues":{"p":"x","p":"y"},"size":1}}', ["a"]),
        (b'{"add":{"path":"a","partitionValues":{"p":"x"},"size":1,"partitionValues":{"p":"y"}}}', ["a"]),
    ],
)
@pytest.mark.parametrize("times", [1, _MANY])
def test_the_last_of_repeated_keys_is_used_for_any_number_of_lines(line: bytes, paths: list[str], times: int) -> None:
    """The result is that of a JSON parser."""
    adds = decode_commit((line + b"\n") * times + b" " * LARGE_COMMIT_BYTES + b"\n", version=1).adds
    assert set(adds["path"].to_pylist()) == set(paths)
    assert all(dict(values) == {"p": "y"} for values in adds["partitionValues"].to_pylist())


@pytest.mark.requirements("LOG-6")
def test_other_actions_on_the_line_of_a_file_are_kept() -> None:
    line = b'{"add":{"path":"a","partitionValues":{},"size":1},"txn":{"appId":"x","version":1}}\n'
    commit: CommitActions = decode_commit(line + b" " * LARGE_COMMIT_BYTES + b"\n", version=1)
    assert (commit.adds.num_rows, commit.transactions[0].app_id) == (1, "x")


@pytest.mark.requirements("LOG-3", "REC-6")
def test_lines_of_all_actions_may_be_in_any_order() -> None:
    rows = [{"path": f"f{n}", "partitionValues": {}, "size": n} for n in range(_MANY)]
    removes = [{"path": f"r{n}", "deletionTimestamp": n, "dataChange": True} for n in range(_MANY)]
    both = zip(_lines("add", rows).splitlines(), _lines("remove", removes).splitlines(), strict=True)
    mixed = b"\n".join(line for pair in both for line in pair)
    parsed = parse_file_actions(b'{"commitInfo":{}}\n' + mixed + b'\r\n{"txn":{"appId":"a","version":1}}')
    assert parsed is not None
    assert parsed.adds["path"].to_pylist() == [row["path"] for row in rows]
    assert parsed.removes["deletionTimestamp"].to_pylist() == list(range(_MANY))
    assert [line.strip() for line in parsed.others] == [b'{"commitInfo":{}}', b'{"txn":{"appId":"a","version":1}}']


def _vectored(number: int, **changes: object) -> Fields:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": f"ab{number:020}",
        "offset": number,
        "sizeInBytes": 40,
        "cardinality": 9,
    }
    return {
        "path": f"f{number}",
        "partitionValues": {"p": "1"},
        "size": number,
        "modificationTime": 7,
        "dataChange": True,
        "deletionVector": {name: value for name, value in (vector | changes).items() if value != "absent"},
    }


@pytest.mark.requirements("DV-1")
@pytest.mark.parametrize("changes", [{}, {"offset": None}, {"offset": "absent"}, {"unknown": "x"}, {"unknown": 5}])
def test_deletion_vectors_are_read_in_bulk(changes: Fields) -> None:
    assert _agree(_lines("add", [_vectored(number, **changes) for number in range(_MANY // 2)]))


@pytest.mark.requirements("DV-1", "DV-10")
@pytest.mark.parametrize(
    "changes",
    [{"offset": 2**31}, {"offset": "5"}, {"offset": True}, {"storageType": 5}, {"storageType": {"a": "b"}}],
)
def test_odd_deletion_vectors_are_left_to_the_other_parser(changes: Fields) -> None:
    assert parse_file_actions(_lines("add", [_vectored(number, **changes) for number in range(_MANY // 2)])) is None


@pytest.mark.requirements("LOG-6", "DV-1", "PART-1")
def test_lines_of_many_layouts_are_read_as_if_one_by_one() -> None:
    """Null partitions, vectors, tags, escapes, another order of keys, and no statistics."""
    rows: list[Fields] = []
    for number in range(2 * _MANY):
        row = _vectored(number) | {"stats": f'{{"numRecords":{number}}}'}
        row |= {"partitionValues": {"p": None}} if number % 3 == 0 else {}
        row |= {"stats": '{"maxValues":{"a":"\\"x\\""}}'} if number % 5 == 0 else {}
        row |= {"tags": {"t": f"{number}"}} if number % 7 == 0 else {}
        for name, often in (("deletionVector", 2), ("stats", 11)):
            if number % often == 0:
                del row[name]
        rows.append(dict(reversed(row.items())) if number % 13 == 0 else row)
    data = _lines("add", rows)
    found = parse_file_actions(data)
    assert found is not None
    expected = [
        row for first in range(0, len(rows), 100) for row in _line_by_line(_lines("add", rows[first : first + 100]))
    ]
    assert sorted((_plain(row) for row in found.adds.to_pylist()), key=repr) == sorted(expected, key=repr)
