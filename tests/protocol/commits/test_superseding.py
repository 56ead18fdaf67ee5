"""The commit that takes the place of one that no reader can use: what stays, what is taken back, and what it says of it."""

import json

import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, decode_commit
from cm_delta_dagster.protocol.commits.superseding import (
    CommitIdentity,
    SupersedingCommit,
    flaws_of_rules,
    readable_actions,
    superseding_commit,
)
from tests.support.unreadable_commits import CASES, Reading, flaw_of, line_of, vector_of

IDENTITY = CommitIdentity(version=3, txn_id="t", in_commit_timestamp=5)
INFO = '{"commitInfo":{"inCommitTimestamp":5,"timestamp":5,"txnId":"t","operation":"MERGE"}}'
BAD_ADD = line_of("add", path='"../x"')
BAD_TXN = line_of("txn", version='"x"')
ROW_IDS = line_of("domainMetadata", domain='"delta.rowTracking"', configuration='"{\\"rowIdHighWaterMark\\":7}"')
DOMAIN = line_of("domainMetadata")
NOT_JSON = '{"add":'


def superseded(*lines: str, info: str | None = INFO) -> SupersedingCommit:
    data = "".join(f"{line}\n" for line in ((info, *lines) if info else lines))
    return superseding_commit(data.encode(), IDENTITY)


def names_of(commit: SupersedingCommit) -> list[str]:
    """The actions of the new content, without commitInfo."""
    lines = [json.loads(line) for line in commit.data.splitlines()]
    assert list(lines[0]) == ["commitInfo"]
    return [next(iter(line)) for line in lines[1:]]


def info_of(commit: SupersedingCommit) -> dict[str, object]:
    return dict(json.loads(commit.data.splitlines()[0])["commitInfo"])


def test_a_superseding_commit_of_what_no_reader_can_use_is_one_that_a_writer_may_propose() -> None:
    for case in CASES:
        commit = superseding_commit(case.data(txn_id="t", timestamp_ms=5), IDENTITY)
        assert info_of(commit)["txnId"] == "t" and info_of(commit)["inCommitTimestamp"] == 5, case.name
        decode_commit(commit.data, version=3)
        if case.reading is Reading.FAILS:
            assert flaw_of(commit.data) is None, case.name


@pytest.mark.parametrize(
    ("lines", "kept", "has_unknown_lines"),
    [
        ((line_of("add"), BAD_ADD), ["add"], False),
        ((line_of("add"), BAD_ADD, line_of("txn")), ["add", "txn"], False),
        ((line_of("add"), BAD_TXN, line_of("remove")), ["add", "remove"], False),
        ((line_of("add"), line_of("metaData"), line_of("domainMetadata", domain="5")), ["add", "metaData"], False),
        ((line_of("add"), BAD_ADD, line_of("remove")), [], False),
        ((line_of("add"), BAD_ADD, line_of("cdc")), [], False),
        ((line_of("add"), BAD_ADD, line_of("metaData")), [], False),
        ((line_of("add", deletionVector=vector_of()), BAD_ADD), [], False),
        ((line_of("add"), line_of("remove", path='"../x"'), line_of("txn")), [], False),
        ((line_of("add"), line_of("metaData", schemaString="5")), [], False),
        ((line_of("add"), line_of("metaData"), line_of("metaData")), [], False),
        ((line_of("protocol"), ROW_IDS, DOMAIN, line_of("remove"), BAD_ADD), ["protocol", "domainMetadata"], False),
        ((line_of("add"), line_of("protocol", minReaderVersion='"3"')), [], False),
        ((line_of("add"), NOT_JSON), [], True),
        ((line_of("add"), "[]"), [], True),
    ],
    ids=str,
)  # fmt: skip
def test_what_stays_is_what_the_commit_can_do_without_the_rest(
    lines: tuple[str, ...], kept: list[str], has_unknown_lines: bool
) -> None:
    commit = superseded(*lines)
    assert names_of(commit) == kept
    assert (commit.num_kept, len(commit.taken_back)) == (len(kept), len(lines) - len(kept))
    assert commit.has_unknown_lines is has_unknown_lines
    assert commit.data_change is ("add" in kept or "metaData" in kept)


def test_each_action_that_is_taken_back_is_named_with_its_reason() -> None:
    commit = superseded(line_of("add"), line_of("txn"), line_of("remove"), BAD_ADD)
    good, txn, remove, bad = commit.taken_back
    assert good == "add of 'b.parquet', because the commit is atomic"
    assert txn == "txn, because the commit is atomic" and remove.startswith("remove of 'old.parquet', ")
    assert bad.startswith("add of '../x' (") and not bad.endswith(".)")
    assert info_of(commit)["tags"] == {"takenBack": "; ".join(commit.taken_back)}
    assert superseded(NOT_JSON).taken_back[0].startswith("a line (line 2 is not JSON: ")


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, "; and 1 more"), (7, "; and 2 more")])
def test_a_summary_lists_the_first_five(count: int, more: str) -> None:
    commit = superseded(*([BAD_TXN] * count))
    assert commit.summary == "; ".join(commit.taken_back[:5]) + more


def test_without_a_copy_everything_is_taken_back() -> None:
    commit = superseding_commit(None, IDENTITY)
    assert commit.taken_back == ("all of it, because no copy of the commit exists",)
    assert (commit.num_kept, commit.data_change, names_of(commit)) == (0, False, [])
    assert info_of(commit)["operation"] == "WRITE"


def test_commit_info_keeps_its_valid_fields_and_gets_the_identity_of_the_record() -> None:
    fields = {
        "inCommitTimestamp": 4,
        "timestamp": 4,
        "txnId": "other",
        "operation": "MERGE",
        "readVersion": "1",
        "userName": None,
        "tags": {"a": "b"},
    }
    commit = superseded(line_of("add"), info=json.dumps({"commitInfo": fields}))
    assert commit.taken_back == (
        "commitInfo.readVersion",
        "commitInfo.inCommitTimestamp, which becomes 5 as in the catalog",
        "commitInfo.txnId, which becomes 't' as in the catalog",
    )
    expected = {"inCommitTimestamp": 5, "timestamp": 5, "txnId": "t", "operation": "MERGE"}
    assert info_of(commit) == expected | {"tags": {"a": "b", "takenBack": "; ".join(commit.taken_back)}}
    assert superseded(line_of("add"), info=None).taken_back == ("commitInfo, which the commit lacks",)


def test_whole_numbers_in_decimal_form_stay_as_integers() -> None:
    exact, beyond = superseded(line_of("txn", version="1e2")), superseded(line_of("txn", version="1e300"))
    assert json.loads(exact.data.splitlines()[1])["txn"]["version"] == 100 and exact.num_kept == 1
    assert beyond.num_kept == 0


def test_blank_lines_and_empty_actions_are_no_actions() -> None:
    commit = superseded("", line_of("add")[:-1] + ',"remove":null}', "  ")
    assert (names_of(commit), commit.taken_back) == (["add"], ())


def test_the_readable_file_actions_of_a_commit_are_found() -> None:
    lines = (INFO, line_of("add"), BAD_ADD, line_of("remove"), line_of("metaData"))
    actions = readable_actions("".join(f"{line}\n" for line in lines).encode(), version=3)
    assert isinstance(actions, CommitActions) and actions.metadata is None
    assert actions.adds["path"].to_pylist() == ["b.parquet"] and actions.removes["path"].to_pylist() == ["old.parquet"]
    with pytest.raises(CorruptLogError, match="Version 3 cannot be read: line 2 is not JSON") as caught:
        readable_actions(f"{INFO}\n{NOT_JSON}\n".encode(), version=3)
    assert caught.value.version == 3


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (line_of("protocol"), None),
        (line_of("protocol", writerFeatures=None), "the protocol action is not valid: "),
        (line_of("protocol", readerFeatures="[]", writerFeatures="[]"), "does not list the feature catalogManaged"),
        (ROW_IDS, None),
        (line_of("domainMetadata"), None),
        (ROW_IDS.replace(":7", f":{2**63 - 2}"), None),
        (ROW_IDS.replace(":7", f":{2**63 - 1}"), "so that no row ids are left"),
    ],
)
def test_actions_from_which_no_client_can_continue_are_flaws(line: str, flaw: str | None) -> None:
    found = list(flaws_of_rules(decode_commit(f"{INFO}\n{line}\n".encode(), version=3)))
    assert (found == []) if flaw is None else (len(found) == 1 and flaw in found[0])
