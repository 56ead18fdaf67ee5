"""Actions as JSON lines."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.commit_json import (
    LARGE_COMMIT_BYTES,
    CommitActions,
    decode_commit,
    decode_commit_info,
    decode_commits,
    encode_action,
    encode_commit,
)
from cm_delta_dagster.protocol.actions.file_columns import table_to_adds, table_to_removes
from cm_delta_dagster.protocol.actions.paths import flaw_of_log_path
from cm_delta_dagster.protocol.commits.commit_validation import encode_checked
from tests.support.actions import add_file as _add

_TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["2024-01-01", "2024-01-01 10:00:00", "1970-01-01T00:00:00.123456Z", "1", "true", "", 'q"\\\n\u2028', "ü/%20"]
)
_KEY = st.sampled_from(["p", "q", "day", "päth"])
_LONG = st.integers(0, 2**63 - 1)
_VECTOR = st.builds(
    DeletionVectorDescriptor,
    storage_type=st.sampled_from("upi"),
    path_or_inline_dv=_TEXT,
    size_in_bytes=st.integers(0, 2**31 - 1),
    cardinality=_LONG,
    offset=st.none() | st.integers(0, 2**31 - 1),
)
_PATH = _TEXT.filter(lambda path: flaw_of_log_path(path) is None)
_ADD = st.builds(
    AddFile,
    path=_PATH,
    partition_values=st.dictionaries(_KEY, st.none() | _TEXT),
    size=_LONG,
    modification_time=_LONG,
    data_change=st.booleans(),
    stats=st.none() | _TEXT,
    tags=st.none() | st.dictionaries(_KEY, _TEXT),
    deletion_vector=st.none() | _VECTOR,
    base_row_id=st.none() | _LONG,
    default_row_commit_version=st.none() | _LONG,
    clustering_provider=st.none() | _TEXT,
)
_REMOVE = st.builds(
    RemoveFile,
    path=_PATH,
    data_change=st.booleans(),
    deletion_timestamp=st.none() | _LONG,
    extended_file_metadata=st.none() | st.booleans(),
    partition_values=st.none() | st.dictionaries(_KEY, st.none() | _TEXT),
    size=st.none() | _LONG,
    tags=st.none() | st.dictionaries(_KEY, _TEXT),
    deletion_vector=st.none() | _VECTOR,
)
_INFO = st.builds(
    CommitInfo,
    in_commit_timestamp=st.none() | _LONG,
    txn_id=st.none() | _TEXT,
    operation=_TEXT,
    operation_parameters=st.dictionaries(_TEXT, _TEXT, max_size=2),
    is_blind_append=st.none() | st.booleans(),
    tags=st.none() | st.dictionaries(_TEXT, _TEXT, max_size=2),
    extra=st.dictionaries(st.sampled_from(["x", "y"]), st.none() | _LONG | st.lists(_TEXT, max_size=2), max_size=2),
)
_PROTOCOL = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("a",), writer_features=("a", "b"))
_METADATA = Metadata(
    id="i",
    schema_string='{"type":"struct","fields":[{"name":"p","type":"string","nullable":true,"metadata":{}}]}',
    partition_columns=("p",),
    configuration={"k": "v"},
    name="n",
    created_time=3,
)
_SMALL: tuple[Action, ...] = (
    _PROTOCOL,
    _METADATA,
    SetTransaction(app_id="a", version=2, last_updated=3),
    SetTransaction(app_id="b", version=-1),
    DomainMetadata(domain="d", configuration="{}", removed=True),
    AddCdcFile(path="_change_data/x", partition_values={"p": None}, size=9, tags={"t": "v"}),
)


def _line(key: str, **body: Any) -> bytes:
    return json.dumps({key: body}).encode() + b"\n"


def _known(values: dict[str, str | None] | None) -> dict[str, str] | None:
    """Absent values and null values have the same meaning, so they compare equal here."""
    return None if values is None else {key: value for key, value in sorted(values.items()) if value is not None}


def _comparable(actions: CommitActions) -> tuple[Any, ...]:
    rows: list[list[dict[str, Any]]] = []
    for table in (actions.adds, actions.removes):
        found = table.to_pylist()
        for row in found:
            for name in ("partitionValues", "tags"):
                row[name] = None if row[name] is None else _known(dict(row[name]))
        rows.append(found)
    return (
        *rows,
        actions.commit_info,
        actions.protocol,
        actions.metadata,
        actions.transactions,
        actions.domains,
        actions.cdc,
    )


@pytest.mark.requirements("LOG-3", "FILE-1", "META-1", "PROT-1", "TXN-1", "DOM-2", "CDCA-1", "CDCA-2", "CINFO-1")
@settings(deadline=None)
@given(_INFO, st.lists(_ADD, max_size=4, unique_by=lambda add: add.path), st.lists(_REMOVE, max_size=4))
def test_a_commit_survives_the_conversion_to_json_and_back(
    info: CommitInfo, adds: list[AddFile], removes: list[RemoveFile]
) -> None:
    data = encode_commit([info, *_SMALL, *adds, *removes])
    decoded = decode_commit(data, version=4)
    assert len(data.splitlines()) == len(data.split(b"\n")) - 1 == 1 + len(_SMALL) + len(adds) + len(removes)
    assert table_to_adds(decoded.adds) == adds
    assert table_to_removes(decoded.removes) == removes
    assert (decoded.version, decoded.commit_info) == (4, info)
    assert (decoded.protocol, decoded.metadata, decoded.transactions) == (_SMALL[0], _SMALL[1], _SMALL[2:4])
    assert (decoded.domains, decoded.cdc) == (_SMALL[4:5], _SMALL[5:6])


@pytest.mark.requirements("LOG-3", "LOG-6")
@settings(deadline=None)
@given(st.lists(_ADD | _REMOVE, max_size=6, unique_by=lambda file: (type(file), file.path)), st.randoms())
def test_the_parser_for_large_commits_agrees_with_the_one_for_small(
    files: list[AddFile | RemoveFile], random: Any
) -> None:
    """Columns, keys that only some files have, texts that look like dates."""
    lines = [encode_action(action) for action in (*_SMALL, *files)]
    random.shuffle(lines)
    data = "\n".join(lines).encode()
    assert _comparable(commit_json._decode_large(data, version=1)) == _comparable(decode_commit(data, version=1))


@pytest.mark.requirements("LOG-3", "LOG-6")
@settings(deadline=None)
@given(st.lists(st.lists(_ADD | _REMOVE, max_size=4, unique_by=lambda file: (type(file), file.path)), max_size=5))
def test_commits_parsed_together_equal_commits_parsed_alone(commits: list[list[AddFile | RemoveFile]]) -> None:
    contents = [
        (version, encode_commit([CommitInfo(txn_id=str(version)), *files])) for version, files in enumerate(commits)
    ]
    together = decode_commits(contents)
    alone = [decode_commit(data, version=version) for version, data in contents]
    assert [commit.version for commit in together] == list(range(len(commits)))
    assert [_comparable(commit) for commit in together] == [_comparable(commit) for commit in alone]
    assert [commit.has_data_change for commit in together] == [commit.has_data_change for commit in alone]


@pytest.mark.requirements("LOG-6", "CM-R9")
@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b'{"add":{"path":5}}',
        b'{"add":{"path":"x","size":"much"}}',
        b'{"remove":{"path":"x","deletionVector":{"storageType":"u"}}}',
        b'{"txn":{"appId":"a"}}',
    ],
)
def test_a_broken_commit_is_named_when_several_are_parsed_together(bad: bytes) -> None:
    good = encode_commit([CommitInfo(txn_id="t"), _add("a")])
    with pytest.raises(CorruptLogError, match="ersion 6 "):
        decode_commits([(5, good), (6, bad), (7, good)])


@pytest.mark.requirements("PART-3", "PART-5")
def test_a_very_large_commit_keeps_texts_that_look_like_dates() -> None:
    """Also under a key that neither the first nor the last line has."""
    adds = [
        AddFile(
            path=f"f{number}",
            partition_values={"day": "2024-01-01", "late": "2024-01-01 00:00:00"}
            if number == 3000
            else {"day": "2024-01-01"},
            size=number,
            modification_time=0,
            stats='{"numRecords":1}' + " " * 60,
        )
        for number in range(4000)
    ]
    data = encode_commit([CommitInfo(operation="WRITE"), *adds])
    assert len(data) > LARGE_COMMIT_BYTES
    decoded = sorted(table_to_adds(decode_commit(data, version=0).adds), key=lambda add: add.size)
    assert [add.path for add in decoded] == [add.path for add in adds]
    assert dict(decoded[3000].partition_values) == {"day": "2024-01-01", "late": "2024-01-01 00:00:00"}
    assert {add.partition_values["day"] for add in decoded} == {"2024-01-01"}


@pytest.mark.requirements("LOG-6")
def test_a_large_commit_ignores_unknown_fields() -> None:
    """Even if their types differ from line to line."""
    known = {
        "path": "x",
        "partitionValues": {"p": "1"},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
        "stats": " " * 200,
    }
    lines = [_line("add", **known | {"path": f"f{n}", "new": n if n % 2 else {"a": ["b"]}}) for n in range(2000)]
    data = b"".join([*lines, _line("future", x=[1, {}])])
    assert len(data) > LARGE_COMMIT_BYTES
    decoded = decode_commit(data, version=0)
    assert decoded.adds.column("path").to_pylist() == [f"f{n}" for n in range(2000)]


@pytest.mark.requirements("LOG-3")
@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"\r\n", b"\n  \n"])
def test_empty_lines_and_a_missing_last_newline_are_tolerated(ending: bytes) -> None:
    decoded = decode_commit(b"\n" + encode_commit(_SMALL).rstrip() + ending, version=1)
    assert decoded.metadata == _METADATA


@pytest.mark.requirements("LOG-6", "REC-12")
def test_unknown_actions_and_fields_are_ignored() -> None:
    data = (
        _line("newAction", a=1)
        + _line("txn", appId="a", version=1, new={"x": []})
        + b'{"add":null,"remove":{"path":"r","dataChange":true,"future":1}}\n'
        + _line("checkpointMetadata", version=3)
    )
    decoded = decode_commit(data, version=1)
    assert decoded.transactions == (SetTransaction(app_id="a", version=1),)
    assert table_to_removes(decoded.removes) == [RemoveFile(path="r")]


@pytest.mark.requirements("FILE-1", "FILE-9")
def test_the_smallest_remove_parses() -> None:
    (remove,) = table_to_removes(decode_commit(_line("remove", path="a", dataChange=False), version=0).removes)
    assert remove == RemoveFile(path="a", data_change=False)


@pytest.mark.requirements("LOG-3", "PROT-2")
@pytest.mark.parametrize(
    "data",
    [
        b'{"add":',
        b"[]",
        b"1",
        b"\xff",
        b'{"add":1}',
        _line("add", size=1),
        _line("add", path=None, size=1),
        _line("add", path="a", partitionValues=3, size=1),
        _line("add", path="a", partitionValues={}, size="x"),
        _line("protocol", readerVersion=1, writerVersion=2),
        _line("protocol", minReaderVersion=1),
        _line("metaData", schemaString="{}"),
        _line("metaData", id="i", schemaString=3),
        _line("txn", version=1),
        _line("domainMetadata", configuration=""),
    ],
)
def test_a_broken_line_is_a_corrupt_log_that_names_the_version(data: bytes) -> None:
    """Also the short protocol names (ruling X7)."""
    with pytest.raises(CorruptLogError, match="17"):
        decode_commit(data, version=17)


@pytest.mark.requirements("CINFO-1")
def test_any_object_is_a_legal_commit_info() -> None:
    """Nested values are kept, and none of them fails."""
    body = {
        "timestamp": "yesterday",
        "inCommitTimestamp": "later",
        "isBlindAppend": "true",
        "operation": "MERGE",
        "operationParameters": {"partitionBy": ["a"], "predicate": "x", "n": 1, "flag": True},
        "clusterId": {"deep": [1, None, {"x": "y"}]},
        "readVersion": None,
    }
    info = decode_commit(_line("commitInfo", **body), version=1).commit_info
    assert info is not None
    assert (info.timestamp, info.in_commit_timestamp, info.is_blind_append) == (None, None, None)
    assert info.operation_parameters == {"partitionBy": '["a"]', "predicate": "x", "n": "1", "flag": "true"}
    assert info.extra["clusterId"] == body["clusterId"]
    again = json.loads(encode_action(info))["commitInfo"]
    assert {key: again[key] for key in ("timestamp", "inCommitTimestamp", "isBlindAppend", "clusterId")} == {
        key: body[key] for key in ("timestamp", "inCommitTimestamp", "isBlindAppend", "clusterId")
    }


@pytest.mark.requirements("ICT-12", "ICT-3")
def test_the_commit_info_is_read_without_parsing_the_rest() -> None:
    info = CommitInfo(in_commit_timestamp=5, txn_id="t", operation="WRITE")
    assert decode_commit_info(encode_commit([info]) + b"{broken") == info
    assert decode_commit_info(encode_commit([_PROTOCOL, info])) is None
    assert decode_commit_info(b"") is None


@pytest.mark.requirements("LOG-3")
@pytest.mark.parametrize("text", ["\ud800", "\udfff x"])
def test_text_that_is_not_unicode_is_refused_before_it_is_written(text: str) -> None:
    with pytest.raises(IllegalCommitError):
        encode_commit([DomainMetadata(domain="d", configuration=text)])


@pytest.mark.requirements("LOG-3")
def test_a_number_that_json_lacks_is_refused_before_it_is_written() -> None:
    with pytest.raises(IllegalCommitError):
        encode_action(CommitInfo(extra={"x": float("nan")}))


_INFO_ACTION = CommitInfo(operation="WRITE")
_DV = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=1, cardinality=1, offset=1
)


@pytest.mark.requirements("LOG-8", "FILE-6")
@pytest.mark.parametrize(
    "actions",
    [
        (_add("a"), _add("a")),
        (_add("a"), _add("a", _DV)),
        (RemoveFile(path="a"), RemoveFile(path="a", deletion_vector=_DV)),
        (_add("a"), RemoveFile(path="a")),
        (_add("a", _DV), RemoveFile(path="a", deletion_vector=_DV)),
        (_METADATA, _METADATA),
        (_PROTOCOL, _PROTOCOL),
        (SetTransaction(app_id="a", version=1), SetTransaction(app_id="a", version=2)),
        (DomainMetadata(domain="d", configuration=""), DomainMetadata(domain="d", configuration="", removed=True)),
        (CommitInfo(),),
    ],
)
def test_actions_that_reconcile_with_each_other_are_refused(actions: tuple[Action, ...]) -> None:
    with pytest.raises(IllegalCommitError, match="two actions for"):
        encode_checked([_INFO_ACTION, *actions])


@pytest.mark.requirements("FILE-5", "CDCA-3")
@pytest.mark.parametrize(
    "actions",
    [
        (),
        (_add("a"), _add("b"), RemoveFile(path="c")),
        (_add("a", _DV), RemoveFile(path="a")),
        (_add("a"), AddCdcFile(path="a", partition_values={}, size=1)),
        (SetTransaction(app_id="a", version=1), SetTransaction(app_id="b", version=1)),
    ],
)
def test_actions_that_do_not_reconcile_with_each_other_pass(actions: tuple[Action, ...]) -> None:
    encode_checked([_INFO_ACTION, *actions])


@pytest.mark.requirements("ICT-3")
@pytest.mark.parametrize("actions", [(), (_add("a"),), (_add("a"), _INFO_ACTION)])
def test_a_commit_without_its_commit_info_first_is_refused(actions: tuple[Action, ...]) -> None:
    with pytest.raises(IllegalCommitError, match="first action is not commitInfo"):
        encode_checked(actions)
