"""Commits that a writer must not propose: every case of the table, as lines and as actions."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.errors import IllegalCommitError
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
from cm_delta_dagster.protocol.actions.file_columns import LAST_MS
from cm_delta_dagster.protocol.commits.commit_validation import checked_line, encode_checked
from tests.support.unreadable_commits import (
    CASES,
    DEEP,
    METADATA,
    REFUSED,
    TIMED,
    Reading,
    UnreadableCommit,
    flaw_of,
    line_of,
    vector_of,
)

GOOD = UnreadableCommit(name="good", action="", field="", reading=Reading.WORKS)
INFO = CommitInfo(in_commit_timestamp=1, txn_id="t", operation="WRITE")
ADD = AddFile(path="a.parquet", partition_values={}, size=1, modification_time=1)
REMOVE = RemoveFile(path="a.parquet")
CDC = AddCdcFile(path="a.parquet", partition_values={}, size=1)
VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=40, cardinality=2, offset=1
)
SCHEMA = json.loads(METADATA["schemaString"])
DEFINITION = Metadata(id="i", schema_string=SCHEMA, partition_columns=("day",), configuration=TIMED)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_proposal_of_each_case_is_refused_with_action_and_field(case: UnreadableCommit) -> None:
    flaw = flaw_of(case.data(txn_id="t", timestamp_ms=1))
    assert flaw is not None
    if "nested deeply" not in case.name or case.action in ("add", "remove", "metaData"):
        assert not flaw.action or (flaw.action, flaw.field) == (case.action, case.field)
    assert flaw.action or not case.field or "nested deeply" in case.name
    assert str(flaw)


@pytest.mark.parametrize("case", [case for case in CASES if case not in REFUSED], ids=lambda case: case.name)
def test_what_every_reader_ignores_is_ratified_and_not_written(case: UnreadableCommit) -> None:
    assert flaw_of(case.data(txn_id="t", timestamp_ms=1)) is None
    if case.action == "add":
        stats = json.loads(case.line)["add"]["stats"]
        with pytest.raises(IllegalCommitError, match="the field stats of the action add"):
            encode_checked([INFO, _with(ADD, stats=stats)])


@pytest.mark.requirements("LOG-3")
def test_lines_after_a_blank_line_are_checked_too() -> None:
    """Readers ignore blank lines."""
    lines = (line_of("add"), "", " ", line_of("add", path='"b2.parquet"', size='"1"'))
    flaw = flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=lines))
    assert flaw is not None and (flaw.action, flaw.field, flaw.line) == ("add", "size", 5)
    assert flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=lines[:3])) is None


_REQUIRED = {
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange"),
    "remove": ("path", "dataChange"),
    "cdc": ("path", "partitionValues", "size"),
    "txn": ("appId", "version"),
    "domainMetadata": ("domain", "configuration", "removed"),
    "metaData": ("id", "format", "schemaString", "partitionColumns", "configuration"),
    "protocol": ("minReaderVersion", "minWriterVersion"),
}


@pytest.mark.requirements("META-1", "CDCA-1", "TXN-1", "DOM-1")
@pytest.mark.parametrize("action", _REQUIRED)
def test_an_action_without_a_required_field_is_refused(action: str) -> None:
    for field in _REQUIRED[action]:
        for text in (None, "null"):
            flaw = flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=(line_of(action, **{field: text}),)))
            assert flaw is not None and (flaw.action, flaw.field) == (action, field), field


def test_long_fields_have_64_bits() -> None:
    for size in (-(2**63), -2, 2**63 - 1):
        assert flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=(line_of("remove", size=str(size)),))) is None
    for size in (-(2**63) - 1, 2**63):
        flaw = flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=(line_of("remove", size=str(size)),)))
        assert flaw is not None and (flaw.action, flaw.field) == ("remove", "size")


@pytest.mark.requirements("ICT-3")
def test_the_time_of_a_commit_is_in_the_years_1970_to_9999() -> None:
    for timestamp_ms in (0, 1, LAST_MS):
        assert flaw_of(GOOD.data(txn_id="t", timestamp_ms=timestamp_ms)) is None
        encode_checked([replace(INFO, in_commit_timestamp=timestamp_ms)])
    for timestamp_ms in (-1, LAST_MS + 1):
        with pytest.raises(IllegalCommitError, match="inCommitTimestamp"):
            encode_checked([replace(INFO, in_commit_timestamp=timestamp_ms)])


def test_a_proposal_with_every_action_passes() -> None:
    lines = tuple(line_of(name) for name in ("protocol", "metaData", "add", "remove", "cdc", "txn", "domainMetadata"))
    assert flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=lines)) is None


@pytest.mark.parametrize(
    "line",
    [
        line_of("add", path='"a b/%C3%A9/caf\\u00e9.parquet"'),
        line_of("add", path='"s3://bucket/x/y.parquet"', partitionValues='{"day":null}', stats=None, tags='{"a":null}'),
        line_of("add", stats=json.dumps('{"minValues":{"d":' + "9" * 38 + "}}")),
        line_of("add", deletionVector=vector_of(storageType='"p"', pathOrInlineDv='"file:///a/b.bin"', offset=None)),
        line_of(
            "add",
            deletionVector=vector_of(
                storageType='"i"', pathOrInlineDv='"wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"'
            ),
        ),
        line_of("add", unknown='{"a":[1,2.5,null,"\\u00e9"]}'),
        line_of("remove", deletionTimestamp=None, size=None),
        line_of("remove", path='"a/"', size="-1", baseRowId="-5"),
        line_of("remove", path='"_delta_log/a%00b"', deletionVector=vector_of(storageType='"x"', offset="-5")),
        line_of("metaData", createdTime="1700000000000000000"),
        line_of("txn", version="-1", lastUpdated=None),
        '{"action of a later protocol":{"a":1}}',
    ],
)
def test_a_valid_line_passes(line: str) -> None:
    assert flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=(line,))) is None


@pytest.mark.parametrize("field", ["txnId", "inCommitTimestamp"])
def test_a_proposal_without_its_identity_is_refused(field: str) -> None:
    case = replace(GOOD, info={field: "null"})
    flaw = flaw_of(case.data(txn_id="t", timestamp_ms=1))
    assert flaw is not None and (flaw.action, flaw.field, flaw.why) == ("commitInfo", field, "is missing")


@pytest.mark.parametrize("data", [b"", b"\n", line_of("add").encode(), b"\xff\n", b"\xef\xbb\xbf{}\n"])
def test_a_proposal_without_commit_info_is_refused(data: bytes) -> None:
    assert flaw_of(data) is not None


def test_one_file_twice_in_a_proposal_is_refused() -> None:
    flaw = flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=(line_of("add"), line_of("add"))))
    assert flaw is not None and "b.parquet" in flaw.why


def _with(action: Any, **fields: Any) -> Action:
    return replace(action, **fields)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("action", "name", "field"),
    [
        (_with(ADD, path="x/../f"), "add", "path"),
        (_with(ADD, path="../x"), "add", "path"),
        (_with(ADD, path="a%zz"), "add", "path"),
        (_with(ADD, path="/"), "add", "path"),
        (_with(ADD, size=-1), "add", "size"),
        (_with(ADD, size=1.0), "add", "size"),
        (_with(ADD, size=2**63), "add", "size"),
        (_with(ADD, modification_time=True), "add", "modificationTime"),
        (_with(ADD, stats="{"), "add", "stats"),
        (_with(ADD, partition_values={"p": 5}), "add", "partitionValues"),
        (_with(ADD, deletion_vector=replace(VECTOR, path_or_inline_dv="x")), "add", "deletionVector"),
        (_with(ADD, base_row_id=-1), "add", "baseRowId"),
        (_with(REMOVE, path="."), "remove", "path"),
        (_with(REMOVE, tags={1: "x"}), "remove", "tags"),
        (_with(CDC, path="a%ff"), "cdc", "path"),
        (SetTransaction(app_id="a", version=100.0), "txn", "version"),  # type: ignore[arg-type]
        (SetTransaction(app_id="", version=1), "txn", "appId"),
        (DomainMetadata(domain="delta.rowTracking", configuration="{"), "domainMetadata", "configuration"),
        (_with(DEFINITION, schema_string="no JSON"), "metaData", "schemaString"),
        (_with(DEFINITION, partition_columns=("nowhere",)), "metaData", "partitionColumns"),
        (_with(DEFINITION, format_provider="csv"), "metaData", "format"),
        (Protocol(min_reader_version=0, min_writer_version=1), "protocol", "minReaderVersion"),
        (Protocol(min_reader_version=1, min_writer_version=7), "protocol", "writerFeatures"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_action_is_not_encoded(action: Action, name: str, field: str) -> None:
    with pytest.raises(IllegalCommitError, match=f"the field {field} of the action {name} ") as caught:
        encode_checked([INFO, action])
    assert "Nothing was written" in str(caught.value)
    with pytest.raises(IllegalCommitError, match=f"the field {field} of the action {name} "):
        checked_line(action)


@pytest.mark.parametrize(
    "fields",
    [
        {"in_commit_timestamp": "2026"},
        {"in_commit_timestamp": -1},
        {"in_commit_timestamp": 2**62},
        {"extra": {"inCommitTimestamp": "x"}},
        {"extra": {"x": float("nan")}},
        {"extra": {"x": "\ud800"}},
        {"extra": {"x": json.loads(DEEP[900:1100])}},
        {"extra": {"x": 10**2000}},
        {"tags": {"a": 5}},
    ],
    ids=str,
)
def test_invalid_commit_info_is_not_encoded(fields: dict[str, Any]) -> None:
    with pytest.raises(IllegalCommitError, match="the action commitInfo"):
        encode_checked([_with(INFO, **fields)])


def test_valid_actions_are_encoded_and_pass_as_lines() -> None:
    data = encode_checked([INFO, DEFINITION, _with(ADD, deletion_vector=VECTOR), _with(REMOVE, path="b"), CDC])
    assert flaw_of(data) is None


def test_a_protocol_whose_lists_contradict_each_other_is_refused() -> None:
    line = line_of("protocol", readerFeatures='["catalogManaged","deletionVectors"]')
    flaw = flaw_of(GOOD.data(txn_id="t", timestamp_ms=1, good=(line,)))
    assert flaw is not None and (flaw.action, flaw.field) == ("protocol", "readerFeatures")
    assert "'deletionVectors', which writerFeatures lacks" in flaw.why
