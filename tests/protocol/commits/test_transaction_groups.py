"""The action that names all commits of a transaction over several tables: its text, its checks, and that readers ignore it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import TRANSACTION_TAG, CommitInfo, GroupParticipant, TransactionGroup
from cm_delta_dagster.protocol.actions.commit_json import (
    LARGE_COMMIT_BYTES,
    CommitActions,
    decode_commit,
    encode_commit,
)
from cm_delta_dagster.protocol.commits.commit_content import content_of
from cm_delta_dagster.protocol.commits.commit_fingerprint import fingerprint
from cm_delta_dagster.protocol.commits.proposal_checks.content import check_content
from cm_delta_dagster.protocol.commits.transaction_groups import flaw_of_groups
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay
from cm_delta_dagster.protocol.log.log_compaction import compact
from cm_delta_dagster.protocol.log.version_checksum import build_checksum, encode
from tests.support.actions import add_file
from tests.support.unreadable_commits import line_of

ROOT = "memory://lake/t"
GROUP = TransactionGroup(
    transaction_id="b6c03b3a",
    participants=(
        GroupParticipant(table_id="one", proposed_version=1),
        GroupParticipant(table_id="two", proposed_version=77),
    ),
    coordinating_catalog="catalog-1",
)
FIELDS = {
    "transactionId": "b6c03b3a",
    "participants": [{"tableId": "one", "proposedVersion": 1}, {"tableId": "two", "proposedVersion": 77}],
    "coordinatingCatalog": "catalog-1",
}
MANY = tuple(line_of("add", path=f'"part-{number}.parquet"') for number in range(2000))
START = decode_commit("\n".join(map(line_of, ("protocol", "metaData"))).encode(), version=0)


def lines(group: Any, *, tag: str | None = "b6c03b3a", more: tuple[str, ...] = ()) -> bytes:
    """A commit of a transaction over several tables, as another writer may write it."""
    info = {"txnId": "t", "inCommitTimestamp": 1, "tags": {} if tag is None else {TRANSACTION_TAG: tag}}
    first = [json.dumps({"commitInfo": info}), json.dumps({"transactionGroup": group})]
    return "\n".join([*first, *more, line_of("add"), ""]).encode()


@pytest.mark.requirements("MTX-1")
def test_a_group_survives_the_conversion_to_json_and_back_with_unknown_fields() -> None:
    group = replace(
        GROUP,
        participants=(replace(GROUP.participants[0], extra={"role": "fact"}), GROUP.participants[1]),
        extra={"expires": 5},
    )
    data = encode_commit([CommitInfo(txn_id="t", tags=GROUP.tags), group, add_file("a")])
    written = json.loads(data.splitlines()[1])
    assert written == {
        "transactionGroup": {
            **FIELDS,
            "participants": [{"tableId": "one", "proposedVersion": 1, "role": "fact"}, FIELDS["participants"][1]],
            "expires": 5,
        }
    }
    decoded = decode_commit(data, version=1)
    assert decoded.transaction_group == group and not decoded.has_other_lines
    large = decode_commit(data + "\n".join(MANY).encode(), version=1)
    assert large.adds.num_rows == len(MANY) + 1 and large.transaction_group == group and not large.has_other_lines
    assert [group.proposed_version(table_id) for table_id in ("one", "two", "three")] == [1, 77, None]


MALFORMED = {
    "no object": 5,
    "without an id": {name: value for name, value in FIELDS.items() if name != "transactionId"},
    "a number as id": {**FIELDS, "transactionId": 5},
    "participants no array": {**FIELDS, "participants": {"one": 1}},
    "a participant no object": {**FIELDS, "participants": ["one", "two"]},
    "a participant without a version": {**FIELDS, "participants": [{"tableId": "one"}, FIELDS["participants"][1]]},
    "without a catalog": {**FIELDS, "coordinatingCatalog": None},
}
REFUSED = {
    **MALFORMED,
    "an empty id": {**FIELDS, "transactionId": ""},
    "a negative version": {
        **FIELDS,
        "participants": [{"tableId": "one", "proposedVersion": -1}, FIELDS["participants"][1]],
    },
    "one participant": {**FIELDS, "participants": FIELDS["participants"][:1]},
    "a table twice": {**FIELDS, "participants": [FIELDS["participants"][0]] * 2},
}


@pytest.mark.requirements("MTX-3", "LOG-6")
@pytest.mark.parametrize("more", [(), MANY], ids=["few", "many"])
@pytest.mark.parametrize("group", MALFORMED.values(), ids=MALFORMED)
def test_readers_ignore_a_group_that_they_do_not_understand(group: Any, more: tuple[str, ...]) -> None:
    decoded = decode_commit(lines(group, more=more), version=1)
    assert decoded.transaction_group is None and decoded.has_other_lines
    assert decoded.adds.num_rows == 1 + len(more)
    twice = decode_commit(lines(FIELDS, more=(*more, json.dumps({"transactionGroup": FIELDS}))), version=1)
    assert twice.transaction_group is None and twice.has_other_lines


@pytest.mark.requirements("MTX-3")
@pytest.mark.parametrize("more", [(), MANY], ids=["few", "many"])
def test_a_valid_group_passes_the_checks_of_proposals(more: tuple[str, ...]) -> None:
    data = lines({**FIELDS, "future": {"a": [1]}}, more=more)
    assert (len(data) > LARGE_COMMIT_BYTES) is bool(more)
    content = check_content(data)
    assert content.transaction_group == replace(GROUP, extra={"future": {"a": [1]}})
    assert not content.content.has_other_lines
    assert content.actions(version=1).transaction_group == content.transaction_group


@pytest.mark.requirements("MTX-3")
@pytest.mark.parametrize("more", [(), MANY], ids=["few", "many"])
@pytest.mark.parametrize("group", REFUSED.values(), ids=REFUSED)
def test_a_malformed_group_is_not_ratified(group: Any, more: tuple[str, ...]) -> None:
    with pytest.raises(IllegalCommitError, match="transactionGroup"):
        check_content(lines(group, more=more))


@pytest.mark.requirements("MTX-1", "MTX-3")
def test_a_commit_has_one_group_and_its_id_as_a_tag() -> None:
    with pytest.raises(IllegalCommitError, match="two actions for transactionGroup"):
        check_content(lines(FIELDS, more=(json.dumps({"transactionGroup": FIELDS}),)))
    for tag in (None, "another"):
        with pytest.raises(IllegalCommitError, match=TRANSACTION_TAG):
            check_content(lines(FIELDS, tag=tag))


@pytest.mark.requirements("MTX-2", "MTX-3")
@pytest.mark.parametrize(
    ("versions", "groups", "why"),
    [
        ({"one": 1, "two": 77}, {"one": GROUP, "two": GROUP}, None),
        ({"one": 1, "two": 77}, {"one": GROUP}, None),
        ({"one": 1, "two": 2}, {"one": None, "two": None}, None),
        ({"one": 1}, {}, None),
        ({"one": 1}, {"one": GROUP}, "names version 77 of table two, which is not proposed"),
        ({"one": 1, "two": 78}, {"one": GROUP, "two": GROUP}, "names version 77 of table two, and version 78"),
        ({"one": 1, "two": 77, "three": 1}, {"two": GROUP}, "lacks table three"),
        ({"three": 1, "four": 2}, {"three": GROUP}, "names version 1 of table one, which is not proposed"),
        ({"one": 1, "two": 77}, {"one": GROUP, "two": None}, "is missing"),
        ({"one": 1, "two": 77}, {"one": GROUP, "two": replace(GROUP, transaction_id="other")}, "is another one"),
        ({"one": 1, "two": 77}, {"one": GROUP, "two": replace(GROUP, coordinating_catalog="x")}, "is another one"),
    ],
)
def test_commits_proposed_together_are_the_whole_group(
    versions: dict[str, int], groups: dict[str, TransactionGroup | None], why: str | None
) -> None:
    flaw = flaw_of_groups(versions, groups)
    assert (flaw is None) if why is None else (flaw is not None and why in str(flaw[1]))


def after(*commits: CommitActions) -> TableState:
    return replay(None, (START, *commits), location=ROOT)


@pytest.mark.requirements("MTX-3")
def test_neither_the_state_nor_what_is_derived_from_the_log_has_the_group() -> None:
    plain = decode_commit(encode_commit([CommitInfo(txn_id="t"), add_file("a")]), version=1)
    grouped = decode_commit(encode_commit([CommitInfo(txn_id="t"), GROUP, add_file("a")]), version=1)
    assert grouped.transaction_group == GROUP
    compacted = [compact((START, commit), location=ROOT) for commit in (plain, grouped)]
    assert compacted[0] == compacted[1]
    checksums = [
        encode(build_checksum(after(commit), txn_id="t", in_commit_timestamp=1)) for commit in (plain, grouped)
    ]
    assert checksums[0] == checksums[1]
    assert content_of(grouped) == content_of(plain)
    assert fingerprint(grouped) == fingerprint(plain), "attempts of one transaction name other versions"
